//! What a tracer attaches to, as a shared library: one call from C does what the program does.

mod fire;

/// Fires every probe whose semaphore is held, and says how many samples a second are wanted.
#[unsafe(no_mangle)]
pub extern "C" fn fire() -> i32 {
    fire::everything()
}
