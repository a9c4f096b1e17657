//! The layouts of control messages. All start with the same eight bytes, so that every version can identify a
//! message.

use core::mem::size_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, try_transmute};

use super::{
    Attachment, ControlError, Doorbell, Hello, Join, MAX_CONTROL, MAX_REASON, Message, PROTOCOL,
    Ready, Refuse, RefuseCode, Versions, Welcome,
};
use crate::lane::Epoch;
use crate::{Geometry, Limits, ServiceName};

/// The first four bytes of every control message.
const MAGIC: [u8; 4] = *b"BWC1";

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Prefix {
    magic: [u8; 4],
    kind: U16,
    fds: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLimits {
    least_lane: U32,
    max_lane: U32,
    max_message: U64,
    max_shared: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    prefix: Prefix,
    // The versions are at the same offset in every version of HELLO.
    min: U16,
    max: U16,
    service_version: U32,
    features: U64,
    service: [u8; 64],
    token: [u8; 16],
    lane: U32,
    doorbell: U32,
    rings_eventfd: U32,
    limits: RawLimits,
    schema: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWelcome {
    prefix: Prefix,
    version: U16,
    reserved: U16,
    lane: U32,
    features: U64,
    session: U64,
    doorbell: U32,
    max_batch: U32,
    limits: RawLimits,
    schema: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRefuse {
    prefix: Prefix,
    code: U16,
    min: U16,
    max: U16,
    reason_len: U16,
    reason: [u8; MAX_REASON],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSession {
    prefix: Prefix,
    session: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAttachment {
    prefix: Prefix,
    id: U64,
    generation: U64,
    len: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLane {
    prefix: Prefix,
    number: U32,
    size: U32,
}

const _: () = {
    assert!(size_of::<RawHello>() == 148);
    assert!(size_of::<RawWelcome>() == 72);
    assert!(size_of::<RawRefuse>() == 272);
    assert!(size_of::<RawSession>() == 16);
    assert!(size_of::<RawAttachment>() == 32);
    assert!(size_of::<RawLane>() == 16);
};

impl Message {
    /// Writes the message, to be sent with `fds` descriptors, and returns its length in bytes.
    pub fn encode(&self, fds: u16, into: &mut [u8; MAX_CONTROL]) -> usize {
        let prefix = Prefix { magic: MAGIC, kind: (self.kind() as u16).into(), fds: fds.into() };
        match self {
            Self::Hello(m) => put(
                into,
                &RawHello {
                    prefix,
                    min: m.versions.min.into(),
                    max: m.versions.max.into(),
                    service_version: m.service_version.into(),
                    features: m.features.into(),
                    service: m.service.to_field(),
                    token: m.token,
                    lane: lane_field(m.lane),
                    doorbell: (m.doorbell as u32).into(),
                    rings_eventfd: u32::from(m.rings_eventfd).into(),
                    limits: RawLimits::new(m.least_lane, &m.limits),
                    schema: m.schema.into(),
                },
            ),
            Self::Welcome(m) => put(
                into,
                &RawWelcome {
                    prefix,
                    version: m.version.into(),
                    reserved: 0.into(),
                    lane: lane_field(m.lane),
                    features: m.features.into(),
                    session: m.session.into(),
                    doorbell: (m.doorbell as u32).into(),
                    max_batch: m.max_batch.into(),
                    limits: RawLimits::new(m.least_lane, &m.limits),
                    schema: m.schema.into(),
                },
            ),
            Self::Refuse(m) => put(
                into,
                &RawRefuse {
                    prefix,
                    code: (m.code as u16).into(),
                    min: m.versions.min.into(),
                    max: m.versions.max.into(),
                    reason_len: u16::try_from(m.reason.len()).unwrap_or(u16::MAX).into(),
                    reason: reason_field(&m.reason),
                },
            ),
            Self::Join(Join { session }) | Self::Ready(Ready { session }) => {
                put(into, &RawSession { prefix, session: (*session).into() })
            }
            Self::Attachment(m) => put(
                into,
                &RawAttachment {
                    prefix,
                    id: m.id.into(),
                    generation: m.generation.into(),
                    len: m.len.into(),
                },
            ),
            Self::Ring => put(into, &prefix),
            Self::Lane(epoch) => put(
                into,
                &RawLane { prefix, number: epoch.number.into(), size: lane_field(epoch.size) },
            ),
        }
    }

    /// Parses a message that came with `fds` descriptors.
    ///
    /// # Errors
    /// [`ControlError`] with the reason; nothing of a malformed message is used. A HELLO of a foreign version is
    /// [`ControlError::Version`], whatever follows the version fields.
    pub fn parse(bytes: &[u8], fds: usize) -> Result<Self, ControlError> {
        let short = ControlError::Length { len: bytes.len(), expected: size_of::<Prefix>() };
        let (prefix, _) = Prefix::read_from_prefix(bytes).map_err(|_| short)?;
        if prefix.magic != MAGIC {
            return Err(ControlError::Magic);
        }
        if usize::from(prefix.fds.get()) != fds {
            return Err(ControlError::Field { field: "descriptor count" });
        }
        match prefix.kind.get() {
            1 => Hello::parse(bytes).map(Self::Hello),
            2 => Welcome::parse(bytes).map(Self::Welcome),
            3 => Refuse::parse(bytes).map(Self::Refuse),
            4 => Ok(Self::Join(Join { session: take::<RawSession>(bytes)?.session.get() })),
            5 => Ok(Self::Ready(Ready { session: take::<RawSession>(bytes)?.session.get() })),
            6 => Attachment::parse(bytes).map(Self::Attachment),
            7 => take::<Prefix>(bytes).map(|_| Self::Ring),
            8 => parse_lane(bytes).map(Self::Lane),
            kind => Err(ControlError::Kind { kind }),
        }
    }
}

impl Hello {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let field = |at: usize| {
            let two = bytes.get(at..at + 2).and_then(|b| <[u8; 2]>::try_from(b).ok());
            two.map(u16::from_le_bytes)
                .ok_or(ControlError::Length { len: bytes.len(), expected: at + 2 })
        };
        let versions = Versions { min: field(8)?, max: field(10)? };
        if versions.min > versions.max {
            return Err(ControlError::Field { field: "version range" });
        }
        if PROTOCOL.common(versions).is_none() {
            return Err(ControlError::Version(versions));
        }
        let raw = take::<RawHello>(bytes)?;
        let lane = lane(raw.lane)?;
        let (least_lane, limits) = raw.limits.parse(lane)?;
        Ok(Self {
            versions,
            features: raw.features.get(),
            service: ServiceName::from_field(&raw.service).map_err(ControlError::Name)?,
            service_version: raw.service_version.get(),
            token: raw.token,
            lane,
            least_lane,
            limits,
            doorbell: doorbell(raw.doorbell)?,
            rings_eventfd: flag(raw.rings_eventfd, "eventfd flag")?,
            schema: raw.schema.get(),
        })
    }
}

impl Welcome {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let raw = take::<RawWelcome>(bytes)?;
        if raw.reserved.get() != 0 {
            return Err(ControlError::Field { field: "reserved field" });
        }
        let lane = lane(raw.lane)?;
        let (least_lane, limits) = raw.limits.parse(lane)?;
        Ok(Self {
            version: raw.version.get(),
            features: raw.features.get(),
            session: raw.session.get(),
            lane,
            least_lane,
            limits,
            doorbell: doorbell(raw.doorbell)?,
            max_batch: raw.max_batch.get(),
            schema: raw.schema.get(),
        })
    }
}

impl Refuse {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let raw = take::<RawRefuse>(bytes)?;
        let code: Option<RefuseCode> = try_transmute!(raw.code.get()).ok();
        let code = code.ok_or(ControlError::Field { field: "code" })?;
        let bad_reason = ControlError::Field { field: "reason" };
        let text = raw.reason.get(..usize::from(raw.reason_len.get())).ok_or(bad_reason)?;
        let text = core::str::from_utf8(text).map_err(|_| bad_reason)?;
        // It is shown on operators' terminals: allow no control characters.
        if text.chars().any(char::is_control) {
            return Err(bad_reason);
        }
        let versions = Versions { min: raw.min.get(), max: raw.max.get() };
        Ok(Self { code, versions, reason: text.into() })
    }
}

impl RawLimits {
    fn new(least_lane: Geometry, limits: &Limits) -> Self {
        Self {
            least_lane: lane_field(least_lane),
            max_lane: lane_field(limits.max_lane),
            max_message: limits.max_message.into(),
            max_shared: limits.max_shared_bytes_per_session.into(),
        }
    }

    /// Returns the minimum size of a lane that opens with `size`, and the limits.
    fn parse(&self, size: Geometry) -> Result<(Geometry, Limits), ControlError> {
        let field = |field| ControlError::Field { field };
        let least = Geometry::new(self.least_lane.get().into());
        let least = least.ok().filter(|least| *least <= size).ok_or(field("least lane size"))?;
        let max_lane =
            Geometry::new(self.max_lane.get().into()).map_err(|_| field("lane limit"))?;
        let limits = Limits {
            max_message: self.max_message.get(),
            max_lane,
            max_shared_bytes_per_session: self.max_shared.get(),
        };
        if limits.max_shared_bytes_per_session < Limits::MIN_SHARED {
            return Err(field("shared memory limit"));
        }
        if limits.lane_within_limit(size) != size {
            return Err(field("lane size beside the shared memory limit"));
        }
        Ok((least, limits))
    }
}

fn parse_lane(bytes: &[u8]) -> Result<Epoch, ControlError> {
    let raw = take::<RawLane>(bytes)?;
    Ok(Epoch { number: raw.number.get(), size: lane(raw.size)? })
}

impl Attachment {
    fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        let raw = take::<RawAttachment>(bytes)?;
        Ok(Self { id: raw.id.get(), generation: raw.generation.get(), len: raw.len.get() })
    }
}

fn put<T: IntoBytes + Immutable>(into: &mut [u8; MAX_CONTROL], raw: &T) -> usize {
    let bytes = raw.as_bytes();
    for (to, from) in into.iter_mut().zip(bytes) {
        *to = *from;
    }
    bytes.len()
}

fn take<T: FromBytes>(bytes: &[u8]) -> Result<T, ControlError> {
    let error = ControlError::Length { len: bytes.len(), expected: size_of::<T>() };
    T::read_from_bytes(bytes).map_err(|_| error)
}

fn reason_field(reason: &str) -> [u8; MAX_REASON] {
    core::array::from_fn(|at| reason.as_bytes().get(at).copied().unwrap_or(0))
}

fn lane_field(lane: Geometry) -> U32 {
    u32::try_from(lane.size()).unwrap_or(Geometry::MAX).into()
}

fn lane(field: U32) -> Result<Geometry, ControlError> {
    Geometry::new(field.get().into()).map_err(|_| ControlError::Field { field: "lane size" })
}

fn doorbell(field: U32) -> Result<Doorbell, ControlError> {
    Doorbell::parse(field.get()).ok_or(ControlError::Field { field: "doorbell" })
}

fn flag(field: U32, name: &'static str) -> Result<bool, ControlError> {
    match field.get() {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ControlError::Field { field: name }),
    }
}
