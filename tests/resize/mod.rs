//! Lanes that grow and shrink, and messages in memory of their own.

mod exactness;
mod full_lanes;
mod learned;
mod limits;
mod parts;
mod payload;
mod shrink;

pub(crate) use exactness::serve as serve_exactly;
