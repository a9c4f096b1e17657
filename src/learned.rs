//! Remembers how large lanes had to be, for the sessions that this process opens next.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bellwire_core::wire::Role;
use bellwire_core::{Geometry, ServiceName};
use bellwire_shm::lock;

use crate::LaneConfig;

/// The most services remembered; later ones are not.
const MAX_SERVICES: usize = 256;

/// By service, and by which end writes the lane: true for the server.
static LEARNED: Mutex<BTreeMap<(ServiceName, bool), Geometry>> = Mutex::new(BTreeMap::new());

/// Records the size that the lane of `role` has reached.
#[cold]
pub(crate) fn note(service: ServiceName, role: Role, size: Geometry) {
    let mut learned = lock(&LEARNED);
    let key = (service, role == Role::Server);
    if learned.len() < MAX_SERVICES || learned.contains_key(&key) {
        learned.insert(key, size);
    }
}

/// Returns the size to open a lane with: the configured or the last recorded one, within the configured maximum.
pub(crate) fn opening(service: ServiceName, role: Role, config: &LaneConfig) -> Geometry {
    let most = config.max_learned.min(config.limits.max_lane);
    let learned = lock(&LEARNED).get(&(service, role == Role::Server)).copied();
    learned.map_or(config.size, |learned| learned.min(most).max(config.size))
}
