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
    /// Whether the next instruction of a stopped thread is a system call.
    pub(super) fn is_at_call(&mut self, thread: Pid) -> Result<bool> {
        let at = read_register(thread, INSTRUCTION)?.cast_unsigned();
        if let Some(known) = self.calls.get(&at) {
            return Ok(*known);
        }
        let place: *mut c_void = without_provenance_mut(usize::try_from(at).unwrap_or(0));
        let word = ptrace::read(thread, place).map_err(system("read a victim's code"))?;
        let is_call = word.to_le_bytes().starts_with(&SYSCALL);
        self.calls.insert(at, is_call);
        Ok(is_call)
    }
}

/// A field of a stopped thread's registers.
pub(super) fn read_register(thread: Pid, offset: usize) -> Result<i64> {
    ptrace::read_user(thread, without_provenance_mut(offset)).map_err(system("read a register"))
}
