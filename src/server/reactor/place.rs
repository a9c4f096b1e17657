//! The names by which clients find the endpoints: when somebody removes or replaces them, they are taken again.

use super::{Reactor, watch};
use crate::server::Station;
use crate::server::incidents::Offence;
use crate::server::source::Source;
use crate::transport::notify::Notify;
use crate::transport::poll::{Poller, Trigger};

/// Watches the run dir, which is one for all endpoints, if this system can.
pub(super) fn notify(stations: &[Station], poller: &mut Poller) -> Option<Notify> {
    let run_dir = stations.first()?.run_dir.path();
    let notify = Notify::watch(run_dir)?;
    if !stations.iter().all(|station| station.endpoint.is_in_place()) {
        // A file system that names a file otherwise than by its descriptor tells nothing.
        return None;
    }
    watch(poller, &notify, Source::RunDir, Trigger::Level).ok()?;
    Some(notify)
}

impl Reactor {
    /// Something happened in the run dir, or to it: takes each name again that is lost. One that cannot be taken now is tried
    /// again when something happens next.
    pub(super) fn look_after_endpoints(&mut self) {
        // Once more when something was made: the run dir may be another one, and it is watched before it is looked at.
        let _ = self.take_places() && self.take_places();
    }

    /// True if one was taken again.
    fn take_places(&mut self) -> bool {
        if let Some(notify) = &self.notify {
            notify.take();
        }
        let mut any = false;
        for (at, station) in self.stations.iter_mut().enumerate() {
            if station.endpoint.is_in_place() {
                station.is_displaced = false;
                continue;
            }
            let _ = self.poller.delete(&station.endpoint);
            let taken = station.endpoint.take_place();
            any |= taken.is_ok();
            // It serves without its backlog, too.
            let _ = station.endpoint.set_backlog(self.config.backlog);
            // If nobody is accepted for a while, all endpoints are listened to again after it.
            if self.accept_after.is_none() {
                let source = Source::Station(at);
                let _ = watch(&mut self.poller, &station.endpoint, source, Trigger::Level);
            }
            let why = taken.err().map(|error| error.to_string().into());
            let was_displaced = std::mem::replace(&mut station.is_displaced, why.is_some());
            if !was_displaced || why.is_none() {
                let (service, offence) = (station.admission.service, Offence::Displaced { why });
                self.shared.stats().add(at, &offence.kind().one());
                self.shared.note(service, None, offence);
            }
        }
        any
    }
}
