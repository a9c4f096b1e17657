//! Where a victim is killed: a phase, a number of system calls, and a number of instructions after the last of them.

use std::fmt;
use std::str::FromStr;

use crate::phase::Phase;

/// A point at which a victim is killed. `--only` takes its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) phase: &'static Phase,
    /// How many system calls the watched thread has completed since the gate.
    pub(crate) calls: usize,
    pub(crate) depth: Depth,
}

/// How far after a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Depth {
    /// After this many instructions, or at the next system call if that comes first.
    Instructions(u64),
    /// Asleep in the next system call.
    Asleep,
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error(
        "an address is PHASE:CALLS:INSTRUCTIONS or PHASE:CALLS:asleep, such as client/write:0:137"
    )]
    Form,
    #[error("there is no phase {0:?}: {all}", all = names())]
    Phase(String),
}

pub(crate) fn names() -> String {
    Phase::all().map(|phase| phase.name).collect::<Vec<_>>().join(", ")
}

const ASLEEP: &str = "asleep";

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.phase, self.calls)?;
        match self.depth {
            Depth::Instructions(count) => count.fmt(f),
            Depth::Asleep => f.write_str(ASLEEP),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut parts = text.split(':');
        let (Some(name), Some(calls), Some(depth), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(AddressError::Form);
        };
        let phase = Phase::named(name).ok_or_else(|| AddressError::Phase(name.to_owned()))?;
        let calls = calls.parse().map_err(|_| AddressError::Form)?;
        let depth = match depth {
            ASLEEP => Depth::Asleep,
            count => Depth::Instructions(count.parse().map_err(|_| AddressError::Form)?),
        };
        Ok(Self { phase, calls, depth })
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, AddressError};

    #[test]
    fn an_address_round_trips() {
        for text in ["client/write:0:137", "server/park:3:asleep"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_address_is_rejected() {
        for text in
            ["client/write", "client/write:0:137:1", "client/write:x:1", "client/write:1:-1"]
        {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Form), "{text}");
        }
        assert_eq!(
            "client/sing:0:0".parse::<Address>(),
            Err(AddressError::Phase("client/sing".to_owned()))
        );
    }
}
