//! What the kernel forbids every process to do with published memory.

mod hung;
mod memory;
