//! What commands have in common: their messages, and how they end.

use bellwire_trace_core::{Losses, Options, Tracer};

use crate::args::Scope;
use crate::error::Error;
use crate::out::errln;

/// Attaches, says so, runs `watch`, and detaches.
pub(crate) fn trace<T>(
    scope: &Scope,
    options: Options,
    watch: impl FnOnce(&Tracer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let say = |message: &str| errln!("{message}");
    bellwire_trace_core::trace(&scope.of(), options, &say, |tracer| {
        errln!("attached. Ctrl-C ends it.");
        watch(tracer)
    })
}

/// Reports what could not be counted. To be called last by a command that shows results.
///
/// # Errors
/// If there are none.
pub(crate) fn finish(tracer: &Tracer<'_>) -> Result<(), Error> {
    report_losses(&tracer.losses());
    Ok(tracer.check_seen()?)
}

/// Prints a warning about what could not be counted, if anything.
pub(crate) fn report_losses(losses: &Losses) {
    let Losses {
        disordered,
        unmatched,
        dropped,
        unread,
        unwatched,
        displaced,
        unpublished,
        unseen_returns,
        ..
    } = losses;
    if disordered + unmatched + dropped + unread + unpublished > 0 {
        errln!(
            "not counted: {unmatched} answers whose request was not seen, {unpublished} deliveries whose publication was not, \
             {disordered} messages whose times are not in order, {dropped} events without room, {unread} records that could \
             not be read"
        );
    }
    if unwatched + displaced > 0 {
        errln!(
            "{unwatched} times a thread took its first sample, and {displaced} times two threads had one place: what they \
             waited is in publish, not in wake"
        );
    }
    if *unseen_returns > 0 {
        errln!(
            "{unseen_returns} times no sched event showed that a thread ran again: when it did is computed from its run time, \
             its kernel functions are missing, and a handler that it ran is not split by why it was off the CPU"
        );
    }
}
