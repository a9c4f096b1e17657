//! Processes that this one starts and talks to, by lines on their standard input and output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;

/// A process that ends when its standard input does, so that it never outlives this one. Dropping this kills it.
#[derive(Debug)]
pub struct Subprocess {
    child: Child,
    input: Option<ChildStdin>,
}

impl Subprocess {
    /// Starts it. `on_line` gets each line that it prints, and `None` when it has closed its standard output.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        command: &mut Command,
        mut on_line: impl FnMut(Option<String>) + Send + 'static,
    ) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            lines.map_while(Result::ok).for_each(|line| on_line(Some(line)));
            on_line(None);
        });
        Ok(Self { child, input })
    }

    /// Returns its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// It does not read any more, or was asked to end.
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{line}")
    }

    /// Closes its standard input, which asks it to end.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Returns whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Those of [`Child::wait`].
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Kills it, which also ends a stopped process, and waits for its end.
    ///
    /// # Errors
    /// Those of [`Child::wait`].
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        // Fails without harm if it has ended.
        let _ = self.child.kill();
        self.child.wait()
    }
}

impl Drop for Subprocess {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Runs `then`, on a thread of its own, when this process's standard input ends: the process that started it asks for its
/// end, or is gone.
pub fn at_end_of_input(then: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        then();
    });
}
