//! What a caller sees of its own doing, and of a provider that is slow, stops or is replaced.

mod cancel;
mod event_loop;
mod pipeline;
mod pressure;
mod retry;
mod stop;
