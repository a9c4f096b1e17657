//! Errors.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bellwire::{
    CallError, ErrorKind, Executed, Fault, PublishError, RefreshError, ServeError, Shortage,
    SubscribeError,
};

use crate::extensible;

/// Success.
pub const BW_OK: c_int = 0;
/// No provider of the service listens.
pub const BW_E_ABSENT: c_int = 1;
/// The provider refused this client.
pub const BW_E_REFUSED: c_int = 2;
/// The two ends differ in protocol version or in the service's types.
pub const BW_E_INCOMPATIBLE: c_int = 3;
/// The message exceeds a limit.
pub const BW_E_TOO_LARGE: c_int = 4;
/// The lane is full, or nothing has arrived, and the caller did not want to wait; or the provider is at capacity, or has published
/// nothing yet.
pub const BW_E_WOULD_BLOCK: c_int = 5;
/// The deadline passed.
pub const BW_E_DEADLINE: c_int = 6;
/// Another thread cancelled.
pub const BW_E_CANCELLED: c_int = 7;
/// The provider's process ended or closed the session.
pub const BW_E_PEER_GONE: c_int = 8;
/// The provider violated the protocol.
pub const BW_E_PROTOCOL_VIOLATION: c_int = 9;
/// The provider's handler answered with an error.
pub const BW_E_HANDLER: c_int = 10;
/// A message could not be decoded.
pub const BW_E_MALFORMED: c_int = 11;
/// A system call failed, or a resource is missing.
pub const BW_E_SYSTEM: c_int = 12;
/// The provider is stopping.
pub const BW_E_STOPPING: c_int = 13;
/// The provider closed the session because this end took nothing for too long.
pub const BW_E_STALLED: c_int = 14;
/// The object belongs to the process that this one was forked from.
pub const BW_E_FORKED: c_int = 15;
/// An argument is NULL, too short, out of range, or not UTF-8, or the object's configuration excludes the function: a mistake of
/// the calling program.
pub const BW_E_INVALID: c_int = 100;
/// The library failed in a way that is a bug in it. Free the object; the process goes on.
pub const BW_E_PANIC: c_int = 101;

/// The caller has to act: its request, its configuration, or its deadline.
pub const BW_FAULT_CALLER: u8 = 0;
/// The process at the other end.
pub const BW_FAULT_PEER: u8 = 1;
/// This machine: a limit, a missing kernel feature, a full disk.
pub const BW_FAULT_SYSTEM: u8 = 2;
/// Nobody: the service is absent now, or the caller cancelled.
pub const BW_FAULT_NOBODY: u8 = 3;

/// Why a function failed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bw_error {
    /// sizeof(bw_error), set by the caller: BW_ERROR_INIT does.
    pub size: usize,
    /// One of BW_E_….
    pub code: c_int,
    /// Who has to act: one of BW_FAULT_….
    pub fault: u8,
    /// 0: no handler ran for the request, nor will; resending is safe. 1: one may have run.
    pub executed: u8,
    /// With BW_E_HANDLER: the code that the handler gave, or 0.
    pub handler_code: u32,
    /// A sentence for an operator, with the next step; terminated UTF-8, cut to fit.
    pub message: [c_char; 492],
}

/// A failure on its way to C.
pub(crate) struct Failure {
    code: c_int,
    fault: u8,
    executed: u8,
    handler_code: u32,
    message: String,
}

impl Failure {
    #[cold]
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        let fault = BW_FAULT_CALLER;
        Self { code: BW_E_INVALID, fault, ..Self::of(ErrorKind::Refused, message) }
    }

    pub(crate) fn of(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            code: kind.code().into(),
            fault: fault(kind.fault()),
            executed: 0,
            handler_code: 0,
            message: message.into(),
        }
    }

    fn panicked() -> Self {
        let message =
            "the library panicked, which is a bug: free the object, and report what was printed";
        Self { code: BW_E_PANIC, executed: 1, ..Self::of(ErrorKind::System, message) }
    }

    /// Fills in what C passed for it, as far as its size says that it has room.
    ///
    /// # Safety
    /// `error` is null, or points to as many bytes as its first field says, which may be written.
    unsafe fn write(&self, error: *mut bw_error) {
        if error.is_null() {
            return;
        }
        // SAFETY: as the caller promises.
        let Ok(size) = (unsafe { extensible::size(error) }) else { return };
        let mut message = [0; 492];
        let cut = self.message.floor_char_boundary(message.len() - 1);
        for (to, from) in message.iter_mut().zip(self.message.bytes().take(cut)) {
            #[allow(
                clippy::cast_possible_wrap,
                clippy::allow_attributes,
                reason = "C's char may be signed"
            )]
            {
                *to = from as c_char;
            }
        }
        let Self { code, fault, executed, handler_code, .. } = *self;
        let filled = bw_error { size, code, fault, executed, handler_code, message };
        // SAFETY: it has `size` bytes, as the caller promises.
        unsafe { extensible::write(error, size, &filled) };
    }
}

fn fault(fault: Fault) -> u8 {
    match fault {
        Fault::Caller => BW_FAULT_CALLER,
        Fault::Peer => BW_FAULT_PEER,
        Fault::System => BW_FAULT_SYSTEM,
        Fault::Nobody => BW_FAULT_NOBODY,
    }
}

impl From<CallError> for Failure {
    #[cold]
    fn from(error: CallError) -> Self {
        let executed = u8::from(error.executed() == Executed::Maybe);
        let handler_code = match error {
            CallError::Handler { code, .. } => code.unwrap_or(0),
            _ => 0,
        };
        let fault = fault(error.fault());
        Self { fault, executed, handler_code, ..Self::of(error.kind(), error.to_string()) }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Name { .. } => Self::invalid(error.to_string()),
            error => Self::of(error.kind(), error.to_string()),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        Self::of(error.kind(), error.to_string())
    }
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Call(error) => error.into(),
            error => Self::of(error.kind(), error.to_string()),
        }
    }
}

impl From<Shortage> for Failure {
    fn from(shortage: Shortage) -> Self {
        Self::of(ErrorKind::System, shortage.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        // EINVAL, ENOSYS and others of the kernel have these kinds, too, and are no mistake of the calling program.
        let is_of_kernel = error.raw_os_error().is_some();
        match error.kind() {
            Io::NotConnected => Self::of(ErrorKind::Absent, error.to_string()),
            // The only one: the descriptor of a session's doorbell.
            Io::Unsupported if !is_of_kernel => Self::invalid(
                "a futex has no descriptor: set the configuration's doorbell to BW_DOORBELL_EVENTFD or BW_DOORBELL_SOCKET",
            ),
            Io::InvalidInput if !is_of_kernel => Self::invalid(error.to_string()),
            _ => Self::of(ErrorKind::System, error.to_string()),
        }
    }
}

impl<E: std::error::Error + 'static> From<RefreshError<E>> for Failure {
    fn from(error: RefreshError<E>) -> Self {
        match error {
            RefreshError::Call(error) => error.into(),
            error => Self::of(error.kind(), error.to_string()),
        }
    }
}

/// Runs the body of a function of the library.
///
/// # Safety
/// As [`Failure::write`].
#[inline]
pub(crate) unsafe fn run(
    error: *mut bw_error,
    body: impl FnOnce() -> Result<(), Failure>,
) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return BW_OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::panicked(),
    };
    // SAFETY: as the caller promises.
    unsafe { failure.write(error) };
    failure.code
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_of_the_kernel_is_no_mistake_of_the_calling_program() {
        // EINVAL, EOPNOTSUPP, ENOSYS, ENOTCONN
        for (number, expected) in
            [(22, BW_E_SYSTEM), (95, BW_E_SYSTEM), (38, BW_E_SYSTEM), (107, BW_E_ABSENT)]
        {
            let failure = Failure::from(io::Error::from_raw_os_error(number));
            assert_eq!((number, failure.code), (number, expected));
        }
        for kind in [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported] {
            let failure = Failure::from(io::Error::from(kind));
            assert_eq!((failure.code, failure.fault), (BW_E_INVALID, BW_FAULT_CALLER));
        }
        assert_eq!(Failure::from(io::Error::other("full")).code, BW_E_SYSTEM);
    }
}
