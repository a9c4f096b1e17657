#![allow(unsafe_code, reason = "victims in C")]
//! Victims that are C programs: the same scenarios over `libbellwire`.

use std::ffi::{CString, c_char};

// Links the library whose functions they call.
use bellwire::RunDir;
use bellwire_c as _;

use super::{RAN, VictimTask};
use crate::phase::Side;
use crate::service::{EVENT_LEN, EVENTS, FULL, RING};

/// As `struct victim` in `c/victim.h`.
#[repr(C)]
struct Victim {
    dir: *const c_char,
    number: u64,
    first: u64,
    requests: u64,
    hold: u64,
    ring: u64,
    event_len: u64,
    full: u64,
    within: u64,
    ran: *mut u64,
    doorbell: u32,
    scenario: u32,
}

unsafe extern "C" {
    fn bellwire_victim_client(victim: *const Victim);
    fn bellwire_victim_server(victim: *const Victim);
}

/// Runs a scenario. The process exits if it fails.
pub(super) fn run(task: VictimTask, run_dir: &RunDir) -> Result<(), Box<dyn std::error::Error>> {
    let dir = CString::new(run_dir.path().as_os_str().as_encoded_bytes())?;
    let victim = Victim {
        dir: dir.as_ptr(),
        number: task.number,
        first: task.requests().start,
        requests: task.scenario.requests(),
        hold: task.hold.into(),
        ring: RING,
        event_len: EVENT_LEN.into(),
        full: FULL,
        within: EVENTS,
        ran: RAN.as_ptr(),
        doorbell: task.scenario.doorbell() as u32,
        scenario: task.scenario as u32,
    };
    let run = match task.side {
        Side::Client => bellwire_victim_client,
        Side::Server => bellwire_victim_server,
    };
    // SAFETY: the struct has the layout of `struct victim`, and what it points to outlives the victim's threads: they
    // end with the process.
    unsafe { run(&raw const victim) };
    Ok(())
}
