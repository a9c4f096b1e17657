//! A program without Bellwire that loads a client: its argument is the shared library.
#![allow(unsafe_code, reason = "loads a shared library")]

use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = CString::new(std::env::args().nth(1).ok_or("no library was named")?)?;
    // SAFETY: the path ends in a zero; the library's start-up code is that of Rust's standard library.
    let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
    if library.is_null() {
        return Err("the library cannot be loaded".into());
    }
    // SAFETY: the library is loaded and never unloaded; the name ends in a zero.
    let found = unsafe { dlsym(library, c"run_client".as_ptr()) };
    if found.is_null() {
        return Err("the library has no function run_client".into());
    }
    // SAFETY: that is its type, in lib.rs.
    let run = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(found) };
    std::process::exit(run());
}
