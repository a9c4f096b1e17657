#![allow(unsafe_code, reason = "security descriptors, tokens and SIDs, which the system allocates")]
//! Which user a process acts as, and access rights of objects.

use std::ffi::c_void;
use std::fmt;
use std::mem::{align_of, size_of};
use std::os::windows::io::{AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;
use std::str::FromStr;

use windows_sys::Win32::Foundation::{ERROR_INVALID_SID, ERROR_SUCCESS, HANDLE, HLOCAL, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo,
    SDDL_REVISION_1, SE_FILE_OBJECT, SE_KERNEL_OBJECT, SE_OBJECT_TYPE,
};
use windows_sys::Win32::Security::{
    GetTokenInformation, OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID,
    SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::System::Threading::OpenProcessToken;

use crate::OsError;
use crate::handle::made;

/// The longest `TOKEN_USER`: the struct and a SID of 15 parts (68 bytes).
const USER_WORDS: usize = 16;
/// The maximum number of parts of a SID after its authority.
const MAX_PARTS: usize = 15;

/// A user or a group: `S-1-5-21-…`
/// ([security identifiers](https://learn.microsoft.com/en-us/windows/win32/secauthz/sid-components)).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sid {
    authority: u64,
    parts: [u32; MAX_PARTS],
    count: usize,
}

/// The text is not a security identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a security identifier reads S-1-5-… with up to 15 numbers: see whoami /user")]
pub struct SidError;

/// Memory that the system allocated for this process (`LocalAlloc`).
struct Local<T>(*mut T);

/// A security descriptor: which users may do what with an object.
pub(crate) struct Descriptor(Local<c_void>);

impl Sid {
    /// Returns the system itself: `S-1-5-18`.
    pub const fn local_system() -> Self {
        let mut parts = [0; MAX_PARTS];
        parts[0] = 18;
        Self { authority: 5, parts, count: 1 }
    }

    /// Returns the administrators of this machine: `S-1-5-32-544`. Objects that an elevated process creates may belong to
    /// them.
    pub const fn administrators() -> Self {
        let mut parts = [0; MAX_PARTS];
        (parts[0], parts[1]) = (32, 544);
        Self { authority: 5, parts, count: 2 }
    }

    /// Returns everyone: `S-1-1-0`.
    pub(crate) const fn everyone() -> Self {
        Self { authority: 1, parts: [0; MAX_PARTS], count: 1 }
    }

    /// Returns nobody: `S-1-0-0`.
    pub(crate) const fn nobody() -> Self {
        Self { authority: 0, parts: [0; MAX_PARTS], count: 1 }
    }

    /// Returns the system's format: revision, count and authority in two words, then the numbers.
    pub fn words(self) -> [u32; 2 + MAX_PARTS] {
        let [_, _, a, b, c, d, e, f] = self.authority.to_be_bytes();
        let count = u8::try_from(self.count).unwrap_or(0);
        let mut words = [0; 2 + MAX_PARTS];
        for (word, part) in words.iter_mut().skip(2).zip(self.parts) {
            *word = part;
        }
        words[0] = u32::from_ne_bytes([1, count, a, b]);
        words[1] = u32::from_ne_bytes([c, d, e, f]);
        words
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
        let text = String::from_utf16_lossy(&units);
        text.parse().map_err(|SidError| OsError::new(ERROR_INVALID_SID))
    }
}

impl FromStr for Sid {
    type Err = SidError;

    fn from_str(text: &str) -> Result<Self, SidError> {
        let (authority, numbers) =
            text.strip_prefix("S-1-").and_then(|rest| rest.split_once('-')).ok_or(SidError)?;
        let authority = match authority.strip_prefix("0x") {
            // Authorities that do not fit 32 bits are written in hexadecimal.
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => number(authority),
        };
        let authority = authority.filter(|authority| authority >> 48 == 0).ok_or(SidError)?;
        let mut sid = Self { authority, parts: [0; MAX_PARTS], count: 0 };
        for text in numbers.split('-') {
            let part = sid.parts.get_mut(sid.count).ok_or(SidError)?;
            *part = number(text).and_then(|number| number.try_into().ok()).ok_or(SidError)?;
            sid.count += 1;
        }
        Ok(sid)
    }
}

/// Parses a number of decimal digits only.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.authority) {
            Ok(authority) => write!(f, "S-1-{authority}")?,
            Err(_) => write!(f, "S-1-{:#014x}", self.authority)?,
        }
        self.parts.iter().take(self.count).try_for_each(|part| write!(f, "-{part}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sid({self})")
    }
}

impl Descriptor {
    /// Parses the text form, SDDL
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

    /// Returns attributes for a call that creates an object; they must not outlive `self`. Child processes do not inherit the
    /// object.
    pub(crate) fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: u32::try_from(size_of::<SECURITY_ATTRIBUTES>()).unwrap_or(0),
            lpSecurityDescriptor: self.0.0,
            bInheritHandle: 0,
        }
    }
}

/// Returns the user that a process acts as.
pub(crate) fn user_of_process(process: BorrowedHandle<'_>) -> Result<Sid, OsError> {
    let mut token: HANDLE = ptr::null_mut();
    // SAFETY: `token` is a live local.
    let _ = unsafe { OpenProcessToken(process.as_raw_handle(), TOKEN_QUERY, &mut token) };
    // SAFETY: made just now, if at all; nobody else knows it.
    user_of_token(&unsafe { made(token) }?)
}

/// Returns the user of a token.
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

/// Returns the owner of a kernel object. The handle must grant `READ_CONTROL`.
pub(crate) fn owner_of(object: BorrowedHandle<'_>) -> Result<Sid, OsError> {
    owner_of_kind(object, SE_KERNEL_OBJECT)
}

/// Returns the owner of a file. The handle must grant `READ_CONTROL`.
pub(crate) fn owner_of_file(file: BorrowedHandle<'_>) -> Result<Sid, OsError> {
    owner_of_kind(file, SE_FILE_OBJECT)
}

fn owner_of_kind(object: BorrowedHandle<'_>, kind: SE_OBJECT_TYPE) -> Result<Sid, OsError> {
    let mut owner: PSID = ptr::null_mut();
    let mut descriptor: Local<c_void> = Local(ptr::null_mut());
    let whole: *mut PSECURITY_DESCRIPTOR = &mut descriptor.0;
    // SAFETY: `owner` and `whole` are live locals; the latter takes what is allocated.
    let error = unsafe {
        GetSecurityInfo(
            object.as_raw_handle(),
            kind,
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
        for text in [
            "S-1-5-18",
            "S-1-5-21-3623811015-3361044348-30300820-1013",
            "S-1-1-0",
            "S-1-0x0100000000ff-4294967295",
            "S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15",
        ] {
            assert_eq!(text.parse::<Sid>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "S-1-",
            "S-1-5",
            "S-1-5-",
            "S-1-5-18)(A;;GA;;;WD",
            "S-1-5--18",
            "S-1-5-+18",
            "S-1-5-4294967296",
            "S-1-0x1000000000000-1",
            "S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15-16",
            "WD",
            "s-1-5-18",
        ] {
            assert!(text.parse::<Sid>().is_err(), "{text}");
        }
    }
}
