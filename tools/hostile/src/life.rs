//! The life of the processes that the runner starts: they end with it.

use std::io::{self, BufRead, Write};
use std::process;
use std::thread;

/// Ends this process when the runner closes its standard input, or is gone.
pub fn end_with_the_runner() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        process::exit(0);
    });
}

/// Waits for the runner's next line; false when there will be none.
pub fn await_line(line: &mut String) -> bool {
    line.clear();
    io::stdin().lock().read_line(line).is_ok_and(|len| len > 0)
}

/// Prints a line for the runner.
///
/// # Errors
/// The runner is gone.
pub fn tell(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
