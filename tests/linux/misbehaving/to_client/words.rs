//! Words of the server's own page.

use bellwire_core::{Geometry, Word};

use super::is_found;
use crate::misbehaving::records::{HONEST, REACH};

tails!();
