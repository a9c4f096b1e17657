//! How the runner and the processes that it starts talk: lines on standard input and output. The processes exit with the
//! runner.

use std::io::{self, BufRead, Write};
use std::process;
use std::thread;

/// Exits this process when the runner closes its standard input or exits.
pub fn exit_with_runner() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        process::exit(0);
    });
}

/// Reads the runner's next line; false at the end of the input.
pub fn read_line_into(line: &mut String) -> bool {
    line.clear();
    io::stdin().lock().read_line(line).is_ok_and(|len| len > 0)
}

/// Writes a line to the runner.
///
/// # Errors
/// The runner has exited.
pub fn write_line(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
