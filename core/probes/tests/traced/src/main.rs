//! Fires all probes once per line of its input, and prints how many samples a second are wanted, 0 for none. With an
//! argument, the probes of the shared library of that name.

mod fire;

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

fn main() -> std::io::Result<()> {
    let library = std::env::args().nth(1);
    let mut fire: Box<dyn Fn() -> i32> = Box::new(fire::everything);
    if let Some(library) = library {
        let path = CString::new(library)?;
        // SAFETY: the path ends in a zero; the library's start-up code is that of Rust's standard library.
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        // SAFETY: the library is loaded and never unloaded; the name ends in a zero.
        let found = unsafe { dlsym(library, c"fire".as_ptr()) };
        assert!(!found.is_null(), "{path:?} has no function `fire`");
        // SAFETY: that is its type, in lib.rs.
        let found = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(found) };
        fire = Box::new(move || found());
    }
    for line in std::io::stdin().lines() {
        line?;
        println!("{}", fire());
        std::io::stdout().flush()?;
    }
    Ok(())
}
