//! Which users an endpoint admits besides its own user and the system, by the pipe's access rights and the peer's
//! credentials.

use crate::Windows;

/// Which users an endpoint admits.
pub type Admission = bellwire_shm::platform::Admission<Windows>;
