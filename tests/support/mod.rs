//! What several modules need.

pub(crate) mod blobs;
pub(crate) mod child;
pub(crate) mod gate;
pub(crate) mod guard;
pub(crate) mod house;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod pattern;
pub(crate) mod rogue;
pub(crate) mod roles;
pub(crate) mod services;
pub(crate) mod squeeze;
