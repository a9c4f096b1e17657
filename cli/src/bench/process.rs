use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bellwire_process as process;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::{Exit, Failure};

/// A process of a benchmark: this program again, with a hidden subcommand. It takes orders and answers, each a line of JSON.
/// It ends when its standard input does. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it, with `args` after the run dir.
    pub(super) fn start(run_dir: &Path, args: &[&str]) -> Result<Self, Failure> {
        let mut command = Command::new(process::PROGRAM);
        command.arg("--run-dir").arg(run_dir).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        process::keep_signals_off(&mut command);
        let failed =
            |error| Failure::of(Exit::Failed, "cannot start a process of the benchmark", &error);
        let mut child = command.spawn().map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, said) = pipes.ok_or_else(|| Failure::new(Exit::Failed, "no pipes"))?;
        Ok(Self { child, orders, said: BufReader::new(said) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order. The answer shows whether the process still reads.
    pub(super) fn tell(&mut self, order: &impl Serialize) {
        if let Ok(mut line) = serde_json::to_vec(order) {
            line.push(b'\n');
            let _ = self.orders.write_all(&line);
        }
    }

    /// Waits for its next message.
    pub(super) fn hear<M: DeserializeOwned>(&mut self) -> Result<M, Failure> {
        let mut line = String::new();
        let ended = || Failure::new(Exit::Failed, "a process of the benchmark ended too soon");
        match self.said.read_line(&mut line) {
            Ok(0) => Err(ended()),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|error| Failure::of(Exit::Failed, "a process of the benchmark", &error)),
            Err(error) => Err(Failure::of(Exit::Failed, "a process of the benchmark", &error)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails without harm if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
