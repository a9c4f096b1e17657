#![allow(unsafe_code, reason = "security descriptors, tokens and SIDs, which the system allocates")]
//! Who a process acts as, and who may do what with an object.

use std::ffi::c_void;
use std::fmt;
use std::mem::{align_of, size_of};
use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::str::FromStr;

use windows_sys::Win32::Foundation::{ERROR_SUCCESS, HANDLE, HLOCAL, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo,
    SDDL_REVISION_1, SE_KERNEL_OBJECT,
};
use windows_sys::Win32::Security::{
    GetTokenInformation, OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID,
    SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::System::Threading::OpenProcessToken;

use crate::OsError;

/// The longest `TOKEN_USER`: the struct and a SID of 15 parts (68 bytes).
const USER_WORDS: usize = 16;

/// A user or a group, as text: `S-1-5-21-…`
/// ([security identifiers](https://learn.microsoft.com/en-us/windows/win32/secauthz/sid-components)).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sid(Box<str>);

/// Text that is no security identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a security identifier reads S-1-5-… with up to 15 numbers: see whoami /user")]
pub struct SidError;

/// Memory that the system allocated for this process (`LocalAlloc`).
struct Local<T>(*mut T);

/// Who may do what with an object.
pub(crate) struct Descriptor(Local<c_void>);

impl Sid {
    /// The system itself: `S-1-5-18`.
    pub fn local_system() -> Self {
        Self("S-1-5-18".into())
    }

    /// The administrators of this machine: `S-1-5-32-544`. Objects that an elevated process makes may
    /// belong to them.
    pub fn administrators() -> Self {
        Self("S-1-5-32-544".into())
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// # Safety
    /// `sid` points to a SID.
    unsafe fn from_raw(sid: PSID) -> Result<Self, OsError> {
        let mut text = Local::<u16>(ptr::null_mut());
        // SAFETY: the caller vouches for `sid`; `text` is a live local, and takes what is allocated.
        if unsafe { ConvertSidToStringSidW(sid, &mut text.0) } == 0 {
            return Err(OsError::last());
        }
        let mut units = Vec::new();
        loop {
            // SAFETY: the text ends with a zero, and this stops there.
            let at = unsafe { text.0.add(units.len()) };
            // SAFETY: inside the text.
            match unsafe { at.read() } {
                0 => break,
                unit => units.push(unit),
            }
        }
        Ok(Self(String::from_utf16_lossy(&units).into()))
    }
}

impl FromStr for Sid {
    type Err = SidError;

    fn from_str(text: &str) -> Result<Self, SidError> {
        // What passes here goes into lists of rights: digits and dashes only.
        let parts = text.strip_prefix("S-1-").ok_or(SidError)?;
        let number = |part: &str| {
            (1..=15).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let honest = parts.split('-').all(number) && (2..=16).contains(&parts.split('-').count());
        if honest { Ok(Self(text.into())) } else { Err(SidError) }
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sid({self})")
    }
}

impl Descriptor {
    /// From the text form, which the system's documentation calls SDDL
    /// ([format](https://learn.microsoft.com/en-us/windows/win32/secauthz/security-descriptor-string-format)).
    pub(crate) fn parse(text: &str) -> Result<Self, OsError> {
        let text: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let mut made = Local(ptr::null_mut());
        // SAFETY: `text` ends with a zero; `made` is a live local, and takes what is allocated.
        let done = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &mut made.0,
                ptr::null_mut(),
            )
        };
        if done == 0 { Err(OsError::last()) } else { Ok(Self(made)) }
    }

    /// For a call that makes an object; not to be used after `self`. Child processes do not inherit it.
    pub(crate) fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: u32::try_from(size_of::<SECURITY_ATTRIBUTES>()).unwrap_or(0),
            lpSecurityDescriptor: self.0.0,
            bInheritHandle: 0,
        }
    }
}

/// The user that a process acts as.
pub(crate) fn user_of_process(process: BorrowedHandle<'_>) -> Result<Sid, OsError> {
    let mut token: HANDLE = ptr::null_mut();
    // SAFETY: `token` is a live local.
    if unsafe { OpenProcessToken(process.as_raw_handle(), TOKEN_QUERY, &mut token) } == 0 {
        return Err(OsError::last());
    }
    // SAFETY: made just now; nobody else knows it.
    user_of_token(&unsafe { OwnedHandle::from_raw_handle(token) })
}

/// The user of a token.
pub(crate) fn user_of_token(token: &OwnedHandle) -> Result<Sid, OsError> {
    const { assert!(align_of::<TOKEN_USER>() <= align_of::<u64>()) };
    let mut user = [0_u64; USER_WORDS];
    let bytes = u32::try_from(size_of_val(&user)).unwrap_or(0);
    let mut used = 0;
    // SAFETY: `user` is a live local of `bytes` bytes, aligned for the struct; `used` is one too.
    let done = unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            TokenUser,
            user.as_mut_ptr().cast(),
            bytes,
            &mut used,
        )
    };
    if done == 0 {
        return Err(OsError::last());
    }
    let user = user.as_ptr().cast::<TOKEN_USER>();
    // SAFETY: the system has written the struct.
    let sid = unsafe { (*user).User.Sid };
    // SAFETY: it points to the SID that was written behind the struct, in the same local.
    unsafe { Sid::from_raw(sid) }
}

/// Whom a kernel object belongs to. The handle must grant `READ_CONTROL`.
pub(crate) fn owner_of(object: BorrowedHandle<'_>) -> Result<Sid, OsError> {
    let mut owner: PSID = ptr::null_mut();
    let mut descriptor: Local<c_void> = Local(ptr::null_mut());
    let whole: *mut PSECURITY_DESCRIPTOR = &mut descriptor.0;
    // SAFETY: `owner` and `whole` are live locals; the latter takes what is allocated.
    let error = unsafe {
        GetSecurityInfo(
            object.as_raw_handle(),
            SE_KERNEL_OBJECT,
            OWNER_SECURITY_INFORMATION,
            &mut owner,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            whole,
        )
    };
    if error != ERROR_SUCCESS || owner.is_null() {
        return Err(OsError::new(error));
    }
    // SAFETY: `owner` points into `descriptor`, which lives until the end of this function.
    unsafe { Sid::from_raw(owner) }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: allocated by the system with LocalAlloc for whoever asked, and freed once.
            let _ = unsafe { LocalFree(self.0 as HLOCAL) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sid;

    #[test]
    fn only_identifiers_become_part_of_a_list_of_rights() {
        for text in ["S-1-5-18", "S-1-5-21-3623811015-3361044348-30300820-1013", "S-1-1-0"] {
            assert_eq!(text.parse::<Sid>().unwrap().as_str(), text);
        }
        for text in
            ["", "S-1-", "S-1-5", "S-1-5-", "S-1-5-18)(A;;GA;;;WD", "S-1-5--18", "WD", "s-1-5-18"]
        {
            assert!(text.parse::<Sid>().is_err(), "{text}");
        }
    }
}
