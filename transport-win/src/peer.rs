#![allow(unsafe_code, reason = "processes and tokens of others")]
//! Who is at the other end of a pipe.

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;
use std::sync::OnceLock;

use bellwire_shm::platform;
use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::Security::{RevertToSelf, TOKEN_QUERY};
use windows_sys::Win32::System::Pipes::{
    GetNamedPipeClientProcessId, GetNamedPipeServerProcessId, ImpersonateNamedPipeClient,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentThread, OpenProcess, OpenThreadToken, PROCESS_DUP_HANDLE,
    PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE,
};

use crate::Windows;
use crate::handle::{made, own_process};
use crate::pass::Channel;
use crate::pipe::End;
use crate::prelude::*;
pub use crate::security::{Sid, SidError};
/// The name that every transport has for a user.
pub type User = Sid;
/// A group of users.
pub type Group = Sid;
use crate::{OsError, clock, poll, security};

/// Who is at the other end, according to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The process that opened its end of the pipe.
    pub pid: u32,
    /// The user that the process acts as.
    pub user: Sid,
}

/// Why a client's identity is not accepted, or why it cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// It hides its token.
    #[error("the client's identity is not available: {source}")]
    Token {
        /// The error from the system.
        source: OsError,
    },
    /// The process that it claims to be acts as another user.
    #[error("the client's token is of {token}, but its process runs as another user")]
    Differs {
        /// The user of its token.
        token: Sid,
    },
    /// This process may not put handles into the client's process.
    #[error(
        "the provider may not open the client's process: {source}; run both as one user, or the provider elevated"
    )]
    Process {
        /// The error from the system.
        source: OsError,
    },
}

/// What this process does with another one besides waiting for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessAccess {
    /// Only waits for its end.
    Watch,
    /// Puts handles into its table and takes handles from it, as a server does with its clients.
    Handles,
}

/// A process of this machine. Its number is not reused while this object lives.
#[derive(Debug)]
pub struct Process {
    handle: OwnedHandle,
    pid: u32,
}

/// Returns the user that this process acts as.
///
/// # Errors
/// None in a correct program.
pub fn own_user() -> Result<Sid, OsError> {
    static USER: OnceLock<Sid> = OnceLock::new();
    if let Some(user) = USER.get() {
        return Ok(*user);
    }
    let user = security::user_of_process(own_process())?;
    Ok(*USER.get_or_init(|| user))
}

/// Opens the process at the other end of a pipe, which is still running.
///
/// # Errors
/// When this process may not open the other one with this access, or that one has ended.
pub fn process(channel: &Channel, access: ProcessAccess) -> Result<Process, OsError> {
    let process = Process::open(pid_of(channel)?, access)?;
    // The number may have been reused since the pipe was opened, but not if the other end is still open now: only that
    // process holds it.
    channel.pipe().check()?;
    Ok(process)
}

/// Returns the user of the token with which the client opened the pipe, which it cannot forge
/// ([`ImpersonateNamedPipeClient`](https://learn.microsoft.com/en-us/windows/win32/api/namedpipeapi/nf-namedpipeapi-impersonatenamedpipeclient)).
/// The server must have received a message from it before.
///
/// # Errors
/// When no message was received, or the client hides its token.
pub fn client_user(channel: &Channel) -> Result<Sid, OsError> {
    let pipe = channel.pipe().as_handle().as_raw_handle();
    // SAFETY: the handle is open. Until it is reverted below this thread has the client's rights, and does
    // nothing but look at its own token.
    if unsafe { ImpersonateNamedPipeClient(pipe) } == 0 {
        return Err(OsError::last());
    }
    let token = thread_token();
    // SAFETY: ends what was begun above.
    if unsafe { RevertToSelf() } == 0 {
        // Continuing with another user's rights would be worse than ending the process.
        std::process::abort();
    }
    security::user_of_token(&token?)
}

/// Returns the owner of the name to which a client connected.
///
/// # Errors
/// None in a correct program.
pub fn owner(channel: &Channel) -> Result<Sid, OsError> {
    security::owner_of(channel.pipe().as_handle())
}

impl Sid {
    /// Returns the user that this process acts as.
    pub fn own() -> Self {
        // If the user is unknown: nobody, who owns nothing.
        own_user().unwrap_or(Self::nobody())
    }

    /// Returns whether this process acts as that user.
    pub fn is_own(self) -> bool {
        own_user() == Ok(self)
    }

    /// Returns whether this is the system itself, which may do anything on this machine.
    pub fn is_system(self) -> bool {
        self == Self::local_system()
    }
}

impl platform::Credentials<Windows> for Credentials {
    type ConfirmError = ConfirmError;

    /// Returns who opened the other end of a pipe
    /// ([`GetNamedPipeClientProcessId`](https://learn.microsoft.com/en-us/windows/win32/api/winbase/nf-winbase-getnamedpipeclientprocessid)).
    ///
    /// The other end supplied the process number when it opened the pipe and can forge it. So a server never admits a client by
    /// it alone; it also checks [`client_user`] once the client has sent a message.
    ///
    /// # Errors
    /// When this process may not query the other one, or that one has ended.
    fn of(channel: &Channel) -> Result<Self, OsError> {
        let pid = pid_of(channel)?;
        let process = Process::open(pid, ProcessAccess::Watch)?;
        let user = security::user_of_process(process.as_handle())?;
        Ok(Credentials { pid, user })
    }

    fn pid(&self) -> Option<u32> {
        Some(self.pid)
    }

    fn user(&self) -> User {
        self.user
    }

    fn is_among(&self, users: &[User]) -> bool {
        self.user.is_own() || self.user.is_system() || users.contains(&self.user)
    }

    fn confirm(self, channel: &mut Channel) -> Result<Self, ConfirmError> {
        let token = client_user(channel).map_err(|source| ConfirmError::Token { source })?;
        if token != self.user {
            return Err(ConfirmError::Differs { token });
        }
        let process = process(channel, ProcessAccess::Handles);
        channel.reach(process.map_err(|source| ConfirmError::Process { source })?);
        Ok(self)
    }
}

impl Process {
    /// Opens a process by its number
    /// ([`OpenProcess`](https://learn.microsoft.com/en-us/windows/win32/api/processthreadsapi/nf-processthreadsapi-openprocess)).
    ///
    /// # Errors
    /// When there is no such process, or this one may not open it.
    pub fn open(pid: u32, access: ProcessAccess) -> Result<Self, OsError> {
        let rights = match access {
            ProcessAccess::Watch => 0,
            ProcessAccess::Handles => PROCESS_DUP_HANDLE,
        };
        let rights = PROCESS_SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION | rights;
        // SAFETY: no memory of this process is involved.
        let handle = unsafe { OpenProcess(rights, 0, pid) };
        // SAFETY: made just now; nobody else knows it.
        Ok(Self { handle: unsafe { made(handle) }?, pid })
    }

    /// Returns its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl platform::Process<Windows> for Process {
    fn watch(channel: &Channel) -> Option<Self> {
        if channel.process().is_some() {
            return None;
        }
        process(channel, ProcessAccess::Watch).ok()
    }

    fn has_exited(&self) -> bool {
        matches!(poll::wait(&[self.as_handle()], Some(clock::now())), Ok(Some(0)))
    }
}

impl AsHandle for Process {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.handle.as_handle()
    }
}

fn pid_of(channel: &Channel) -> Result<u32, OsError> {
    let (pipe, mut pid) = (channel.pipe().as_handle().as_raw_handle(), 0);
    let done = match channel.pipe().end() {
        // SAFETY: the handle is open; `pid` is a live local.
        End::Server => unsafe { GetNamedPipeClientProcessId(pipe, &mut pid) },
        // SAFETY: as above.
        End::Client => unsafe { GetNamedPipeServerProcessId(pipe, &mut pid) },
    };
    if done == 0 { Err(OsError::last()) } else { Ok(pid) }
}

fn thread_token() -> Result<OwnedHandle, OsError> {
    let mut token: HANDLE = ptr::null_mut();
    // SAFETY: a pseudo-handle, always valid.
    let thread = unsafe { GetCurrentThread() };
    // SAFETY: `token` is a live local. It is opened by the process's rights, not by the client's.
    let _ = unsafe { OpenThreadToken(thread, TOKEN_QUERY, 1, &mut token) };
    // SAFETY: made just now, if at all; nobody else knows it.
    unsafe { made(token) }
}
