//! What the kernel lets nobody do with published memory.

mod hung;
mod memory;
