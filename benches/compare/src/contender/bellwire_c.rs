#![allow(unsafe_code, reason = "calls the functions of the C library as a C program does")]
//! Bellwire by the C library: what `bellwire` does, through `libbellwire`'s functions.

use std::ffi::{CStr, CString, c_int, c_void};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::slice;

use bellwire_c::client::{
    bw_client_call, bw_client_flush, bw_client_free, bw_client_get_stats, bw_client_new,
    bw_client_post, bw_client_wait_available,
};
use bellwire_c::config::{BW_BACKPRESSURE_GROW, bw_client_config_init};
use bellwire_c::pipeline::{bw_client_submit, bw_client_wait_reply};
use bellwire_c::server::{
    bw_answer_reserve, bw_server_builder_new, bw_server_builder_serve, bw_server_builder_start,
    bw_server_stop,
};
use bellwire_c::{
    bw_answer, bw_bytes, bw_caller, bw_client, bw_client_config, bw_client_stats, bw_contract,
    bw_error, bw_reply, bw_server,
};

use super::{Client, Contender, ContenderInfo, Counters, Server, put};
use crate::Outcome;
use crate::handler::Handler;
use crate::load::{Case, Load, Work};
use crate::measure::Measure;

/// This project, from C.
pub(super) struct BellwireC;

/// How long an answer is waited for, in nanoseconds.
const ANSWERS_WITHIN: u64 = 5_000_000_000;

type Call = unsafe extern "C" fn(
    *mut bw_client,
    *const c_void,
    usize,
    u64,
    *mut bw_bytes,
    *mut bw_error,
) -> c_int;

struct Running(*mut bw_server);

struct Caller {
    client: *mut bw_client,
    /// The function as a C program has it: known when it is linked, and not before.
    call: Call,
    error: Box<bw_error>,
}

fn contract() -> bw_contract {
    bw_contract {
        size: size_of::<bw_contract>(),
        service: c"bench-c".as_ptr(),
        version: 1,
        flags: 0,
        schema: 0,
    }
}

fn no_error() -> Box<bw_error> {
    let size = size_of::<bw_error>();
    Box::new(bw_error { size, code: 0, fault: 0, executed: 0, handler_code: 0, message: [0; 492] })
}

fn text(case: &Case) -> Outcome<CString> {
    Ok(CString::new(case.dir().as_os_str().as_bytes())?)
}

fn ok(code: c_int, error: &bw_error) -> Outcome<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library terminates it.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    Err(message.to_string_lossy().into_owned().into())
}

/// Answers as [`Handler::answer`] does, or takes a message.
unsafe extern "C" fn handle(
    user: *mut c_void,
    _: *const bw_caller,
    request: *const c_void,
    len: usize,
    answer: *mut bw_answer,
) -> c_int {
    // SAFETY: it points to the two that `serve` leaked.
    let (handler, is_one_way) = unsafe { *user.cast::<(Handler, bool)>() };
    // SAFETY: the library lends `len` bytes.
    let request = unsafe { slice::from_raw_parts(request.cast::<u8>(), len) };
    if is_one_way {
        handler.take(request);
        return 0;
    }
    let mut data = ptr::null_mut();
    // SAFETY: the library's answer, and a pointer of this frame.
    let code = unsafe { bw_answer_reserve(answer, len, &raw mut data) };
    if code == 0 {
        // SAFETY: it has reserved `len` bytes.
        let bytes = unsafe { slice::from_raw_parts_mut(data.cast::<u8>(), len) };
        bytes.copy_from_slice(request);
        handler.answer(bytes);
    }
    code
}

impl Contender for BellwireC {
    const NAME: &'static str = "bellwire-c";

    fn about() -> ContenderInfo {
        ContenderInfo::of_this_project(
            "libbellwire's functions, as C programs call them, with the library's defaults; a pipeline's lane grows \
             at once (BW_BACKPRESSURE_GROW)",
        )
    }

    fn refuses(load: &Load) -> Option<&'static str> {
        match load.work {
            Work::Calls { .. } | Work::Stream { .. } | Work::OneWay { .. } | Work::Connect => None,
            _ => Some("has calls and one-way messages here"),
        }
    }

    fn serve(case: &Case, handler: Handler) -> Outcome<impl Server> {
        let (dir, mut error) = (text(case)?, no_error());
        let (mut builder, mut server) = (ptr::null_mut(), ptr::null_mut());
        let is_one_way = case.load.is_one_way();
        let contract = contract();
        // The process serves until it ends.
        let user = Box::into_raw(Box::new((handler, is_one_way)));
        // SAFETY: a text that lives, no configuration, and pointers of this frame.
        let code = unsafe {
            bw_server_builder_new(dir.as_ptr(), ptr::null(), &raw mut builder, &raw mut *error)
        };
        ok(code, &error)?;
        // SAFETY: a builder, a contract, a handler that reads its user only, and an error.
        let code = unsafe {
            bw_server_builder_serve(
                builder,
                &raw const contract,
                Some(handle),
                user.cast(),
                None,
                &raw mut *error,
            )
        };
        ok(code, &error)?;
        // SAFETY: a builder that is not used again.
        let code = unsafe { bw_server_builder_start(builder, &raw mut server, &raw mut *error) };
        ok(code, &error)?;
        Ok(Running(server))
    }

    fn measure(case: &Case, measure: Measure<'_>) -> Outcome<()> {
        measure.run(|| Caller::connect(case))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        unsafe { bw_server_stop(self.0) };
    }
}

/// The header has no rings and parks of servers.
impl Server for Running {}

impl Caller {
    fn connect(case: &Case) -> Outcome<Self> {
        let (dir, mut error, mut client) = (text(case)?, no_error(), ptr::null_mut());
        // SAFETY: integers, and pointers that may be null.
        let mut config: bw_client_config = unsafe { std::mem::zeroed() };
        // SAFETY: it may be written.
        unsafe { bw_client_config_init(&raw mut config) };
        if case.load.depth() > 1 {
            config.backpressure = BW_BACKPRESSURE_GROW;
        }
        let contract = contract();
        // SAFETY: a text, a contract and a configuration that live, and pointers of this frame.
        let code = unsafe {
            bw_client_new(
                dir.as_ptr(),
                &raw const contract,
                &raw const config,
                &raw mut client,
                &raw mut *error,
            )
        };
        ok(code, &error)?;
        let mut caller = Self { client, call: black_box(bw_client_call as Call), error };
        // SAFETY: a client.
        let code =
            unsafe { bw_client_wait_available(caller.client, ANSWERS_WITHIN, caller.error()) };
        ok(code, &caller.error)?;
        Ok(caller)
    }

    fn error(&mut self) -> *mut bw_error {
        &raw mut *self.error
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        unsafe { bw_client_free(self.client) };
    }
}

impl Client for Caller {
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        let mut lent = bw_bytes { data: ptr::null(), len: 0 };
        let (bytes, len) = (request.as_ptr().cast(), request.len());
        let (call, client, error) = (self.call, self.client, self.error());
        // SAFETY: a client, `len` bytes, and structs of this frame.
        let code = unsafe { call(client, bytes, len, ANSWERS_WITHIN, &raw mut lent, error) };
        ok(code, &self.error)?;
        take(&lent, answer)
    }

    #[inline]
    fn submit(&mut self, request: &[u8]) -> Outcome<()> {
        let (bytes, len) = (request.as_ptr().cast(), request.len());
        let (client, error) = (self.client, self.error());
        // SAFETY: a client and `len` bytes.
        let code = unsafe { bw_client_submit(client, bytes, len, ptr::null_mut(), error) };
        ok(code, &self.error)
    }

    #[inline]
    fn reply(&mut self, answer: &mut [u8]) -> Outcome<usize> {
        let answer_of = bw_bytes { data: ptr::null(), len: 0 };
        let mut reply = bw_reply { ticket: 0, code: 0, answer: answer_of };
        let to = &raw mut reply;
        // SAFETY: a client, and a struct of this frame.
        let code = unsafe { bw_client_wait_reply(self.client, ANSWERS_WITHIN, to, self.error()) };
        ok(code, &self.error)?;
        ok(reply.code, &self.error)?;
        take(&reply.answer, answer)
    }

    #[inline]
    fn post(&mut self, message: &[u8]) -> Outcome<()> {
        let (bytes, len) = (message.as_ptr().cast(), message.len());
        // SAFETY: a client and `len` bytes.
        let code = unsafe { bw_client_post(self.client, bytes, len, self.error()) };
        ok(code, &self.error)
    }

    fn finish_posts(&mut self) -> Outcome<()> {
        // SAFETY: a client.
        let code = unsafe { bw_client_flush(self.client, ANSWERS_WITHIN, self.error()) };
        ok(code, &self.error)
    }

    fn counters(&mut self) -> Counters {
        let mut stats =
            bw_client_stats { size: size_of::<bw_client_stats>(), ..bw_client_stats::default() };
        // SAFETY: a client, and a struct with its size.
        let code = unsafe { bw_client_get_stats(self.client, &raw mut stats, self.error()) };
        if code != 0 {
            return Counters::default();
        }
        Counters::of_waits(stats.rings, stats.parks)
    }
}

/// The answer that the library has lent.
#[inline]
fn take(lent: &bw_bytes, answer: &mut [u8]) -> Outcome<usize> {
    // SAFETY: the library lends them until the next function that is called with this client.
    put(unsafe { slice::from_raw_parts(lent.data.cast::<u8>(), lent.len) }, answer)
}
