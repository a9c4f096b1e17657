//! What a caller sees of a provider that is replaced, that never answers, and in an event loop.

mod deadline;
mod event_loop;
mod retry;
mod sandboxed;
mod start;
mod unanswered;
