//! Where clients register with a server, for contenders without such a place of their own: a named pipe, fifo(7).

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::Outcome;
use crate::load::Case;

/// The encoding of a name: written atomically, since it is shorter than `PIPE_BUF`.
const NAME: usize = 128;

/// The server's end.
pub(super) struct Arrivals {
    names: File,
}

impl Arrivals {
    /// Clients may come from now on.
    pub(super) fn new(case: &Case) -> Outcome<Self> {
        let path = case.file("arrivals.fifo");
        create(&path)?;
        // Read and write: it never ends while it has no client.
        Ok(Self { names: OpenOptions::new().read(true).write(true).open(path)? })
    }

    /// Waits for a client.
    pub(super) fn next(&mut self) -> Outcome<String> {
        let mut name = [0; NAME];
        self.names.read_exact(&mut name)?;
        Ok(str::from_utf8(&name)?.trim_end().to_owned())
    }
}

/// Tells the server that a client has come.
pub(super) fn announce(case: &Case, name: &str) -> Outcome<()> {
    if name.len() > NAME {
        return Err("a name that is too long".into());
    }
    let mut names = OpenOptions::new().write(true).open(case.file("arrivals.fifo"))?;
    Ok(names.write_all(format!("{name:<NAME$}").as_bytes())?)
}

/// A name that no other connection of this case has.
pub(super) fn new_name() -> Outcome<String> {
    static CONNECTIONS: Mutex<u64> = Mutex::new(0);
    let mut connections = CONNECTIONS.lock().map_err(|_| "a thread failed while it connected")?;
    *connections += 1;
    Ok(format!("{}-{connections}", std::process::id()))
}

/// Creates a named pipe.
pub(super) fn create(path: &Path) -> Outcome<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}
