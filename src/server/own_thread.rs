//! Which server's handlers a thread runs: it must not wait for the threads of that server.

use std::cell::Cell;
use std::sync::Arc;

use crate::transport::doorbell::WakeEvent;

thread_local! {
    /// The address of the server's bell, which is held for as long as the thread runs.
    #[allow(clippy::missing_const_for_thread_local, reason = "it is const, which the lint misses on Windows")]
    static BELL: Cell<usize> = const { Cell::new(0) };
}

/// Makes this thread one that runs handlers of the server with this bell.
pub(super) fn mark_handler_thread(bell: &Arc<WakeEvent>) {
    BELL.set(Arc::as_ptr(bell).addr());
}

pub(super) fn is_handler_thread(bell: &Arc<WakeEvent>) -> bool {
    BELL.get() == Arc::as_ptr(bell).addr()
}
