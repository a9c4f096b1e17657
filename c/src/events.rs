//! Events: every change, for any number of subscribers.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

use bellwire::{Delivery, Dynamic, ErrorKind, EventPublisher, StartAt, Subscriber};

use crate::bytes::{bw_bytes, bytes, free, give, object, put, put_unless_null, shared, writable};
use crate::cache::{BW_FOREVER, timeout_of};
use crate::client::bw_canceller;
use crate::config::{self, bw_client_config, bw_contract};
use crate::error::{Failure, bw_error, run};
use crate::server::bw_server_builder;

/// An event.
pub const BW_EVENT: u32 = 1;
/// This subscriber was too slow: events were overwritten; `number` has their count.
pub const BW_MISSED: u32 = 2;
/// Another publisher has taken over and counts from 1 again.
pub const BW_RESTARTED: u32 = 3;

/// A subscriber starts with the next event.
pub const BW_START_NOW: u32 = 0;
/// With the oldest event that the provider keeps.
pub const BW_START_OLDEST: u32 = 1;

/// Publishes the events of one service; it never waits for a subscriber. Any number of threads may use it at once.
pub struct bw_event_publisher(EventPublisher<Dynamic>);

/// Receives the events of one service, each in order, or the exact count of those that it missed. By one thread at a time.
pub struct bw_subscriber {
    subscriber: Subscriber<Dynamic>,
    event: Vec<u8>,
}

/// What a subscriber gets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_delivery {
    /// BW_EVENT, BW_MISSED or BW_RESTARTED.
    pub kind: u32,
    /// Of an event: its number, counted by its publisher from 1. Of BW_MISSED: how many.
    pub number: u64,
    /// Of an event: its bytes, until the next function that is called with this subscriber.
    pub event: bw_bytes,
}

/// Serves events, of which it keeps the last `depth` bytes, and writes their publisher to `out`. Free it with
/// bw_event_publisher_free, before or after the server.
///
/// # Safety
/// A builder, a contract, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_builder_events(
    builder: *mut bw_server_builder,
    contract: *const bw_contract,
    depth: u64,
    out: *mut *mut bw_event_publisher,
    error: *mut bw_error,
) -> c_int {
    let publish = || {
        // SAFETY: as the caller promises.
        let builder = unsafe { object(builder) }?;
        // SAFETY: as the caller promises.
        let contract = unsafe { config::contract(contract) }?;
        writable(out)?;
        let publisher = builder.0.events_dynamic(contract, depth)?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_event_publisher(publisher)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, publish) }
}

/// Publishes an event, and writes its number to `number`, which may be NULL. Costs a copy, and one system call for all
/// subscribers.
///
/// # Safety
/// A publisher, `event` points to `len` bytes, and other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_event_publisher_send(
    publisher: *const bw_event_publisher,
    event: *const c_void,
    len: usize,
    number: *mut u64,
    error: *mut bw_error,
) -> c_int {
    let send = || {
        // SAFETY: as the caller promises.
        let publisher = unsafe { shared(publisher) }?;
        // SAFETY: as the caller promises.
        let sent = publisher.0.send(&unsafe { bytes(event, len) }?.to_vec())?;
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(number, sent) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, send) }
}

/// Makes room for at least `depth` bytes of events, up to 1 GiB. Subscribers follow, and miss nothing for it.
///
/// # Safety
/// A publisher, and `error` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_event_publisher_set_depth(
    publisher: *const bw_event_publisher,
    depth: u64,
    error: *mut bw_error,
) -> c_int {
    // SAFETY: as the caller promises.
    let set_depth = || Ok(unsafe { shared(publisher) }?.0.set_depth(depth)?);
    // SAFETY: as the caller promises.
    unsafe { run(error, set_depth) }
}

/// Frees a publisher. NULL is fine.
///
/// # Safety
/// NULL, or a publisher that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_event_publisher_free(publisher: *mut bw_event_publisher) {
    // SAFETY: as the caller promises.
    unsafe { free(publisher) }
}

/// Creates a subscriber that starts at BW_START_NOW or BW_START_OLDEST: `dir` and `config` as of bw_client_new. It connects when
/// it is first asked. Free it with bw_subscriber_free.
///
/// # Safety
/// Pointers are NULL where that is allowed, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_subscriber_new(
    dir: *const c_char,
    contract: *const bw_contract,
    start: u32,
    config: *const bw_client_config,
    out: *mut *mut bw_subscriber,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let (dir, config) = unsafe { config::client_in(dir, config) }?;
        // SAFETY: as the caller promises.
        let contract = unsafe { config::contract(contract) }?;
        let start = match start {
            BW_START_NOW => StartAt::Now,
            BW_START_OLDEST => StartAt::Oldest,
            _ => return Err(Failure::invalid("no such start")),
        };
        let subscriber = Subscriber::<Dynamic>::with_contract(&dir, contract, start, config);
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_subscriber { subscriber, event: Vec::new() }) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Takes the next delivery, waiting for at most `timeout_ns`, or BW_FOREVER; 0 never waits. BW_E_WOULD_BLOCK where there is none,
/// also while the provider is absent.
///
/// # Safety
/// A subscriber, `delivery` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_subscriber_next(
    subscriber: *mut bw_subscriber,
    timeout_ns: u64,
    delivery: *mut bw_delivery,
    error: *mut bw_error,
) -> c_int {
    let next = || {
        // SAFETY: as the caller promises.
        let bw_subscriber { subscriber, event } = unsafe { object(subscriber) }?;
        writable(delivery)?;
        let found = match timeout_ns {
            0 => subscriber.try_next()?,
            BW_FOREVER => subscriber.next(None)?,
            ns => subscriber.next(Some(Duration::from_nanos(ns)))?,
        };
        let none = || Failure::of(ErrorKind::WouldBlock, "there is no event");
        let (kind, number, of) = match found.ok_or_else(none)? {
            Delivery::Event { sequence, event } => (BW_EVENT, sequence, event),
            Delivery::Missed { events } => (BW_MISSED, events, Vec::new()),
            Delivery::Restarted => (BW_RESTARTED, 0, Vec::new()),
        };
        *event = of;
        let found = bw_delivery { kind, number, event: bw_bytes::from(&event[..]) };
        // SAFETY: as the caller promises.
        unsafe { put(delivery, found) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, next) }
}

/// Makes bw_subscriber_fd readable at the next event. Writes 1 to `is_ready` if there may be one already, or the provider is gone:
/// take events, and do not sleep.
///
/// # Safety
/// A subscriber, `is_ready` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_subscriber_arm(
    subscriber: *mut bw_subscriber,
    is_ready: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let arm = || {
        // SAFETY: as the caller promises.
        let subscriber = unsafe { object(subscriber) }?;
        let may = subscriber.subscriber.arm()?;
        // SAFETY: as the caller promises.
        unsafe { put(is_ready, may.into()) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, arm) }
}

/// Writes a descriptor to `fd` for an event loop, after bw_subscriber_arm and before each poll: the descriptor changes with the
/// subscriber's state. The doorbell must not be a futex. The descriptor stays the subscriber's. Take events also after bw_subscriber_poll_timeout.
///
/// # Safety
/// A subscriber, `fd` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_subscriber_fd(
    subscriber: *mut bw_subscriber,
    fd: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let of = || {
        // SAFETY: as the caller promises.
        let subscriber = unsafe { object(subscriber) }?;
        let found = subscriber.subscriber.pollable()?.as_raw_fd();
        // SAFETY: as the caller promises.
        unsafe { put(fd, found) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, of) }
}

/// Writes to `timeout_ns` after how long to take events even if the descriptor is not readable, because an attempt to open a session is
/// due then, or the provider declined to ring; BW_FOREVER means never. Call it after bw_subscriber_arm.
///
/// # Safety
/// A subscriber, `timeout_ns` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_subscriber_poll_timeout(
    subscriber: *mut bw_subscriber,
    timeout_ns: *mut u64,
    error: *mut bw_error,
) -> c_int {
    let of = || {
        // SAFETY: as the caller promises.
        let subscriber = unsafe { object(subscriber) }?;
        // SAFETY: as the caller promises.
        unsafe { put(timeout_ns, timeout_of(subscriber.subscriber.poll_timeout())) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, of) }
}

/// Creates an object by which other threads end this subscriber's waits. Free it with bw_canceller_free.
///
/// # Safety
/// A subscriber, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_subscriber_canceller(
    subscriber: *mut bw_subscriber,
    out: *mut *mut bw_canceller,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let canceller = unsafe { object(subscriber) }?.subscriber.canceller()?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_canceller(canceller)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Frees a subscriber. NULL is fine.
///
/// # Safety
/// NULL, or a subscriber that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_subscriber_free(subscriber: *mut bw_subscriber) {
    // SAFETY: as the caller promises.
    unsafe { free(subscriber) }
}
