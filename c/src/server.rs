//! Servers and their handlers.

use std::ffi::{c_char, c_int, c_void};

use bellwire::{Caller, HandlerError, Server, ServerBuilder, ServerStats};

use crate::bytes::{bytes, free, give, object, put, shared, text, writable};
use crate::config::{self, bw_contract, bw_server_config};
use crate::error::{Failure, bw_error, run};
use crate::extensible;
use crate::publisher::bw_publisher;

/// A server that is being set up. By one thread at a time.
pub struct bw_server_builder(pub(crate) ServerBuilder);

/// A server that runs: one thread for all sessions, and the configured workers. Any number of threads may ask for its
/// counters at once.
pub struct bw_server(Server);

/// The caller of the running handler.
pub struct bw_caller(*const Caller);

/// The answer of a handler, while it runs.
pub struct bw_answer {
    bytes: Vec<u8>,
    failed: Option<String>,
}

/// Counters of a server: accepted = answered + refused + lost + posted + in flight. These tell whether it serves, and what it denied its
/// clients; `bellwire stat` shows all others of the running process.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct bw_server_stats {
    /// sizeof(bw_server_stats), set by the caller.
    pub size: usize,
    /// Open sessions.
    pub sessions: u64,
    /// Clients admitted so far.
    pub admitted: u64,
    /// Clients that were refused, or did not finish the handshake.
    pub handshakes_failed: u64,
    /// Requests taken; a batch counts as one.
    pub accepted: u64,
    /// Requests that a handler answered or failed.
    pub answered: u64,
    /// Requests answered without running a handler.
    pub refused: u64,
    /// Requests whose client went away before they were answered.
    pub lost: u64,
    /// Of answered, those that the handler failed, or whose answer could not be sent.
    pub errors: u64,
    /// Posts that were handled or refused.
    pub posted: u64,
    /// Sessions closed because the client violated the protocol.
    pub poisoned: u64,
    /// Sessions closed because the client took nothing of what was published for it for too long.
    pub stalled: u64,
    /// How often this process had no descriptor left to accept a client, follow its lane, or answer it.
    pub out_of_descriptors: u64,
    /// How often this process had no memory or mappings left for that.
    pub out_of_memory: u64,
    /// How often a client was denied memory because its user had reached the quota.
    pub over_quota: u64,
}

/// Handles a request: `request` has `len` bytes, until it returns. Answers with bw_answer_write and returns 0, or returns
/// anything else: then the client gets BW_E_HANDLER with the text of bw_answer_fail and with what it returned as `handler_code`. It runs on the server's thread, or on any
/// number of workers at once. It must return: longjmp, exceptions and cancelling the thread are undefined. In a batch it runs for
/// every item; an answer that no longer fits the message becomes BW_E_TOO_LARGE of that item, which always fits.
pub type bw_handler = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        caller: *const bw_caller,
        request: *const c_void,
        len: usize,
        answer: *mut bw_answer,
    ) -> c_int,
>;

/// What a handler is called with, and what frees it. C says which threads may use it.
struct User {
    pointer: *mut c_void,
    free: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

// SAFETY: the documentation of `bw_server_builder_serve` has the caller promise it.
unsafe impl Send for User {}
// SAFETY: likewise.
unsafe impl Sync for User {}

impl User {
    fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: nobody uses it any more, and the caller said how it is freed.
            unsafe { free(self.pointer) }
        }
    }
}

/// Begins a server whose services listen in the run dir `dir`; NULL: BELLWIRE_RUN_DIR or the default. `config` may be NULL.
/// Start it with bw_server_builder_start, or free it with bw_server_builder_free.
///
/// # Safety
/// Pointers are NULL where that is allowed, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_builder_new(
    dir: *const c_char,
    config: *const bw_server_config,
    out: *mut *mut bw_server_builder,
    error: *mut bw_error,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let dir = unsafe { config::run_dir(dir) }?;
        // SAFETY: as the caller promises.
        let config = unsafe { config::server(config) }?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_server_builder(Server::builder_with_config(&dir, config))) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, create) }
}

/// Frees a builder, and the names that it has taken. NULL is fine.
///
/// # Safety
/// NULL, or a builder that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_builder_free(builder: *mut bw_server_builder) {
    // SAFETY: as the caller promises.
    unsafe { free(builder) }
}

/// Serves a service with a handler, which gets `user`. `user_free`, which may be NULL, is called with `user` once no handler
/// can run any more, or if this function fails.
///
/// # Safety
/// A builder, a contract, `user` may be used by the threads that run handlers, and other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_builder_serve(
    builder: *mut bw_server_builder,
    contract: *const bw_contract,
    handler: bw_handler,
    user: *mut c_void,
    user_free: Option<unsafe extern "C" fn(user: *mut c_void)>,
    error: *mut bw_error,
) -> c_int {
    let user = User { pointer: user, free: user_free };
    let serve = || {
        // SAFETY: as the caller promises.
        let builder = unsafe { object(builder) }?;
        // SAFETY: as the caller promises.
        let contract = unsafe { config::contract(contract) }?;
        let handler = handler.ok_or_else(|| Failure::invalid("a handler is NULL"))?;
        builder.0.serve_bytes(contract, move |caller, request, into| {
            let mut answer = bw_answer { bytes: std::mem::take(into), failed: None };
            let (bytes, len) = (request.as_ptr().cast(), request.len());
            let caller = bw_caller(caller);
            // SAFETY: as the caller promises; what it is given lives while it runs.
            let code =
                unsafe { handler(user.pointer(), &raw const caller, bytes, len, &raw mut answer) };
            *into = answer.bytes;
            match (code, answer.failed) {
                (0, None) => Ok(()),
                (0, Some(reason)) => Err(HandlerError::new(reason)),
                (code, reason) => {
                    let reason = reason.unwrap_or_else(|| format!("the handler returned {code}"));
                    Err(HandlerError::with_code(code.cast_unsigned(), reason))
                }
            }
        })?;
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, serve) }
}

/// Serves snapshots, and writes their publisher to `out`. Free it with bw_publisher_free, before or after the server.
///
/// # Safety
/// A builder, a contract, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_builder_publish(
    builder: *mut bw_server_builder,
    contract: *const bw_contract,
    out: *mut *mut bw_publisher,
    error: *mut bw_error,
) -> c_int {
    let publish = || {
        // SAFETY: as the caller promises.
        let builder = unsafe { object(builder) }?;
        // SAFETY: as the caller promises.
        let contract = unsafe { config::contract(contract) }?;
        writable(out)?;
        let publisher = builder.0.publish_dynamic(contract)?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_publisher(publisher)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, publish) }
}

/// Starts the server. The builder is freed, also if this fails.
///
/// # Safety
/// A builder that is never used again, `out` may be written, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_builder_start(
    builder: *mut bw_server_builder,
    out: *mut *mut bw_server,
    error: *mut bw_error,
) -> c_int {
    let start = || {
        if builder.is_null() {
            return Err(Failure::invalid("a builder is NULL"));
        }
        // SAFETY: it came from `bw_server_builder_new`, and nobody else uses it any more.
        let builder = unsafe { Box::from_raw(builder) };
        let server = builder.0.start()?;
        // SAFETY: as the caller promises.
        unsafe { give(out, bw_server(server)) }
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, start) }
}

/// Stops the server and frees it: waits for handlers, and for clients to take their answers, at most for the configured
/// time. From a handler of this server it returns at once, and the server stops as soon as that has returned. NULL
/// is fine.
///
/// # Safety
/// NULL, or a server that is never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_stop(server: *mut bw_server) {
    // SAFETY: as the caller promises.
    unsafe { free(server) }
}

/// Writes the counters of all services of the server. Any thread may call it at any time.
///
/// # Safety
/// A server, `stats` with its size set, `error` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_server_get_stats(
    server: *const bw_server,
    stats: *mut bw_server_stats,
    error: *mut bw_error,
) -> c_int {
    let get = || {
        // SAFETY: as the caller promises.
        let server = unsafe { shared(server) }?;
        // SAFETY: as the caller promises.
        let size = unsafe { extensible::size(stats) }?;
        let ServerStats {
            sessions,
            admitted,
            handshakes_failed,
            accepted,
            answered,
            refused,
            lost,
            errors,
            posted,
            poisoned,
            stalled,
            out_of_descriptors,
            out_of_memory,
            over_quota,
            ..
        } = server.0.stats();
        let counted = bw_server_stats {
            size,
            sessions,
            admitted,
            handshakes_failed,
            accepted,
            answered,
            refused,
            lost,
            errors,
            posted,
            poisoned,
            stalled,
            out_of_descriptors,
            out_of_memory,
            over_quota,
        };
        // SAFETY: it has `size` bytes, as the caller promises.
        unsafe { extensible::write(stats, size, &counted) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { run(error, get) }
}

/// Appends to the answer.
///
/// # Safety
/// The answer that the handler was given, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_answer_write(
    answer: *mut bw_answer,
    data: *const c_void,
    len: usize,
) -> c_int {
    let write = || {
        // SAFETY: as the caller promises.
        let answer = unsafe { object(answer) }?;
        // SAFETY: as the caller promises.
        answer.bytes.extend_from_slice(unsafe { bytes(data, len) }?);
        Ok(())
    };
    // SAFETY: no error is asked for.
    unsafe { run(std::ptr::null_mut(), write) }
}

/// Writes `len` zeroed bytes of the answer to `data`, to be filled in place until the next function that is called with it.
///
/// # Safety
/// The answer that the handler was given, `data` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_answer_reserve(
    answer: *mut bw_answer,
    len: usize,
    data: *mut *mut c_void,
) -> c_int {
    let reserve = || {
        // SAFETY: as the caller promises.
        let answer = unsafe { object(answer) }?;
        writable(data)?;
        let before = answer.bytes.len();
        let more = answer.bytes.try_reserve(len);
        more.map_err(|error| Failure::of(bellwire::ErrorKind::System, error.to_string()))?;
        answer.bytes.resize(before + len, 0);
        let reserved = answer.bytes.as_mut_ptr().wrapping_add(before).cast();
        // SAFETY: as the caller promises.
        unsafe { put(data, reserved) }
    };
    // SAFETY: no error is asked for.
    unsafe { run(std::ptr::null_mut(), reserve) }
}

/// Has the request fail with a sentence for the client's operator.
///
/// # Safety
/// The answer that the handler was given, `reason` is terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_answer_fail(answer: *mut bw_answer, reason: *const c_char) -> c_int {
    let fail = || {
        // SAFETY: as the caller promises.
        let answer = unsafe { object(answer) }?;
        // SAFETY: as the caller promises.
        answer.failed = Some(unsafe { text(reason) }?.unwrap_or("the handler failed").to_owned());
        Ok(())
    };
    // SAFETY: no error is asked for.
    unsafe { run(std::ptr::null_mut(), fail) }
}

/// # Safety
/// NULL, or the caller that the handler was given, while it runs.
unsafe fn known<'a>(caller: *const bw_caller) -> Option<&'a Caller> {
    // SAFETY: as the caller promises.
    let caller = unsafe { caller.as_ref() }?;
    // SAFETY: it lives as long as the handler runs.
    unsafe { caller.0.as_ref() }
}

/// Returns 1 when the answer is not wanted any more, else 0: a slow handler checks this often, at one load each.
///
/// # Safety
/// NULL, or the caller that the handler was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_caller_is_abandoned(caller: *const bw_caller) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { known(caller) }.is_some_and(Caller::is_abandoned).into()
}

/// Returns the calling process's id; 0 where its pid namespace is not visible from here.
///
/// # Safety
/// NULL, or the caller that the handler was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_caller_pid(caller: *const bw_caller) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { known(caller) }.and_then(|caller| caller.pid).unwrap_or(0)
}

/// Returns the calling process's user; 2^32 - 1 for NULL.
///
/// # Safety
/// NULL, or the caller that the handler was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_caller_uid(caller: *const bw_caller) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { known(caller) }.map_or(u32::MAX, |caller| caller.user.uid())
}
