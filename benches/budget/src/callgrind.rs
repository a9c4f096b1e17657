#![allow(unsafe_code, reason = "callgrind is asked by an instruction sequence that it knows")]
//! What a program may ask callgrind for. Outside of callgrind nothing happens.
//!
//! Man page: the section on client requests of valgrind's manual; the numbers are those of `callgrind.h`.

use std::arch::asm;
use std::ffi::CStr;

/// `VG_USERREQ_TOOL_BASE('C', 'T')`.
const BASE: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
const ZERO_STATS: u64 = BASE + 1;
const TOGGLE_COLLECT: u64 = BASE + 2;
const DUMP_STATS_AT: u64 = BASE + 3;
/// `RUNNING_ON_VALGRIND`.
const RUNNING: u64 = 0x1001;

/// Whether valgrind runs this process.
pub fn is_running() -> bool {
    request(RUNNING, 0) != 0
}

/// Forgets what was counted, of all threads.
pub fn zero() {
    request(ZERO_STATS, 0);
}

/// Counts what the calling thread executes from here on, or no more.
#[inline(always)]
pub fn toggle() {
    request(TOGGLE_COLLECT, 0);
}

/// Writes what was counted, of all threads, to a file that contains `name`, and resets it.
pub fn dump(name: &CStr) {
    request(DUMP_STATS_AT, name.as_ptr() as u64);
}

#[inline(always)]
fn request(what: u64, argument: u64) -> u64 {
    let arguments = [what, argument, 0, 0, 0, 0];
    let mut answer: u64 = 0;
    // SAFETY: on a processor the rotations add up to 128 bits and the exchange is of a register with itself: nothing
    // changes. Valgrind reads the six words at rax, which live as long as `arguments`, and writes rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inlateout("rdx") answer,
            inout("rdi") 0_u64 => _,
        );
    }
    answer
}
