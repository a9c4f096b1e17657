//! Clients that have other connections than one that stays open.

use crate::Outcome;
use crate::contender::{Client, Counters};

/// Some connections, one after the other for each call.
pub(super) struct InTurn<C> {
    clients: Vec<C>,
    next: usize,
}

impl<C> InTurn<C> {
    pub(super) fn new(clients: Vec<C>) -> Self {
        Self { clients, next: 0 }
    }
}

impl<C: Client> Client for InTurn<C> {
    #[inline]
    fn call(&mut self, request: &[u8], answer: &mut [u8]) -> Outcome<usize> {
        let (at, count) = (self.next, self.clients.len());
        self.next = if at + 1 < count { at + 1 } else { 0 };
        self.clients.get_mut(at).ok_or("a client without connections")?.call(request, answer)
    }

    fn counters(&mut self) -> Counters {
        let each = self.clients.iter_mut().map(Client::counters);
        each.reduce(|sum, one| sum.with(one, u64::wrapping_add)).unwrap_or_default()
    }
}

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
