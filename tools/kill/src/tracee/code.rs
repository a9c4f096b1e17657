use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::without_provenance_mut;

use nix::sys::ptrace;
use nix::unistd::Pid;

use crate::error::{Result, system};

pub(super) const CALL_NUMBER: usize = offset_of!(libc::user_regs_struct, orig_rax);
const INSTRUCTION: usize = offset_of!(libc::user_regs_struct, rip);
/// The `syscall` instruction of x86-64.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Which addresses hold a `syscall` instruction. All victims are forks of one process, so each address is read once.
#[derive(Debug, Default)]
pub(crate) struct Code {
    calls: HashMap<u64, bool>,
}

impl Code {
    /// The address of a stopped thread's next instruction; `None` if that is a system call.
    pub(super) fn next(&mut self, thread: Pid) -> Result<Option<u64>> {
        let at = read_register(thread, INSTRUCTION)?.cast_unsigned();
        let is_call = match self.calls.get(&at) {
            Some(known) => *known,
            None => {
                let place: *mut c_void = without_provenance_mut(usize::try_from(at).unwrap_or(0));
                let word = ptrace::read(thread, place).map_err(system("read a victim's code"))?;
                let is_call = word.to_le_bytes().starts_with(&SYSCALL);
                self.calls.insert(at, is_call);
                is_call
            }
        };
        Ok((!is_call).then_some(at))
    }
}

/// Stops a thread before it runs the instruction at this address, and only before that; none at 0.
pub(super) fn set_breakpoint(thread: Pid, address: u64) -> Result<()> {
    let enabled = i64::from(address != 0);
    for (register, value) in [(7, 0), (0, address.cast_signed()), (7, enabled)] {
        let at = offset_of!(libc::user, u_debugreg) + register * size_of::<u64>();
        ptrace::write_user(thread, without_provenance_mut(at), value)
            .map_err(system("set a breakpoint"))?;
    }
    Ok(())
}

/// A field of a stopped thread's registers.
pub(super) fn read_register(thread: Pid, offset: usize) -> Result<i64> {
    ptrace::read_user(thread, without_provenance_mut(offset)).map_err(system("read a register"))
}
