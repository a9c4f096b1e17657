//! Many requests in flight: pipelines, batches, and event loops.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

use bellwire::{CallError, Executed, Payload, Session, Ticket};

use crate::bytes::{array, bw_bytes, bytes, object, put, put_unless_null, writable};
use crate::client::bw_client;
use crate::error::{BW_OK, Failure, bw_error, run};

/// An answer of a pipelined request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_reply {
    /// The request: the number that bw_client_submit returned.
    pub ticket: u64,
    /// BW_OK, or why this request failed: then `error` of the function says more, and the session goes on.
    pub code: c_int,
    /// The answer, until the next function that is called with this client.
    pub answer: bw_bytes,
}

/// Calls with `count` requests in one message, and waits for all answers; take them in order with bw_client_batch_next.
/// The handler runs for each request, also where its answer no longer fits the message: that one fails alone with BW_E_TOO_LARGE.
///
/// # Safety
/// A client, `requests` points to `count` bytes and lengths, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_call_batch(
    client: *mut bw_client,
    requests: *const bw_bytes,
    count: usize,
    error: *mut bw_error,
) -> c_int {
    let call = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        client.batch.clear();
        // SAFETY: as the caller promises.
        let requests = unsafe { array(requests, count) }?;
        let item = |&bw_bytes { data, len }: &bw_bytes| {
            // SAFETY: as the caller promises.
            let request = unsafe { bytes(data, len) }?;
            Ok(Payload::build(len, |into| into.copy_from_slice(request))?)
        };
        let items = requests.iter().map(item).collect::<Result<Vec<_>, Failure>>()?;
        let answers =
            client.in_session(|session| Ok(session.call_batch(&items)?.collect::<Vec<_>>()))?;
        client.batch.extend(answers);
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, call) }
}

/// Takes the next answer of the last batch: BW_E_WOULD_BLOCK after the last one. `answer` stays until the next function that
/// is called with this client. An answer that failed is this function's error, and the next one follows.
///
/// # Safety
/// A client, `answer` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_batch_next(
    client: *mut bw_client,
    answer: *mut bw_bytes,
    error: *mut bw_error,
) -> c_int {
    let next = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        writable(answer)?;
        let end =
            || Failure::of(bellwire::ErrorKind::WouldBlock, "all answers of the batch were taken");
        let next = client.batch.pop_front().ok_or_else(end)?.map_err(|error| *error)?;
        let lent = client.lend(next);
        // SAFETY: as the caller promises.
        unsafe { put(answer, lent) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, next) }
}

/// Sends a request and returns at once, with its number in `ticket`, which may be NULL; bw_client_try_reply or
/// bw_client_wait_reply return its answer. BW_E_WOULD_BLOCK where the lane is full: take replies first.
///
/// # Safety
/// A client, `request` points to `len` bytes, and other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_submit(
    client: *mut bw_client,
    request: *const c_void,
    len: usize,
    ticket: *mut u64,
    error: *mut bw_error,
) -> c_int {
    let submit = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        // SAFETY: as the caller promises.
        let request = unsafe { bytes(request, len) }?;
        let sent = client.in_session(|session| session.raw().submit(request))?;
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(ticket, sent.id()) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, submit) }
}

/// Takes the next answer, in the order in which the provider sent them: BW_E_WOULD_BLOCK where none has arrived. Never
/// waits.
///
/// # Safety
/// A client, `reply` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_try_reply(
    client: *mut bw_client,
    reply: *mut bw_reply,
    error: *mut bw_error,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { take_reply(client, None, reply, error) }
}

/// Waits for the next answer, at most for `timeout_ns`: BW_E_DEADLINE where none has arrived; requests stay in flight.
///
/// # Safety
/// A client, `reply` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_wait_reply(
    client: *mut bw_client,
    timeout_ns: u64,
    reply: *mut bw_reply,
    error: *mut bw_error,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { take_reply(client, Some(timeout_ns), reply, error) }
}

/// The bytes stay in the session until its next use.
fn lent(
    (ticket, answer): (Ticket, Result<&[u8], CallError>),
) -> (Ticket, Result<bw_bytes, CallError>) {
    (ticket, answer.map(bw_bytes::from))
}

/// # Safety
/// As of the functions above.
unsafe fn take_reply(
    client: *mut bw_client,
    timeout_ns: Option<u64>,
    reply: *mut bw_reply,
    error: *mut bw_error,
) -> c_int {
    let take = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        writable(reply)?;
        let timeout = timeout_ns.map(|ns| client.timeout(ns));
        let next = client.in_open_session(Executed::Maybe, |session| match timeout {
            Some(timeout) => session.raw().wait_reply(timeout).map(|reply| Some(lent(reply))),
            None => session.raw().try_reply().map(|reply| reply.map(lent)),
        })?;
        let none = || Failure::of(bellwire::ErrorKind::WouldBlock, "no answer has arrived");
        let (ticket, answered) = next.ok_or_else(none)?;
        let mut taken =
            bw_reply { ticket: ticket.id(), code: BW_OK, answer: bw_bytes::from(&[][..]) };
        match answered {
            Ok(answer) => taken.answer = answer,
            // SAFETY: as the caller promises.
            Err(why) => taken.code = unsafe { run(error, || Err(why.into())) },
        }
        // SAFETY: as the caller promises.
        unsafe { put(reply, taken) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, take) }
}

/// Gives up a pipelined request: its answer is dropped when it arrives, and its handler is notified. Writes 1 to `was_in_flight`,
/// which may be NULL, if the request was in flight.
///
/// # Safety
/// A client, and pointers that are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_abandon(
    client: *mut bw_client,
    ticket: u64,
    was_in_flight: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let abandon = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let session = client.client.session();
        let was = session.is_some_and(|session| session.abandon(Ticket::from_id(ticket)));
        // SAFETY: as the caller promises.
        unsafe { put_unless_null(was_in_flight, was.into()) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, abandon) }
}

/// Writes a descriptor to `fd` that becomes readable when the provider rings: poll it edge-triggered, or after
/// bw_client_arm. BW_E_INVALID where the doorbell is a futex. It stays the client's.
///
/// # Safety
/// A client, `fd` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_fd(
    client: *mut bw_client,
    fd: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let of_session = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let found = client.in_session(|session| Ok(session.pollable().map(|fd| fd.as_raw_fd())))?;
        let doorbell = found?;
        // SAFETY: as the caller promises.
        unsafe { put(fd, doorbell) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, of_session) }
}

/// Asks the provider to ring at its next answer. Writes 1 to `is_ready` if one has arrived already: take it first. Call it
/// before each poll of bw_client_fd.
///
/// # Safety
/// A client, `is_ready` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_arm(
    client: *mut bw_client,
    is_ready: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let arm = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let arrived = client.in_open_session(Executed::Maybe, Session::arm)?;
        // SAFETY: as the caller promises.
        unsafe { put(is_ready, arrived.into()) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, arm) }
}
