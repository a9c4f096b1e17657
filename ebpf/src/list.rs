//! `list`: the traceable processes and their open sessions.

use bellwire_trace_core::sessions::{self, Session};
use bellwire_trace_core::{Error as TraceError, processes};
use serde::Serialize;

use crate::args::ListArgs;
use crate::error::Error;
use crate::out::outln;

#[derive(Serialize)]
struct Process {
    pid: u32,
    command: String,
    file: String,
    probes: usize,
    roles: &'static str,
    sessions: Vec<Session>,
}

pub(crate) fn run(args: &ListArgs) -> Result<(), Error> {
    let all_pids = processes::pids()?;
    let requested: Vec<u32> = args.pid.map_or_else(|| all_pids.clone(), |pid| vec![pid]);
    let sessions = sessions::open(&all_pids);
    let mut found: Vec<Process> = Vec::new();
    for file in processes::traceable(&requested) {
        for &pid in &file.pids {
            let is_end = |session: &&Session| [session.server, session.client].contains(&Some(pid));
            found.push(Process {
                pid,
                command: processes::command(pid),
                file: file.name.display().to_string(),
                probes: file.probes.len(),
                roles: file.roles(),
                sessions: sessions.iter().filter(is_end).cloned().collect(),
            });
        }
    }
    found.sort_by_key(|process| process.pid);
    if args.json {
        outln!("{}", serde_json::to_string(&found)?);
        return Ok(());
    }
    if found.is_empty() {
        return Err(TraceError::NoTarget { pid: args.pid }.into());
    }
    print(["PID", "COMM", "ROLE", "SERVICE", "SESSION", "PEER"])?;
    for process in &found {
        let (pid, command) = (process.pid.to_string(), &process.command);
        for session in &process.sessions {
            let is_server = session.server == Some(process.pid);
            let (role, peer) =
                if is_server { ("server", session.client) } else { ("client", session.server) };
            let peer = peer.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
            print([&pid, command, role, &session.service, &session.number.to_string(), &peer])?;
        }
        if process.sessions.is_empty() {
            // What it can be.
            print([&pid, command, process.roles, "-", "-", "-"])?;
        }
    }
    Ok(())
}

fn print([pid, command, role, service, session, peer]: [&str; 6]) -> Result<(), Error> {
    outln!("{pid:>8} {command:<16} {role:<7} {service:<32} {session:>8} {peer:>8}");
    Ok(())
}
