//! Memory that a server passes during a session. The client reports its fault.

use bellwire_core::Geometry;
use rustix::fs::SealFlags;
use zerocopy::IntoBytes;

use super::is_found;
use crate::misbehaving::impostor;
use crate::misbehaving::passing::Passing;
use crate::misbehaving::passing::why::*;
use crate::support::memory::{Draft, SEALS};

passings!();
