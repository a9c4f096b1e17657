//! Clients: calls, one-way requests, and what a client knows of its provider.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

use bellwire::{
    CallError, Canceller, Client, Dynamic, Executed, Payload, ProviderState, Session, SessionStats,
};

use crate::bytes::{bw_bytes, bytes, free, give, object, put, put_unless_null, shared, writable};
use crate::config::{self, bw_client_config, bw_contract};
use crate::error::{Failure, bw_error, run};
use crate::extensible;
use crate::payload::bw_payload;

/// No provider listens.
pub const BW_STATE_ABSENT: c_int = 0;
/// A session is being opened.
pub const BW_STATE_CONNECTING: c_int = 1;
/// A session is open.
pub const BW_STATE_READY: c_int = 2;
/// The provider refused this client, or the session could not be opened: bw_client_check says why.
pub const BW_STATE_FAILED: c_int = 3;

/// As a timeout: the configured one.
pub const BW_TIMEOUT_DEFAULT: u64 = u64::MAX;

/// A client of one service, whose provider may be absent, late or restarted. It starts no thread. By one thread at a time.
pub struct bw_client {
    pub(crate) client: Client<Dynamic>,
    timeout: Duration,
    /// The answer lent last.
    answer: Payload,
    /// What is left of the last batch.
    pub(crate) batch: VecDeque<Result<Payload, Box<CallError>>>,
}

/// Ends a client's waits from other threads. Any number of threads may use it at once.
pub struct bw_canceller(pub(crate) Canceller);

/// Counters of a client's session: made = answered + refused + failed + posts_taken + posts_lost + in_flight.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct bw_client_stats {
    /// sizeof(bw_client_stats), set by the caller.
    pub size: usize,
    /// Requests sent; a batch counts as one.
    pub made: u64,
    /// Requests answered by their handler, without an error.
    pub answered: u64,
    /// Requests answered without running a handler.
    pub refused: u64,
    /// Requests that ended in any other way.
    pub failed: u64,
    /// Requests that wait for an answer, and posts that the provider has not taken.
    pub in_flight: u64,
    /// Posts that the provider has taken.
    pub posts_taken: u64,
    /// Posts that it had not taken when the session ended: no handler runs for them.
    pub posts_lost: u64,
    /// Calls that ended before their request was sent.
    pub unsent: u64,
    /// How often this end rang the provider: one system call each.
    pub rings: u64,
    /// How often this end slept.
    pub parks: u64,
}

impl bw_client {
    pub(crate) fn timeout(&self, ns: u64) -> Duration {
        if ns == BW_TIMEOUT_DEFAULT { self.timeout } else { Duration::from_nanos(ns) }
    }

    /// Runs what pipelines, in a session that is opened for it.
    pub(crate) fn in_session<T>(
        &mut self,
        run: impl FnOnce(&mut Session<Dynamic>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let done = self.client.connect().and_then(run);
        self.note(done)
    }

    /// Runs what only makes sense in the session that is open.
    pub(crate) fn in_open_session<T>(
        &mut self,
        executed: Executed,
        run: impl FnOnce(&mut Session<Dynamic>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let done = self.client.session().ok_or(CallError::PeerGone { executed }).and_then(run);
        self.note(done)
    }

    /// After an error of the session, has the next function open another one.
    fn note<T>(&mut self, done: Result<T, CallError>) -> Result<T, CallError> {
        if done.is_err() {
            self.client.refresh();
        }
        done
    }

    /// Lends an answer until the next one.
    pub(crate) fn lend(&mut self, answer: Payload) -> bw_bytes {
        self.answer = answer;
        bw_bytes::from(&*self.answer)
    }
}

/// Creates a client of the service of `contract`, whose provider listens in the run dir `dir`; NULL: BELLWIRE_RUN_DIR or the
/// default. `config` may be NULL. It connects at the first call. Free it with bw_client_free.
///
/// # Safety
/// Pointers are NULL where that is allowed, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_new(
    dir: *const c_char,
    contract: *const bw_contract,
    config: *const bw_client_config,
    out: *mut *mut bw_client,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let (dir, config) = unsafe { config::client_in(dir, config) }?;
        // SAFETY: as the caller promises.
        let contract = unsafe { config::contract(contract) }?;
        let (timeout, answer) = (config.timeout, Payload::build(0, |_| ())?);
        let client = Client::<Dynamic>::with_contract(&dir, contract, config);
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_client { client, timeout, answer, batch: VecDeque::new() }) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Closes the session and frees the client. NULL is fine.
///
/// # Safety
/// NULL, or a client that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_free(client: *mut bw_client) {
    // SAFETY: as the caller promises.
    unsafe { free(client) }
}

/// Advances the client without blocking: connects where a retry is due, goes on with the handshake, or notices that the
/// provider is gone. Writes one of BW_STATE_… to `state`, which may be NULL.
///
/// # Safety
/// A client, and pointers that are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_refresh(
    client: *mut bw_client,
    state: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let refresh = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let found = client.client.refresh();
        report(&found, state)
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, refresh) }
}

fn report(found: &ProviderState, state: *mut c_int) -> Result<(), Failure> {
    let code = match found {
        ProviderState::Absent => BW_STATE_ABSENT,
        ProviderState::Connecting => BW_STATE_CONNECTING,
        ProviderState::Ready => BW_STATE_READY,
        _ => BW_STATE_FAILED,
    };
    // SAFETY: null, or writable as the callers' callers promise.
    unsafe { put_unless_null(state, code) };
    Ok(())
}

/// Checks whether there is a session, and fails as a call would where there is none: the error says why.
///
/// # Safety
/// A client, and `error` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_check(client: *mut bw_client, error: *mut bw_error) -> c_int {
    let check = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        match client.client.state() {
            ProviderState::Ready => Ok(()),
            state => Err(of_state(&state)),
        }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, check) }
}

fn of_state(state: &ProviderState) -> Failure {
    use bellwire::ErrorKind;
    match state {
        ProviderState::Refused { reason, .. } => Failure::of(ErrorKind::Refused, &**reason),
        ProviderState::Failed { kind, reason } => Failure::of(*kind, &**reason),
        ProviderState::Incompatible { .. } => Failure::of(
            ErrorKind::Incompatible,
            "the provider speaks another version of the protocol",
        ),
        ProviderState::Connecting => {
            Failure::of(ErrorKind::WouldBlock, "a session is being opened")
        }
        _ => Failure::of(ErrorKind::Absent, "nobody provides the service now: start its provider"),
    }
}

/// Waits until there is a provider, and opens a session, at most for `timeout_ns`. Polls nothing.
///
/// # Safety
/// A client, and `error` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_wait_available(
    client: *mut bw_client,
    timeout_ns: u64,
    error: *mut bw_error,
) -> c_int {
    let wait = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let timeout = client.timeout(timeout_ns);
        client.client.wait_available(timeout)?;
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, wait) }
}

/// Writes a descriptor to `fd` that is readable when an absent provider may have come up: call bw_client_refresh then. Ask
/// for it before each poll. It stays the client's.
///
/// # Safety
/// A client, `fd` may be written, and `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_arrival_fd(
    client: *mut bw_client,
    fd: *mut c_int,
    error: *mut bw_error,
) -> c_int {
    let arrival = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let arrival = client.client.pollable_arrival()?.as_raw_fd();
        // SAFETY: as the caller promises.
        unsafe { put(fd, arrival) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, arrival) }
}

/// Calls and waits for the answer, at most for `timeout_ns`, which includes connecting. In a steady state, allocates
/// nothing. `answer` stays until the next function that is called with this client.
///
/// # Safety
/// A client, `request` points to `len` bytes, `answer` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_call(
    client: *mut bw_client,
    request: *const c_void,
    len: usize,
    timeout_ns: u64,
    answer: *mut bw_bytes,
    error: *mut bw_error,
) -> c_int {
    let call = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        // SAFETY: as the caller promises.
        let request = unsafe { bytes(request, len) }?;
        writable(answer)?;
        let timeout = client.timeout(timeout_ns);
        let answered = bw_bytes::from(client.client.raw().call_within(request, timeout)?);
        // SAFETY: as the caller promises.
        unsafe { put(answer, answered) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, call) }
}

/// Calls with a payload and returns the answer as one: large ones are mapped, not copied. Free it with bw_payload_free.
///
/// # Safety
/// A client, a payload, `answer` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_call_payload(
    client: *mut bw_client,
    request: *const bw_payload,
    timeout_ns: u64,
    answer: *mut *mut bw_payload,
    error: *mut bw_error,
) -> c_int {
    let call = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        // SAFETY: as the caller promises.
        let request = unsafe { shared(request) }?;
        writable(answer)?;
        let timeout = client.timeout(timeout_ns);
        let answered = client.client.call_within(&request.0, timeout)?;
        // SAFETY: as the caller promises.
        unsafe { give(answer, bw_payload(answered)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, call) }
}

/// Sends a one-way request: the handler runs, and no answer is sent. Where the lane is full, the configured backpressure
/// decides.
///
/// # Safety
/// A client, `request` points to `len` bytes, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_post(
    client: *mut bw_client,
    request: *const c_void,
    len: usize,
    error: *mut bw_error,
) -> c_int {
    let post = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        // SAFETY: as the caller promises.
        let request = unsafe { bytes(request, len) }?;
        client.in_session(|session| session.raw().post(request))?;
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, post) }
}

/// Waits until the provider has taken everything that was posted, at most for `timeout_ns`.
///
/// # Safety
/// A client, and `error` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_flush(
    client: *mut bw_client,
    timeout_ns: u64,
    error: *mut bw_error,
) -> c_int {
    let flush = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let timeout = client.timeout(timeout_ns);
        client.in_open_session(Executed::No, |session| session.flush(timeout))?;
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, flush) }
}

/// Makes the lanes of both ends as small as they may be, after large messages, and waits until the provider has done its part,
/// at most for the configured time. Requests in flight go on.
///
/// # Safety
/// A client, and `error` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_trim(client: *mut bw_client, error: *mut bw_error) -> c_int {
    let trim = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        client.in_open_session(Executed::No, Session::trim)?;
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, trim) }
}

/// Creates an object by which other threads end this client's waits. Free it with bw_canceller_free.
///
/// # Safety
/// A client, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_canceller(
    client: *mut bw_client,
    out: *mut *mut bw_canceller,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        let canceller = client.client.canceller()?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_canceller(canceller)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Ends the current wait of the object that it was created from, or its next one, with BW_E_CANCELLED. Any thread may call it at
/// any time, but no signal handler.
///
/// # Safety
/// A canceller, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_canceller_cancel(canceller: *const bw_canceller) -> c_int {
    let cancel = || {
        // SAFETY: as the caller promises.
        unsafe { shared(canceller) }?.0.cancel();
        Ok(())
    };
    // SAFETY: no error is asked for.
    unsafe { run(std::ptr::null_mut(), cancel) }
}

/// Frees a canceller; the client may be gone. NULL is fine.
///
/// # Safety
/// NULL, or a canceller that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_canceller_free(canceller: *mut bw_canceller) {
    // SAFETY: as the caller promises.
    unsafe { free(canceller) }
}

/// Writes the counters of the open session; BW_E_PEER_GONE without one.
///
/// # Safety
/// A client, `stats` with its size set, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_client_get_stats(
    client: *mut bw_client,
    stats: *mut bw_client_stats,
    error: *mut bw_error,
) -> c_int {
    let get = || {
        // SAFETY: as the caller promises.
        let client = unsafe { object(client) }?;
        // SAFETY: as the caller promises.
        let size = unsafe { extensible::size(stats) }?;
        let SessionStats {
            made,
            answered,
            refused,
            failed,
            in_flight,
            posts_taken,
            posts_lost,
            unsent,
            rings,
            parks,
            ..
        } = client.in_open_session(Executed::No, |session| Ok(session.stats()))?;
        let counted = bw_client_stats {
            size,
            made,
            answered,
            refused,
            failed,
            in_flight,
            posts_taken,
            posts_lost,
            unsent,
            rings,
            parks,
        };
        // SAFETY: it has `size` bytes, as the caller promises.
        unsafe { extensible::write(stats, size, &counted) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, get) }
}
