//! What a session costs the kernel.

mod cost;
