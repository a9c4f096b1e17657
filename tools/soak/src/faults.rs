//! The faults injected into the processes, and how often each was observed.

use std::ops::Range;

use fastrand::Rng;
use serde::Serialize;

use crate::members::Role;

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL.
    Kill(Role),
    /// SIGSTOP, and SIGCONT after this many milliseconds.
    Stop(Role, u64),
    /// An orderly end and a restart.
    Restart(Role),
}

/// The range of short stops in milliseconds. Long ones exceed the time that a provider waits for a client that takes nothing.
const SHORT: Range<u64> = 20..400;
const LONG: Range<u64> = 1_500..2_500;

impl Fault {
    /// Returns the next fault, determined by the seed.
    pub(super) fn draw(random: &mut Rng) -> Self {
        let consumer = Role::FaultedConsumer(random.u8(1..=2));
        let short = random.u64(SHORT);
        let long = random.u64(LONG);
        match random.u8(..10) {
            0 | 1 => Self::Kill(Role::FaultedProvider),
            2 | 3 => Self::Kill(consumer),
            4 | 5 => Self::Stop(Role::FaultedProvider, short),
            6 => Self::Stop(consumer, short),
            7 => Self::Stop(consumer, long),
            8 => Self::Restart(Role::FaultedProvider),
            _ => Self::Restart(consumer),
        }
    }

    /// Returns one fault of each kind.
    pub(super) fn each() -> Vec<Self> {
        let (provider, [one, two]) = (Role::FaultedProvider, [1, 2].map(Role::FaultedConsumer));
        vec![
            Self::Restart(two),
            Self::Restart(provider),
            Self::Stop(provider, SHORT.end),
            Self::Kill(one),
            Self::Kill(provider),
            Self::Stop(two, LONG.end),
        ]
    }

    pub(super) fn role(self) -> Role {
        match self {
            Self::Kill(role) | Self::Stop(role, _) | Self::Restart(role) => role,
        }
    }
}

/// How often each fault was observed, rather than requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Fired {
    /// The process was reaped, and SIGKILL had ended it.
    pub(super) providers_killed: u64,
    pub(super) consumers_killed: u64,
    /// Every thread was observed stopped.
    pub(super) providers_stopped: u64,
    pub(super) consumers_stopped: u64,
    /// It ended in order, reported everything, and was replaced.
    pub(super) providers_restarted: u64,
    pub(super) consumers_restarted: u64,
    /// A provider closed the session of a client that took nothing.
    pub(super) clients_stalled: u64,
    /// Lanes grew, or shrank, within a session.
    pub(super) lanes_grown: u64,
    pub(super) lanes_shrunk: u64,
}

impl Fired {
    pub(super) fn killed(&mut self, role: Role) {
        *of(role, &mut self.providers_killed, &mut self.consumers_killed) += 1;
    }

    pub(super) fn stopped(&mut self, role: Role) {
        *of(role, &mut self.providers_stopped, &mut self.consumers_stopped) += 1;
    }

    pub(super) fn restarted(&mut self, role: Role) {
        *of(role, &mut self.providers_restarted, &mut self.consumers_restarted) += 1;
    }

    /// Returns all of them with their names.
    pub(super) fn all(&self) -> [(&'static str, u64); 9] {
        [
            ("providers killed", self.providers_killed),
            ("consumers killed", self.consumers_killed),
            ("providers stopped", self.providers_stopped),
            ("consumers stopped", self.consumers_stopped),
            ("providers restarted", self.providers_restarted),
            ("consumers restarted", self.consumers_restarted),
            ("clients stalled", self.clients_stalled),
            ("lanes grown", self.lanes_grown),
            ("lanes shrunk", self.lanes_shrunk),
        ]
    }
}

fn of<T>(role: Role, provider: T, consumer: T) -> T {
    if role.is_consumer() { consumer } else { provider }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_faults_and_each_kind_occurs() {
        let draw = |seed| {
            let mut random = Rng::with_seed(seed);
            (0..200).map(|_| Fault::draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let faults = draw(3);
        let some = |is: fn(&Fault) -> bool| faults.iter().any(is);
        for is_consumer in [false, true] {
            let hits = |role: Role| role.is_consumer() == is_consumer;
            assert!(faults.iter().any(|f| matches!(f, Fault::Kill(role) if hits(*role))));
            assert!(faults.iter().any(|f| matches!(f, Fault::Stop(role, _) if hits(*role))));
            assert!(faults.iter().any(|f| matches!(f, Fault::Restart(role) if hits(*role))));
        }
        assert!(some(|fault| matches!(fault, Fault::Stop(_, millis) if *millis >= LONG.start)));
        assert!(faults.iter().all(|fault| !fault.role().is_steady()));
    }
}
