//! What the tasks that use a session and its driver share.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use bellwire_core::call::Ticket;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tokio::sync::Mutex as Line;
use tokio::task::AbortHandle;

use crate::{CallError, Executed, Service, Session, WhenFull};

/// Answers that the driver hands on before others have their turn.
const MOST_PER_TURN: usize = 64;

pub(super) struct Shared<S: Service> {
    state: Mutex<State<S>>,
    /// Whoever has met a full lane stands in this line; the first of it waits for room.
    pub(super) line: Line<()>,
    pub(super) driver: OnceLock<AbortHandle>,
}

pub(super) struct State<S: Service> {
    pub(super) session: Session<S>,
    waiting: HashMap<Ticket, Waiting<S::Response>, FixedState>,
    pub(super) in_line: usize,
    /// Who waits for room.
    room: Option<Waker>,
    driver: Option<Waker>,
    /// The provider is gone; what it published before is still taken.
    is_departed: bool,
    /// Nobody takes answers any more, and why.
    over: Option<CallError>,
}

/// A call that was sent.
enum Waiting<R> {
    /// Nobody has asked yet, or this one.
    Asked(Option<Waker>),
    Answered(Result<R, CallError>),
}

/// What the driver does next.
pub(super) enum Step {
    Again,
    Sleep,
    /// This system lacks what it takes to read on: later.
    Pause,
    Over,
}

impl<S: Service> Shared<S> {
    pub(super) fn new(session: Session<S>) -> Self {
        let state = State {
            session,
            waiting: HashMap::default(),
            in_line: 0,
            room: None,
            driver: None,
            is_departed: false,
            over: None,
        };
        Self { state: Mutex::new(state), line: Line::new(()), driver: OnceLock::new() }
    }

    /// No code that holds this lock can panic halfway through a change, but for decoding an answer, which has been
    /// taken by then.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Service> Drop for Shared<S> {
    /// The session says bye, and nobody is left for its driver.
    fn drop(&mut self) {
        if let Some(driver) = self.driver.get() {
            driver.abort();
        }
    }
}

impl<S: Service> State<S> {
    /// Sends a request if there is room for it now.
    pub(super) fn send(
        &mut self,
        request: &S::Request,
        when_full: WhenFull,
    ) -> Result<Ticket, CallError> {
        if self.over.is_some() {
            return Err(self.why_over(Executed::No));
        }
        let mut session = self.session.when_full(when_full);
        let sent = session.with_request(request, |session, bytes| Ok(session.submit_now(bytes)?));
        drop(session);
        let ticket = sent?;
        self.waiting.insert(ticket, Waiting::Asked(None));
        Ok(ticket)
    }

    /// Why nothing can be sent, or answered, any more.
    fn why_over(&self, executed: Executed) -> CallError {
        match self.over {
            Some(CallError::PeerLied(fault)) => CallError::PeerLied(fault),
            Some(CallError::Unread { .. }) => CallError::Unread { executed },
            Some(CallError::PeerGone { .. }) => CallError::PeerGone { executed },
            _ => CallError::Cancelled { executed },
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// The answer, if it has come; else `waker` is woken when it does.
    pub(super) fn answer(
        &mut self,
        ticket: Ticket,
        waker: &Waker,
    ) -> Option<Result<S::Response, CallError>> {
        match self.waiting.get_mut(&ticket) {
            Some(Waiting::Asked(Some(known))) => known.clone_from(waker),
            Some(Waiting::Asked(none)) => *none = Some(waker.clone()),
            Some(Waiting::Answered(_)) | None => {
                return match self.waiting.remove(&ticket) {
                    Some(Waiting::Answered(answer)) => Some(answer),
                    _ => Some(Err(self.why_over(Executed::Maybe))),
                };
            }
        }
        None
    }

    /// Nobody wants the answer any more.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        if let Some(Waiting::Asked(_)) = self.waiting.remove(&ticket) {
            self.session.abandon(ticket);
        }
    }

    /// Has `waker` woken when there may be room.
    pub(super) fn wait_for_room(&mut self, waker: &Waker) {
        self.room = Some(waker.clone());
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Hands on what has come, and asks to be rung for more. Who is to be woken is put into `woken`.
    pub(super) fn step(&mut self, driver: &Waker, rung: bool, woken: &mut Vec<Waker>) -> Step {
        if self.over.is_some() {
            return Step::Over;
        }
        match &mut self.driver {
            Some(known) => known.clone_from(driver),
            none => *none = Some(driver.clone()),
        }
        match self.take_answers(woken) {
            Ok(0) => {}
            Ok(_) => woken.extend(self.room.take()),
            Err(error) => return self.fail(error, woken),
        }
        // What it published before it went is read first.
        self.is_departed |= rung && !self.session.is_alive();
        if self.is_departed {
            return match self.take_answers(woken) {
                Ok(0) => self.fail(CallError::PeerGone { executed: Executed::Maybe }, woken),
                Ok(_) => Step::Again,
                Err(error) => self.fail(error, woken),
            };
        }
        let armed = match self.room {
            Some(_) => self.session.arm_for_room(),
            None => self.session.arm(),
        };
        match armed {
            Ok(true) => {
                woken.extend(self.room.take());
                Step::Again
            }
            Ok(false) => Step::Sleep,
            Err(error) => self.fail(error, woken),
        }
    }

    fn take_answers(&mut self, woken: &mut Vec<Waker>) -> Result<usize, CallError> {
        for taken in 0..MOST_PER_TURN {
            let Some((ticket, answer)) = self.session.try_reply()? else { return Ok(taken) };
            self.hand_on(ticket, answer, woken);
        }
        Ok(MOST_PER_TURN)
    }

    fn hand_on(
        &mut self,
        ticket: Ticket,
        answer: Result<S::Response, CallError>,
        woken: &mut Vec<Waker>,
    ) {
        if let Some(waiting) = self.waiting.get_mut(&ticket)
            && let Waiting::Asked(waker) = std::mem::replace(waiting, Waiting::Answered(answer))
        {
            woken.extend(waker);
        }
    }

    /// Ends the calls that wait, for one reason.
    fn fail(&mut self, error: CallError, woken: &mut Vec<Waker>) -> Step {
        let mut waiting: Vec<Ticket> = self.waiting.keys().copied().collect();
        waiting.sort_unstable();
        for ticket in waiting {
            if let Some(Waiting::Asked(_)) = self.waiting.get(&ticket) {
                let error = self.session.fail(ticket, &error);
                self.hand_on(ticket, Err(error), woken);
            }
        }
        woken.extend(self.room.take());
        if let CallError::Short { .. } = error {
            return Step::Pause;
        }
        self.over = Some(error);
        Step::Over
    }

    /// The runtime, or the task of the driver, is ending.
    pub(super) fn desert(&mut self, woken: &mut Vec<Waker>) {
        if self.over.is_none() {
            self.fail(CallError::Cancelled { executed: Executed::Maybe }, woken);
        }
    }
}
