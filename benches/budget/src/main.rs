//! The operations whose instructions are counted: `cargo xtask budget` runs this program under callgrind.
//!
//! Each operation is taken in several samples, and each sample is one of callgrind's dumps, called after the
//! operation and how often it was done: the least sample counts. `docs/budget.md` says what each includes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    unreachable_pub,
    missing_docs,
    reason = "a bench that cannot go on says so by panicking"
)]

mod callgrind;
mod calls;
mod lanes;
mod memory;
mod snapshots;

use std::ffi::CString;
use std::process::ExitCode;

/// Samples of an operation that nothing else can disturb.
pub const SAMPLES: usize = 3;

fn main() -> ExitCode {
    if let Some(run_dir) = std::env::args().skip_while(|word| word != calls::ROLE).nth(1) {
        calls::serve(&run_dir);
        return ExitCode::SUCCESS;
    }
    if !callgrind::is_running() {
        println!("nothing is counted outside of callgrind: run `cargo xtask budget`");
        return ExitCode::SUCCESS;
    }
    lanes::count_all();
    snapshots::count_all();
    calls::count_client();
    calls::count_server();
    ExitCode::SUCCESS
}

/// Counts the instructions of what `operation` does so many times, after once to get warm.
pub fn count(name: &str, times: u64, mut operation: impl FnMut()) {
    count_between(name, times, &mut (), |()| operation(), |()| {});
}

/// Counts the instructions of what `counted` does so many times, and not those of `between`, which follows each time.
pub fn count_between<T>(
    name: &str,
    times: u64,
    on: &mut T,
    mut counted: impl FnMut(&mut T),
    mut between: impl FnMut(&mut T),
) {
    counted(on);
    between(on);
    for _ in 0..SAMPLES {
        callgrind::zero();
        for _ in 0..times {
            callgrind::toggle();
            counted(on);
            callgrind::toggle();
            between(on);
        }
        dump_sample(name, times);
    }
}

/// Ends a sample.
pub fn dump_sample(name: &str, times: u64) {
    callgrind::dump(&CString::new(format!("{name}={times}")).unwrap());
}
