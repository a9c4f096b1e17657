//! The events as the kernel programs write them.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::call::OffCpu;

/// What a call, a delivery and a slow call begin with in `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawHead {
    pub(crate) kind: u64,
    pub(crate) number: u64,
    pub(crate) created: u64,
    pub(crate) sequence: u64,
    pub(crate) service: [u8; 64],
}

/// `struct direction` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawDirection {
    pub(crate) sent: u64,
    pub(crate) published: u64,
    pub(crate) waking: u64,
    pub(crate) on_cpu: u64,
    pub(crate) received: u64,
    pub(crate) length: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) waker: u32,
    pub(crate) pad: u32,
    pub(crate) comm: [u8; 16],
    pub(crate) waker_comm: [u8; 16],
}

/// `struct work` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawWork {
    pub(crate) resumed: u64,
    pub(crate) picked: u64,
    pub(crate) begun: u64,
    pub(crate) decoded: u64,
    pub(crate) ended: u64,
    pub(crate) off_cpu: OffCpu,
    pub(crate) tid: u32,
    pub(crate) lacks_return: u32,
    pub(crate) comm: [u8; 16],
}

/// `struct receive` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawReceive {
    pub(crate) queue: u64,
    pub(crate) decode: u64,
    pub(crate) handler: u64,
}

/// `struct call_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawCallEvent {
    pub(crate) head: RawHead,
    pub(crate) weight: u64,
    pub(crate) request: RawDirection,
    pub(crate) work: RawWork,
    pub(crate) receive: RawReceive,
    pub(crate) reply: RawDirection,
}

/// `struct session_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawSessionEvent {
    pub(crate) kind: u64,
    pub(crate) at: u64,
    pub(crate) number: u64,
    pub(crate) created: u64,
    pub(crate) service: [u8; 64],
    pub(crate) role: u64,
    pub(crate) args: [u64; 3],
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
}

/// `struct delivery_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawDeliveryEvent {
    pub(crate) head: RawHead,
    pub(crate) weight: u64,
    pub(crate) direction: RawDirection,
    pub(crate) taken: u64,
    pub(crate) validated: u64,
    pub(crate) is_mapped: u32,
    pub(crate) publisher_pid: u32,
    pub(crate) publisher_tid: u32,
    pub(crate) pad: u32,
    pub(crate) publisher_comm: [u8; 16],
}

/// `struct slow_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawSlowEvent {
    pub(crate) head: RawHead,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) length: u64,
    pub(crate) peer: u64,
    pub(crate) cgroup: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
}

/// `struct off_event` of `bpf/trace.h`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawOffEvent {
    pub(crate) kind: u64,
    pub(crate) left: u64,
    pub(crate) runnable: u64,
    pub(crate) entered: u64,
    pub(crate) cgroup: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) state: u32,
    pub(crate) waker: u32,
    pub(crate) next: u32,
    pub(crate) takes_messages: u32,
    pub(crate) user_stack: i64,
    pub(crate) kernel_stack: [u64; 32],
    pub(crate) comm: [u8; 16],
    pub(crate) waker_comm: [u8; 16],
    pub(crate) next_comm: [u8; 16],
}
