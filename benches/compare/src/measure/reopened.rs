//! A client whose connection does not stay open.

use crate::Outcome;
use crate::contender::Client;

/// A connection that a call opens, and that is closed before the next one.
pub(super) struct Reopened<C, F> {
    connect: F,
    open: Option<C>,
}

impl<C, F> Reopened<C, F> {
    pub(super) fn new(connect: F) -> Self {
        Self { connect, open: None }
    }
}

impl<C: Client, F: FnMut() -> Outcome<C>> Client for Reopened<C, F> {
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        self.open.insert((self.connect)()?).call(request, answer)
    }

    fn trim(&mut self) -> Outcome<()> {
        self.open = None;
        Ok(())
    }
}
