//! How a lane grows or shrinks during a session.
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
//! The sender never waits for the receiver to follow: it sends a message that needs a larger lane immediately. At
//! most [`MAX_OUTSTANDING`](crate::lane::MAX_OUTSTANDING) epochs may be outstanding; one more counts as a full
//! lane, and a sender that waits for it is rung when the receiver follows.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::lane::{Epoch, Lanes, PushError, Record};
use crate::{Geometry, Instant, PeerFault, Port};

/// The resource that this system lacked.
///
/// ```
/// use bellwire_core::resize::Resource;
///
/// println!("this system is short of {}", Resource::Descriptors);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Open files of this process.
    Descriptors,
    /// Memory of the machine, shared memory as a whole, or the size limit of a file.
    Memory,
    /// Mappings or address space of this process.
    Maps,
    /// Descriptors of this user in flight to peers.
    InFlight,
    /// Room on the control socket: the peer does not read it.
    ControlSocket,
    /// Memory that the peers of one user may make this process hold.
    Quota,
    /// Something else: see the system's error code.
    Other,
}

/// Memory could not be created, passed or mapped. This system is at fault; the session is usable.
///
/// ```
/// use bellwire_core::resize::{Resource, Shortage};
///
/// let shortage = Shortage { resource: Resource::Memory, bytes: 1 << 20, code: 12 };
/// println!("{shortage}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this system is short of {resource}{}", details(*bytes, *code))]
pub struct Shortage {
    /// The missing resource.
    pub resource: Resource,
    /// The size in bytes of the shared memory that it was for; 0 if it was for something else.
    pub bytes: u64,
    /// The operating system's error code; 0 when there is none.
    pub code: i32,
}

/// What a resource was for, and the system's error.
fn details(bytes: u64, code: i32) -> String {
    let code = if code == 0 { String::new() } else { format!(" (os error {code})") };
    if bytes == 0 { code } else { format!(" for {bytes} bytes of shared memory{code}") }
}

/// Why a lane did not change its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// The next epoch is not allowed, or not allowed now.
    #[error(transparent)]
    Push(#[from] PushError),
    /// This system lacks a resource.
    #[error(transparent)]
    Short(#[from] Shortage),
}

/// Why an end could not follow the peer's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The peer violated the protocol; the session is poisoned.
    #[error(transparent)]
    Peer(#[from] PeerFault),
    /// This system lacks a resource. Nothing was lost: retry later.
    #[error(transparent)]
    Short(#[from] Shortage),
}

/// Continues the own lane with room for `to`, in an epoch that was offered before or a new one.
///
/// # Errors
/// [`ResizeError`]: the lane kept its size, or grew less, and is usable.
pub fn grow<P: Port>(port: &mut P, lanes: &mut Lanes, to: Geometry) -> Result<(), ResizeError> {
    loop {
        if lanes.epoch().size >= to {
            return Ok(());
        }
        switch_to_next(port, lanes, to)?;
    }
}

/// Shrinks the own lane to its minimum size. Enters and leaves an unused offered epoch on the way.
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

/// Does maintenance that is not urgent; call it when [`Lanes::take_maintenance`] returns true and nobody waits. It
/// passes the next epoch early if the need is foreseeable, so that the send that needs it only switches; it grows a
/// lane that is deep and busy; and it calls [`shrink_idle`]. Returns true when there is something to publish. Ignores
/// a shortage, because the send will report it.
pub fn maintain<P: Port>(port: &mut P, lanes: &mut Lanes, span: Duration) -> bool {
    let now = lanes.is_grown().then(|| port.now());
    if let Some(to) = now.and_then(|now| lanes.wanted_for_throughput(port.peer(), now)) {
        let before = lanes.epoch().number;
        // On a shortage, the lane keeps its size, or stops in the epoch that was offered before.
        let _ = grow(port, lanes, to);
        return lanes.epoch().number != before;
    }
    if let Some(epoch) = lanes.wants_pregrow(port.peer()) {
        if port.offer(epoch).is_ok() {
            lanes.offer(epoch);
        }
    }
    now.is_some_and(|now| shrink_idle(port, lanes, now, span))
}

/// Shrinks a lane that has been oversized for `span`. Returns true when it did: there is something to publish.
pub fn shrink_idle<P: Port>(port: &mut P, lanes: &mut Lanes, now: Instant, span: Duration) -> bool {
    lanes.is_idle(now, span) && shrink(port, lanes).is_ok()
}

/// Follows the peer's lane at a Switch record.
///
/// # Errors
/// [`FollowError`]; after a shortage, the record is still there.
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

/// Enters the offered epoch, or else a new one of `size`.
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
            Self::Quota => "the peer user's quota",
            Self::Other => "something",
        })
    }
}
