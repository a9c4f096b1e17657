//! The `cgroups-snapshot` payload: one flat, little-endian picture of every cgroup of a machine.
//!
//! A provider sizes a memfd with [`encoded_len`], writes into it in place with [`encode_into`] and seals
//! it. A reader validates it once into an [`Index`], which keeps a private copy, and looks cgroups up
//! through a [`View`] in constant time and without allocating. `docs/cgroups-snapshot.md` is normative
//! for the bytes.
//!
//! ```
//! use bellwire_cgroups::{Index, Meta, Mode, encode, name_hash, synthetic};
//!
//! let meta = Meta::now(Mode::V2);
//! let bytes = encode(&synthetic::entries(100, 7), meta)?;
//!
//! let index = Index::validate(&bytes)?;
//! let view = index.view();
//! assert_eq!(view.len(), 100);
//! for cgroup in view.iter() {
//!     assert_eq!(view.find_by_path(cgroup.path), Some(cgroup));
//!     assert!(view.find_by_name(name_hash(cgroup.name), cgroup.name).is_some());
//! }
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod delta;
#[doc(hidden)]
pub mod fields;
mod hash;
mod index;
mod item;
mod label;
mod layout;
mod lookup;
mod malformed;
mod meta;
#[cfg(feature = "netipc")]
mod netipc;
mod options;
mod orchestrator;
mod row;
#[cfg(feature = "scan")]
pub mod scan;
mod service;
pub mod synthetic;
mod text;
mod update;
mod validate;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub use hash::{chart_id, name_hash, name_hash32};
pub use index::Index;
pub use item::{Cgroup, CgroupEntry, Hierarchy};
pub use label::{Labels, check_label};
pub use layout::{
    HEADER_LEN, ITEM_LEN, LAYOUT, MAGIC, MAX_ITEMS, MAX_LABELS, MAX_LEN, MAX_NAME, MAX_PATH,
    MAX_VALUE,
};
pub use lookup::{CgroupDetails, CgroupsLookup};
pub use malformed::{Malformed, MalformedKind};
pub use meta::{Meta, Mode};
pub use options::Options;
pub use orchestrator::Orchestrator;
pub use service::CgroupsSnapshot;
pub use text::{TextFault, check_name, check_path};
pub use view::{Iter, Named, View};
pub use writer::{EncodeError, SnapshotWriter, encode, encode_into, encoded_len, same_content};
