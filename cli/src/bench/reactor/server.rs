//! The server process of the benchmark.

use std::io::Read;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Duration;

use bellwire::{RunDir, Server, ServerConfig, SpinPolicy};
use bellwire_process::{self as process, plain};

use super::protocol::{Mirror, Serving};
use crate::bench::args::BenchServer;
use crate::exit::{Exit, Failure};
use crate::out;
use crate::provide::unserved;

/// Long enough that a busy machine does not fail a handshake.
const HANDSHAKE: Duration = Duration::from_secs(60);

pub(crate) fn run(run_dir: &RunDir, args: &BenchServer) -> Result<Exit, Failure> {
    process::end_with_parent();
    let (ended, end) = mpsc::channel::<()>();
    thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        drop(ended);
    });
    let Some(backend) = args.subject.backend() else {
        let failed = |error| Failure::of(Exit::Failed, "the plain server", &error);
        let mut server = plain::Server::bind(&args.socket).map_err(failed)?;
        out::json_line(&Serving { why_not: None })?;
        server.serve(|| end.try_recv() == Err(TryRecvError::Disconnected)).map_err(failed)?;
        return Ok(Exit::Ok);
    };
    let spin = args.spin.map_or_else(SpinPolicy::default, |max| SpinPolicy {
        max,
        worth: SpinPolicy::default().worth.min(max),
    });
    let config = ServerConfig::default()
        .backend(backend)
        .spin(spin)
        .max_sessions(args.sessions + 16)
        .handshake_timeout(HANDSHAKE);
    let failed = |error| unserved(run_dir, &error);
    let mut builder = Server::builder_with(run_dir, config);
    builder.serve::<Mirror>(|_, bytes| Ok(bytes)).map_err(failed)?;
    let server = builder.start().map_err(failed)?;
    let why_not = server.backend().why_not.map(str::to_owned);
    out::json_line(&Serving { why_not })?;
    // Until the benchmark ends.
    let _ = end.recv();
    Ok(Exit::Ok)
}
