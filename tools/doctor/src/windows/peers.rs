use std::os::windows::io::AsHandle;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::check::{Check, CheckResult, Finding, Group};
use bellwire_core::ServiceName;
use tempfile::TempDir;

use bellwire_win::doorbell::Event;
use bellwire_win::endpoint::Endpoint;
use bellwire_win::pass::{Channel, ReceiveError, Received};
use bellwire_win::peer::{self, Process, ProcessAccess};
use bellwire_win::prelude::*;
use bellwire_win::{clock, poll};

const TIMEOUT: Duration = Duration::from_secs(5);
const SERVICE: ServiceName = ServiceName::constant("doctor");

/// Checks peer credentials and handle passing.
pub(super) fn checks(child: &mut Command) -> Vec<Check> {
    let mut group = Group::new("peers");
    let blocked = "something blocks named pipes or OpenProcess: look at the rules of the sandbox or the security software";
    group.required("named pipe, message mode", blocked, messages());
    group.required("DuplicateHandle through it", blocked, pass_handle());
    group.required("identity by token", blocked, identity());
    group.optional(
        "first instance of a pipe",
        "the lock file alone keeps two providers apart here",
        first_instance(),
    );
    group.required("end of a process", "without it nobody learns of a peer's death", end_of(child));
    group.into_checks()
}

/// Both ends of a pipe in this process.
struct Pair {
    server: Channel,
    client: Channel,
    endpoint: Endpoint,
    // Removed last.
    _dir: TempDir,
}

impl Pair {
    fn connect() -> Result<Self, Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let admission = bellwire_win::admission::Admission::SameUser;
        let endpoint = Endpoint::reserve(dir.path(), SERVICE, &admission, false, None)?;
        let until = Some(clock::now().after(TIMEOUT));
        let client = Endpoint::connect(dir.path(), SERVICE, &[], until)?;
        poll::wait(&[endpoint.as_handle()], until)?;
        let server = endpoint.accept()?.ok_or("nobody was seen to connect")?;
        Ok(Self { server, client, endpoint, _dir: dir })
    }
}

fn messages() -> CheckResult {
    let pair = Pair::connect()?;
    pair.client.send(b"one", &[])?;
    pair.client.send(b"two", &[])?;
    let mut bytes = [0; 64];
    if receive(&pair.server, &mut bytes)?.len != 3 {
        return Err("messages ran together".into());
    }
    Ok(Finding::ok("each message arrives as it was sent, from this machine alone"))
}

fn pass_handle() -> CheckResult {
    let mut pair = Pair::connect()?;
    pair.server.reach(peer::process(&pair.server, ProcessAccess::Handles)?);
    let event = Event::create()?;
    let mut bytes = [0; 64];
    for (from, to) in [(&pair.server, &pair.client), (&pair.client, &pair.server)] {
        from.send(b"bell", &[event.for_peer()?.as_handle()])?;
        let bell = receive(to, &mut bytes)?.into_objects().next().ok_or("no handle arrived")?;
        Event::from_peer(bell)?.ring();
        if !event.drain() {
            return Err("another handle arrived".into());
        }
    }
    Ok(Finding::ok("a handle arrived with its message, both ways"))
}

fn identity() -> CheckResult {
    let pair = Pair::connect()?;
    pair.client.send(b"hello", &[])?;
    receive(&pair.server, &mut [0; 64])?;
    let (own, claimed) = (peer::own_user()?, peer::Credentials::of(&pair.server)?);
    let shown = peer::client_user(&pair.server)?;
    if claimed.pid != std::process::id() || claimed.user != own || shown != own {
        return Err(format!("wrong: {claimed:?}, and a token of {shown}").into());
    }
    Ok(Finding::ok(format!("{own} and process {}, as they are", claimed.pid)))
}

fn first_instance() -> CheckResult {
    let pair = Pair::connect()?;
    Ok(match pair.endpoint.is_recreatable()? {
        false => Finding::ok("a name that is taken is not shared"),
        true => Finding::missing("a second process could make a pipe of a name that is taken"),
    })
}

fn end_of(child: &mut Command) -> CheckResult {
    let mut child =
        child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let process = Process::open(child.id(), ProcessAccess::Watch);
    let ended = process
        .and_then(|process| poll::wait(&[process.as_handle()], Some(clock::now().after(TIMEOUT))));
    child.wait()?;
    if ended?.is_none() {
        return Err("the end of a process was not reported".into());
    }
    Ok(Finding::ok("the end of a process was seen"))
}

/// Waits for a message.
fn receive(channel: &Channel, bytes: &mut [u8]) -> Result<Received, Box<dyn std::error::Error>> {
    let until = Some(clock::now().after(TIMEOUT));
    loop {
        match channel.receive(bytes, 4) {
            Err(ReceiveError::WouldBlock) => {}
            received => return Ok(received?),
        }
        if poll::wait(&[channel.arrived()], until)?.is_none() {
            return Err("a message did not arrive".into());
        }
    }
}
