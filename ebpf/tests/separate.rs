//! A server and a client that are two programs, as users have them: each lacks the probes of the other's role.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};

use crate::support::process::Process;
use crate::support::programs::Build;
use crate::support::semaphore::notes;
use crate::support::tracer::{TRACER, Tracer, skip};

/// The probes of a file: names, and whether the note's address has a nop.
fn probes(file: &Path) -> Vec<(String, bool)> {
    let bytes = fs::read(file).unwrap();
    let file = ElfFile::<FileHeader64<Endianness>>::parse(bytes.as_slice()).unwrap();
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, file.data()).unwrap();
    let is_there = |at: u64| {
        let segment = headers.iter().find(|header| {
            let from = header.p_vaddr(endian);
            header.p_type(endian) == object::elf::PT_LOAD
                && header.p_flags(endian) & object::elf::PF_X != 0
                && (from..from + header.p_filesz(endian)).contains(&at)
        });
        segment.is_some_and(|header| {
            let offset = usize::try_from(at - header.p_vaddr(endian) + header.p_offset(endian));
            [0x90, 0x1f].contains(&bytes[offset.unwrap()])
        })
    };
    notes(&file).into_iter().map(|(name, [nop, _])| (name, is_there(nop))).collect()
}

/// Traces 20 calls from a client to a server, which is of another program.
#[track_caller]
fn trace(server: &Path, client: &Path, library: Option<&Path>) {
    for (file, has, lacks) in
        [(server, "message", "reply"), (library.unwrap_or(client), "reply", "message")]
    {
        let found = probes(file);
        let name = file.display();
        assert!(found.iter().all(|(_, is_there)| *is_there), "{name}: {found:?}");
        assert!(found.iter().any(|(probe, _)| probe == has), "{name}: {found:?}");
        // A library keeps both: whoever loads it may call any of its functions.
        assert!(found.iter().all(|(probe, _)| probe != lacks), "{name}: {found:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_program(server, None, dir.path());
    let mut client = Process::start_program(client, library, dir.path());
    let mut command = Command::new(TRACER);
    let pid = server.pid().to_string();
    command.args(["breakdown", "--json", "--rate", "all", "-p", &pid]);
    let Some(tracer) = Tracer::start_by(command) else { return };
    client.ask("20");
    let (tables, status, messages) = tracer.finish_with_messages();
    assert!(status.success(), "{messages}");
    assert_eq!(tables.len(), 1, "{messages}");
    let table = &tables[0];
    assert_eq!(table["calls"], 20, "{messages}: {table:#}");
    assert_eq!(table["server"], server.pid(), "{table:#}");
    assert_eq!(table["client"], client.pid(), "{table:#}");
}

#[test]
fn two_programs_are_traced_however_they_are_linked() {
    for build in Build::ALL {
        eprintln!("{build:?}");
        let files = ["traced-server", "traced-client"].map(|name| build.file(name));
        let [Some(server), Some(client)] = files else { continue };
        trace(&server, &client, None);
    }
}

#[test]
fn a_client_that_is_loaded_as_a_library_is_traced() {
    let files = ["traced-server", "traced-host", "libtraced_client.so"];
    let [Some(server), Some(host), Some(library)] = files.map(|name| Build::Plain.file(name))
    else {
        return;
    };
    trace(&server, &host, Some(&library));
}

/// What a tool prints; `None`, with a message, if it is not installed.
fn printed(command: &mut Command) -> Option<String> {
    let Ok(output) = command.output() else {
        skip(&format!("{:?} is not installed", command.get_program()));
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The names after the last colon of the lines with this prefix.
fn names(text: &str, prefix: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| line.contains(prefix));
    let mut names: Vec<String> = lines
        .filter_map(|line| line.rsplit(':').next()?.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

#[test]
fn other_tools_see_the_same_probes() {
    let Some(server) = Build::Plain.file("traced-server") else { return };
    let mut ours: Vec<String> = probes(&server).into_iter().map(|(name, _)| name).collect();
    ours.sort();
    let pattern = format!("usdt:{}:*", server.display());
    let Some(listed) = printed(Command::new("bpftrace").args(["-l", &pattern])) else { return };
    assert_eq!(names(&listed, ":bellwire:"), ours, "{listed}");
    let home = tempfile::tempdir().unwrap();
    let perf = |args: &[&str]| -> Option<String> {
        printed(Command::new("perf").env("HOME", home.path()).args(args))
    };
    let path: PathBuf = server;
    if perf(&["buildid-cache", "--add", path.to_str().unwrap()]).is_none() {
        return;
    }
    let Some(listed) = perf(&["list", "--raw-dump", "sdt"]) else { return };
    let listed = listed.split_whitespace().collect::<Vec<_>>().join("\n");
    assert_eq!(names(&listed, "sdt_bellwire:"), ours, "{listed}");
}
