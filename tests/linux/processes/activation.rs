#![allow(unsafe_code, reason = "a descriptor is put at number 3 between fork and exec")]
//! Providers at sockets that a service manager bound, as systemd's socket activation has it.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use bellwire::{CallError, Client, Doorbell, Liveness, RunDir, ServeError, Server};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::support::child::{Parent, Process};
use crate::support::guard::TEST_TIMEOUT;
use crate::support::rogue::Rogue;
use crate::support::services::{Echo, Hold, echo};
use crate::support::test_server::{Dir, client_config};

/// A socket of the service manager's, which listens.
fn bind(path: &Path, kind: SocketType) -> OwnedFd {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 16).unwrap();
    socket
}

fn echo_socket(dir: &Dir) -> PathBuf {
    dir.run_dir.path().join("echo.sock")
}

/// Starts a process with this socket as descriptor 3, and these variables, before which `$$` is its own number.
fn start(role: &str, dir: &Dir, socket: &OwnedFd, variables: &str) -> Process {
    // Not 3 itself, which dup2 would leave to be closed.
    let socket = rustix::io::fcntl_dupfd_cloexec(socket, 10).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{variables} exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().unwrap());
    // SAFETY: what the new process had as 3 is of no use to it.
    let hand_over = move || match unsafe { libc::dup2(socket.as_raw_fd(), 3) } {
        3 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(hand_over) };
    Process::start_by(command, role, &dir.run_dir)
}

/// Serves "echo" at the socket that was handed over, and tells why not.
pub(crate) fn play(mut parent: Parent) {
    let serve = || {
        let mut builder = Server::builder(&RunDir::from_environment());
        builder.inherit_sockets()?;
        builder.serve::<Echo>(echo)?;
        builder.start()
    };
    let served = serve();
    parent.send_line("ready");
    parent.send_line(&served.map_or_else(|error| error.to_string(), |_| "served".into()));
    let _ = parent.next_line();
}

const BY_SYSTEMD: &str = "LISTEN_PID=$$ LISTEN_FDS=1";

#[test]
fn clients_wait_for_an_activated_provider_and_its_successors_at_one_socket() {
    let dir = Dir::new();
    let path = dir.run_dir.path().join("hold.sock");
    let socket = bind(&path, SocketType::SEQPACKET);
    let inode = fs::metadata(&path).unwrap().ino();
    for (round, end) in ["stop", "kill", "stop"].into_iter().enumerate() {
        let who = u64::try_from(round).unwrap();
        // Its waits look at the provider's process.
        let config = client_config().doorbell(Doorbell::Eventfd);
        let mut client = Client::<Hold>::with_config(&dir.run_dir, config);
        let waits = thread::spawn(move || (client.connect().map(drop), client));
        // As the service manager does.
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], None).unwrap();
        let mut server = start("server", &dir, &socket, BY_SYSTEMD);
        let (connected, mut client) = waits.join().unwrap();
        connected.unwrap();
        let session = client.session().unwrap();
        session.submit(&who).unwrap();
        assert_eq!(server.next_line(), format!("came {who}"));
        Rogue::connect(&dir.run_dir, "hold").passes_nothing();
        // The predecessor listened when it connected: its end does not end this session.
        let early = session.wait_reply(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(early, CallError::Deadline { .. }), "{early}");
        assert_eq!(server.ask("open"), "opened");
        assert_eq!(session.wait_reply(TEST_TIMEOUT).unwrap().1.unwrap(), who);
        let endpoints = dir.run_dir.endpoints().unwrap();
        let found = endpoints.iter().find(|endpoint| endpoint.path == path).unwrap();
        assert_eq!(found.liveness, Liveness::Alive(Some(server.pid())));
        let mut other = Server::builder(&dir.run_dir);
        assert!(matches!(other.serve::<Hold>(|_, who| Ok(who)), Err(ServeError::Taken { .. })));
        if end == "stop" {
            server.ask("stop");
        }
        server.kill();
        assert_eq!(
            fs::metadata(&path).unwrap().ino(),
            inode,
            "the socket is the service manager's"
        );
    }
}

#[test]
fn a_socket_that_clients_could_not_reach_is_refused_with_the_reason() {
    let dir = Dir::new();
    let path = echo_socket(&dir);
    let try_with =
        |socket: &OwnedFd, variables: &str| start("activated", &dir, socket, variables).next_line();
    let stream = bind(&path, SocketType::STREAM);
    let reply = try_with(&stream, BY_SYSTEMD);
    assert!(reply.contains("ListenSequentialPacket= with Accept=no"), "{reply}");
    fs::remove_file(&path).unwrap();
    let reply = try_with(&stream, "LISTEN_PID=$$ LISTEN_FDS=99");
    assert!(reply.contains("LISTEN_FDS is \"99\"") && reply.contains("is not open"), "{reply}");
    let reply = try_with(&stream, "LISTEN_PID=$$ LISTEN_FDS=-1");
    assert!(reply.contains("LISTEN_FDS is \"-1\""), "{reply}");
    let elsewhere = bind(&dir.run_dir.path().join("echo"), SocketType::SEQPACKET);
    let reply = try_with(&elsewhere, BY_SYSTEMD);
    assert!(reply.contains("/echo is not ") && reply.contains("/NAME.sock"), "{reply}");
    let gone = bind(&path, SocketType::SEQPACKET);
    fs::rename(&path, dir.run_dir.path().join("moved")).unwrap();
    let stale = bind(&path, SocketType::SEQPACKET);
    drop(stale);
    let reply = try_with(&gone, BY_SYSTEMD);
    assert!(reply.contains("restart the socket's unit"), "{reply}");
    assert!(path.exists(), "nothing is removed");
    // Of another process: the variables were inherited.
    assert_eq!(try_with(&gone, "LISTEN_PID=1 LISTEN_FDS=1"), "served");
}
