use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bellwire::{HandlerError, Publisher, RunDir, Server};

use super::Part;
use crate::error::{Error, Result};
use crate::line::{Ask, Told};
use crate::service::{Entry, Ledger, Sheet, server_config};

/// A server of one victim after the other.
pub(super) struct Provider {
    server: Server,
    publisher: Publisher<Sheet>,
    book: Arc<Book>,
}

/// The handler's record.
#[derive(Default)]
struct Book {
    pages: Mutex<Pages>,
    release: Condvar,
}

#[derive(Default)]
struct Pages {
    ran: Vec<u64>,
    /// Requests that were never sent in this form.
    garbled: u64,
    /// A handler that holds may go on.
    released: bool,
}

impl Provider {
    pub(super) fn new(run_dir: &RunDir) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| Error::Usage(format!("no server: {error}"));
        let book = Arc::<Book>::default();
        let mut builder = Server::builder_with(run_dir, server_config());
        let writes = Arc::clone(&book);
        builder
            .serve::<Ledger>(move |_, request| writes.enter(&request))
            .map_err(|error| failed(&error))?;
        let publisher = builder.publish::<Sheet>().map_err(|error| failed(&error))?;
        publisher.publish(&Sheet::bytes(1)).map_err(|error| failed(&error))?;
        let server = builder.start().map_err(|error| failed(&error))?;
        Ok(Self { server, publisher, book })
    }
}

impl Book {
    fn enter(&self, request: &[u8]) -> std::result::Result<Vec<u8>, HandlerError> {
        let mut pages = self.lock();
        let Some(entry) = Entry::read(request) else {
            pages.garbled += 1;
            return Err(HandlerError::new("no such request was ever written"));
        };
        pages.ran.push(entry.number);
        if entry.hold {
            let released = self.release.wait_while(pages, |pages| !pages.released);
            released.unwrap_or_else(PoisonError::into_inner).released = false;
        }
        Ok(entry.respond())
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part for Provider {
    fn act(&mut self, ask: &Ask) -> Told {
        match *ask {
            Ask::Publish { number } => match self.publisher.publish(&Sheet::bytes(number)) {
                Ok(_) => Told::Done,
                Err(error) => Told::Wrong(error.to_string()),
            },
            Ask::Release => {
                self.book.lock().released = true;
                self.book.release.notify_all();
                Told::Done
            }
            _ => Told::Wrong(format!("a server does not know {ask:?}")),
        }
    }

    /// Without a client: no session, and counters that reconcile.
    fn wrong(&mut self) -> String {
        let stats = self.server.stats();
        let garbled = self.book.lock().garbled;
        if stats.sessions != 0 {
            return format!("its server has {} sessions and no client", stats.sessions);
        }
        if stats.poisoned != 0 {
            return format!("{} honest clients were called liars", stats.poisoned);
        }
        if garbled != 0 {
            return format!("{garbled} requests came that nobody sent so");
        }
        let ended = stats.answered + stats.refused + stats.lost;
        if stats.accepted != ended {
            return format!("the books do not reconcile: {stats:?}");
        }
        String::new()
    }

    fn ran(&mut self) -> Vec<u64> {
        let mut pages = self.book.lock();
        // A request that was to be held may never have come.
        pages.released = false;
        std::mem::take(&mut pages.ran)
    }
}
