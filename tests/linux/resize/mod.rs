//! Lanes that grow and shrink, and messages in memfds of their own, as the kernel sees them; hostile peers, and what
//! happens when the kernel refuses.

mod control_socket;
mod death;
mod memory;
mod payload;
mod shortage;
