//! How a lane becomes larger or smaller while its session goes on.
//!
//! ```text
//! sender                                         receiver
//! Port::offer(epoch n)    memfd over the socket    ┊
//! Lanes::switch           ┌ record: "epoch n" ┐    ┊
//! Port::adopt             └ in the old memory ┘    ┊
//! Lanes::push               record, new memory     ┊
//! Lanes::commit       ────────── tail ─────────►   Lanes::peek: a switch
//!                                                  Port::follow(epoch n): takes the memfd, checks, maps
//!                     ◄───────── head ──────────   Lanes::follow; the old memory is unmapped
//! ```
//!
//! The sender never waits for the receiver to follow: a message that needs a larger lane goes out at once. What
//! bounds it is [`MOST_OUTSTANDING`](crate::lane::MOST_OUTSTANDING); one epoch more meets a full lane, and whoever
//! waits for it is rung when the receiver follows.

use core::fmt;
use core::time::Duration;

use crate::lane::{Epoch, Lanes, PushError, Record};
use crate::{Geometry, Instant, PeerFault, Port};

/// What this system lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Open files of this process.
    Descriptors,
    /// Memory: of the machine, of shared memory as a whole, or of a file's size.
    Memory,
    /// Maps or address space of this process.
    Maps,
    /// Descriptors on their way to all peers of this user.
    InFlight,
    /// Room on the control socket: the peer does not read it.
    ControlSocket,
    /// Memory that the peers of one user may make this process hold.
    Quota,
    /// Something else; the system's code tells.
    Other,
}

/// Memory could not be made, passed or mapped. This system is at fault; the session is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this system is short of {resource} for {bytes} bytes of shared memory (os error {code})")]
pub struct Shortage {
    /// What is lacking.
    pub resource: Resource,
    /// How many bytes the memory was to have.
    pub bytes: u64,
    /// The operating system's code; 0 when there is none.
    pub code: i32,
}

/// Why a lane did not change its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// Not now, or not at all: see there.
    #[error(transparent)]
    Push(#[from] PushError),
    /// This system lacks something.
    #[error(transparent)]
    Short(#[from] Shortage),
}

/// Why the peer's lane could not be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The peer lied; the session is poisoned.
    #[error(transparent)]
    Lied(#[from] PeerFault),
    /// This system lacks something. Nothing was lost: look again later.
    #[error(transparent)]
    Short(#[from] Shortage),
}

/// Has the own lane go on with room for `to`, in an epoch that was offered before or a new one.
///
/// # Errors
/// [`ResizeError`]: the lane has kept its size, or become larger, and is usable.
pub fn grow<P: Port>(port: &mut P, lanes: &mut Lanes, to: Geometry) -> Result<(), ResizeError> {
    loop {
        if lanes.epoch().size >= to {
            return Ok(());
        }
        switch_to_next(port, lanes, to)?;
    }
}

/// Has the own lane go on in its least size. What was offered and not used is left on the way.
///
/// # Errors
/// [`ResizeError`]: the lane is usable.
pub fn shrink<P: Port>(port: &mut P, lanes: &mut Lanes) -> Result<(), ResizeError> {
    let least = lanes.least();
    while lanes.epoch().size > least || lanes.offered().is_some() {
        switch_to_next(port, lanes, least)?;
    }
    Ok(())
}

/// What is not urgent, when [`Lanes::take_chores`] says so and nobody waits. Passes the next epoch before it is
/// needed, if that can be foreseen, so that the send that needs it only switches; makes a lane large through which much goes; and
/// [`shrink_idle`]. True when there is something to publish. Nothing happens when the system lacks something: the send will tell.
pub fn chores<P: Port>(port: &mut P, lanes: &mut Lanes, span: Duration) -> bool {
    let now = lanes.is_grown().then(|| port.now());
    if let Some(to) = now.and_then(|now| lanes.wanted_for_pace(port.peer(), now)) {
        let before = lanes.epoch().number;
        // Where the system lacks something it stays as it was, or stops in the epoch that was offered before.
        let _ = grow(port, lanes, to);
        return lanes.epoch().number != before;
    }
    if let Some(epoch) = lanes.foresees(port.peer())
        && port.offer(epoch).is_ok()
    {
        lanes.offer(epoch);
    }
    now.is_some_and(|now| shrink_idle(port, lanes, now, span))
}

/// Shrinks a lane that has been much too large for `span`. True when it did: there is something to publish.
pub fn shrink_idle<P: Port>(port: &mut P, lanes: &mut Lanes, now: Instant, span: Duration) -> bool {
    lanes.is_idle(now, span) && shrink(port, lanes).is_ok()
}

/// Follows the peer's lane at a switch record.
///
/// # Errors
/// [`FollowError`]; after a shortage the record is still there.
pub fn follow<P: Port>(
    port: &mut P,
    lanes: &mut Lanes,
    switch: &Record,
) -> Result<(), FollowError> {
    let epoch = lanes.announced(switch)?;
    port.follow(epoch)?;
    lanes.follow(port.own(), switch, epoch);
    Ok(())
}

/// Goes on in the epoch that was offered, else in a new one of `size`.
fn switch_to_next<P: Port>(
    port: &mut P,
    lanes: &mut Lanes,
    size: Geometry,
) -> Result<Epoch, ResizeError> {
    if lanes.offered().is_none() {
        let epoch = lanes.next_epoch(port.peer(), size)?;
        port.offer(epoch)?;
        lanes.offer(epoch);
    }
    let epoch = lanes.switch(port.own()).ok_or(PushError::Closed)?;
    port.adopt(epoch);
    Ok(epoch)
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
            Self::Maps => "maps",
            Self::InFlight => "descriptors in flight",
            Self::ControlSocket => "room on the control socket",
            Self::Quota => "what the peer's user may have of it",
            Self::Other => "something",
        })
    }
}
