#![allow(unsafe_code, reason = "asks the system for its version and for names, into locals")]

use std::ffi::{CStr, c_char};
use std::mem::{size_of, transmute};
use std::ptr;

use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::Security::{LookupAccountSidW, SID_NAME_USE};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};
use windows_sys::Win32::System::SystemInformation::OSVERSIONINFOW;

use bellwire_win::peer::{Group, User};

/// The longest name of an account or a domain in UTF-16 units, including its final zero.
const LONGEST: u32 = 257;

/// Returns the running system and its release, such as `Windows 10.0.22631`; names Wine if it is Wine.
pub fn system() -> String {
    let length = u32::try_from(size_of::<OSVERSIONINFOW>()).unwrap_or(0);
    let mut version = OSVERSIONINFOW { dwOSVersionInfoSize: length, ..OSVERSIONINFOW::default() };
    // SAFETY: `version` is a live local that says its own length. It cannot fail.
    let _ = unsafe { RtlGetVersion(&mut version) };
    let OSVERSIONINFOW { dwMajorVersion: major, dwMinorVersion: minor, dwBuildNumber, .. } =
        version;
    let wine = wine_version().map_or(String::new(), |version| format!(" (Wine {version})"));
    format!("Windows {major}.{minor}.{dwBuildNumber}{wine}")
}

/// Returns the user of this name: none, since users are identified by their SID on Windows.
pub const fn user_named(_: &str) -> Option<User> {
    None
}

/// Returns the group of this name: none, since no group is admitted on Windows.
pub const fn group_named(_: &str) -> Option<Group> {
    None
}

/// Returns a user's name, if it has one here.
pub fn account(user: User) -> Option<String> {
    let sid = user.words();
    let (mut name, mut domain) = ([0_u16; LONGEST as usize], [0_u16; LONGEST as usize]);
    let (mut name_len, mut domain_len) = (LONGEST, LONGEST);
    let mut kind: SID_NAME_USE = 0;
    // SAFETY: `sid` is a SID as the system has it; all others are live locals of the lengths given.
    let done = unsafe {
        LookupAccountSidW(
            ptr::null(),
            sid.as_ptr().cast_mut().cast(),
            name.as_mut_ptr(),
            &mut name_len,
            domain.as_mut_ptr(),
            &mut domain_len,
            &mut kind,
        )
    };
    let name = name.get(..usize::try_from(name_len).ok()?)?;
    (done != 0).then(|| String::from_utf16_lossy(name))
}

/// Returns Wine's version; `None` on a real Windows.
fn wine_version() -> Option<String> {
    // SAFETY: the name ends with a zero; the module is in every process, and is not unloaded.
    let module = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr().cast()) };
    // SAFETY: as above.
    let function = unsafe { GetProcAddress(module, c"wine_get_version".as_ptr().cast()) }?;
    // SAFETY: Wine documents it so: no arguments, and a text that is never freed.
    let version: unsafe extern "C" fn() -> *const c_char = unsafe { transmute(function) };
    // SAFETY: as above.
    let text = unsafe { version() };
    if text.is_null() {
        return None;
    }
    // SAFETY: it ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}
