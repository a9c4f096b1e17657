//! A peer that is stopped (SIGSTOP), and one that never reads.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use bellwire::{
    Backoff, Backpressure, CallError, Client, CloseReason, Doorbell, Executed, IncidentCause,
    RunDir, ServerConfig, Session,
};
use bellwire_memfd::poll;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::child::{Parent, Process};
use crate::support::guard::{TEST_TIMEOUT, test_deadline, until};
use crate::support::parked::once_parked;
use crate::support::roles::parse_stats;
use crate::support::services::{Echo, Hold};
use crate::support::test_server::{Dir, TestServer, client_config};

const DOORBELLS: [Doorbell; 3] = [Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket];
const SOON: Duration = Duration::from_millis(100);

/// A process that is stopped, until it is dropped.
pub(crate) struct Stopped<'a>(&'a Process);

impl<'a> Stopped<'a> {
    /// Stops all of its threads, and waits until they are.
    pub(crate) fn new(process: &'a Process) -> Self {
        signal(process, Signal::STOP);
        until("all its threads are stopped", || {
            let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
            let mut stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
            stats
                .all(|stat| stat.unwrap().rsplit(')').next().unwrap().trim_start().starts_with('T'))
        });
        Self(process)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

fn signal(process: &Process, signal: Signal) {
    let pid = Pid::from_raw(process.pid().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Sends requests and takes no answer, until neither lane has room. How many went out.
fn flood(session: &mut Session<Echo>) -> u64 {
    let request = vec![7; 1000];
    let mut sent = 0;
    // Once more after a while: the provider may have taken some.
    let mut failed = 0;
    while failed < 100 {
        match session.submit(&request) {
            Ok(_) => (sent, failed) = (sent + 1, 0),
            Err(CallError::WouldBlock) => {
                failed += 1;
                thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

/// The role of a client that takes no answers until told to.
pub(crate) fn stop_reading(mut parent: Parent) {
    let mut client = Client::<Echo>::with_config(&RunDir::from_environment(), client_config());
    client.connect().unwrap();
    parent.send_line("ready");
    while let Some(line) = parent.next_line() {
        let session = client.session();
        let reply = match &*line {
            "flood" => flood(session.unwrap()).to_string(),
            "take" => {
                let session = session.unwrap();
                let mut answers = 0;
                let error = loop {
                    match session.try_reply() {
                        Ok(Some((_, answer))) => answers += u64::from(answer.unwrap() == [7; 1000]),
                        Ok(None) => thread::yield_now(),
                        Err(error) => break error,
                    }
                };
                format!("{answers} {:?} {error:?}", error.kind())
            }
            "call" => format!("{:?}", client.call(&vec![1])),
            line => panic!("what is {line:?}?"),
        };
        parent.send_line(&reply);
    }
}

#[test]
fn a_call_on_a_stopped_provider_ends_at_its_deadline_and_the_session_resumes_with_it() {
    for doorbell in DOORBELLS {
        let dir = Dir::new();
        let server = Process::start("server", &dir.run_dir);
        let config = client_config().doorbell(doorbell);
        let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
        assert_eq!(client.call(&vec![1]).unwrap(), [1]);
        let stopped = Stopped::new(&server);
        for _ in 0..3 {
            let begun = Instant::now();
            let failed = client.call_within(&vec![2], SOON);
            assert!(matches!(failed, Err(CallError::Deadline { .. })), "{doorbell:?}: {failed:?}");
            assert!(begun.elapsed() >= SOON, "{doorbell:?}");
        }
        drop(stopped);
        // The answers that come too late are dropped.
        assert_eq!(client.call(&vec![3]).unwrap(), [3], "{doorbell:?}");
        assert_eq!(client.session().unwrap().stats().failed, 3);
    }
}

#[test]
fn cancelling_from_another_thread_ends_a_call_on_a_stopped_provider() {
    for doorbell in DOORBELLS {
        let dir = Dir::new();
        let server = Process::start("server", &dir.run_dir);
        let config = client_config().doorbell(doorbell);
        let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
        let canceller = client.canceller().unwrap();
        assert_eq!(client.call(&vec![1]).unwrap(), [1]);
        let _stopped = Stopped::new(&server);
        let begun = Instant::now();
        let from_elsewhere = once_parked(move || canceller.cancel());
        let failed = client.call_within(&vec![2], TEST_TIMEOUT * 2);
        from_elsewhere.join().unwrap();
        assert!(matches!(failed, Err(CallError::Cancelled { .. })), "{doorbell:?}: {failed:?}");
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "{doorbell:?}: it was not the cancel that ended it"
        );
    }
}

#[test]
fn a_stopped_client_holds_up_no_other_and_costs_a_bounded_amount_of_memory() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let mut other = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(other.call(&vec![1]).unwrap(), [1]);
    let mut stalled = Process::start("not-reading", &dir.run_dir);
    let before = memory(server.pid());
    let sent: u64 = stalled.ask("flood").parse().unwrap();
    let _stopped = Stopped::new(&stalled);
    for at in 0..1000_u64 {
        let request = at.to_le_bytes().to_vec();
        assert_eq!(other.call(&request).unwrap(), request);
    }
    let grown = memory(server.pid()).saturating_sub(before);
    println!("{sent} requests of 1000 bytes, answers unread: the server grew by {grown} KiB");
    // Both lanes as large as fullness makes them, 256 KiB each, epochs in flight, and one answer.
    assert!(grown < 2 << 10, "{grown} KiB");
    let stats = parse_stats(&server.ask("stats"));
    assert_eq!((stats.sessions, stats.poisoned, stats.refused), (2, 0, 0));
}

/// Resident, in KiB.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn short_stall_timeout() -> ServerConfig {
    ServerConfig::default().stall_timeout(Some(5 * SOON)).workers(2)
}

#[test]
fn a_stopped_client_is_closed_after_the_timeout_and_finds_the_reason_when_resumed() {
    let fixture = TestServer::with(short_stall_timeout());
    let mut other = fixture.client::<Echo>();
    let mut stalled = Process::start("not-reading", fixture.run_dir());
    let sent: u64 = stalled.ask("flood").parse().unwrap();
    let stopped = Stopped::new(&stalled);
    until("its session is closed", || fixture.stats().stalled == 1);
    assert_eq!(fixture.stats().sessions, 1);
    assert!(matches!(fixture.recorded_incidents()[..], [IncidentCause::Stalled]));
    assert_eq!(other.call(&vec![1]).unwrap(), [1]);
    drop(stopped);
    let reply = stalled.ask("take");
    let (answers, why) = reply.split_once(' ').unwrap();
    assert!(why.starts_with("Stalled Closed {"), "{reply}");
    // What was published before is still read.
    let answers: u64 = answers.parse().unwrap();
    assert!(answers > 0 && answers <= sent, "{reply}, of {sent}");
    assert_eq!(stalled.ask("call"), "Ok([1])", "on a new session");
    drop((stalled, other));
    let stats = fixture.close();
    assert_eq!((stats.stalled, stats.poisoned, stats.admitted), (1, 0, 3));
}

#[test]
fn a_client_that_runs_and_never_reads_is_closed_like_a_stopped_one() {
    let fixture = TestServer::with(short_stall_timeout());
    let mut client = fixture.client::<Echo>();
    let session = client.session().unwrap();
    // One answer, for which there is room, is enough.
    session.submit(&vec![1]).unwrap();
    until("its session is closed", || fixture.stats().stalled == 1);
    let (_, answer) = session.try_reply().unwrap().expect("it was published before");
    assert_eq!(answer.unwrap(), [1]);
    let over = session.try_reply().map(drop);
    assert!(
        matches!(
            over,
            Err(CallError::Closed { reason: CloseReason::Stalled, executed: Executed::No })
        ),
        "{over:?}"
    );
    for over in [session.wait_batch(TEST_TIMEOUT).map(drop), session.wait()] {
        assert!(
            matches!(
                over,
                Err(CallError::Closed { reason: CloseReason::Stalled, executed: Executed::No })
            ),
            "{over:?}"
        );
    }
    assert_eq!(client.call(&vec![2]).unwrap(), [2]);
    drop(client);
    assert_eq!(fixture.close().stalled, 1);
}

#[test]
fn a_client_that_waits_long_and_takes_everything_is_not_closed() {
    let fixture = TestServer::with(short_stall_timeout());
    let mut slow = fixture.client::<Hold>();
    let mut idle = fixture.client::<Echo>();
    assert_eq!(idle.call(&vec![1]).unwrap(), [1]);
    let mut trimmed = fixture.client::<Echo>();
    trimmed.session().unwrap().trim().unwrap();
    let ticket = slow.session().unwrap().submit(&1).unwrap();
    assert_eq!(fixture.arrivals.next(), 1);
    // Others are closed meanwhile: so the time is over for these three, too.
    for times in 1..=3 {
        let mut stalled = fixture.client::<Echo>();
        stalled.session().unwrap().submit(&vec![2]).unwrap();
        until("somebody else is closed", || fixture.stats().stalled >= times);
    }
    fixture.release();
    let (answered, answer) = slow.session().unwrap().wait_reply(TEST_TIMEOUT).unwrap();
    assert_eq!((answered, answer.unwrap()), (ticket, 1));
    assert_eq!(idle.session().unwrap().call(&vec![3]).unwrap(), [3], "the same session");
    assert_eq!(trimmed.session().unwrap().call(&vec![4]).unwrap(), [4], "the same session");
    drop((slow, idle, trimmed));
    assert_eq!(fixture.close().stalled, 3);
}

#[test]
fn a_client_leaves_a_provider_that_takes_nothing_and_reconnects_when_it_resumes() {
    let dir = Dir::new();
    let mut server = Process::start("server", &dir.run_dir);
    let backoff =
        Backoff::default().initial(Duration::from_micros(10)).max(Duration::from_micros(100));
    let config = client_config().stall_timeout(Some(SOON)).backoff(backoff);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, config);
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    let stopped = Stopped::new(&server);
    let mut calls = 0;
    until("the client gives its session up", || {
        let failed = client.call_within(&vec![2], SOON / 4);
        assert!(matches!(failed, Err(CallError::Deadline { .. })), "{failed:?}");
        calls += 1;
        client.session().is_none()
    });
    assert!(calls > 1, "the first call to fail is not the last");
    drop(stopped);
    until("another session opens", || client.call(&vec![3]).is_ok_and(|answer| answer == [3]));
    // They are shown when the reactor sleeps next.
    until("the session is counted, and nothing else", || {
        let stats = parse_stats(&server.ask("stats"));
        (stats.sessions, stats.poisoned) == (1, 0)
    });
}

#[test]
fn an_event_loop_that_met_a_full_lane_learns_of_room_before_any_answer() {
    for doorbell in [Doorbell::Eventfd, Doorbell::Socket] {
        let dir = Dir::new();
        let mut server = Process::start("server 1", &dir.run_dir);
        let config = client_config().doorbell(doorbell).backpressure(Backpressure::Fail);
        let mut client = Client::<Hold>::with_config(&dir.run_dir, config);
        let session = client.connect().unwrap();
        session.submit(&0).unwrap();
        assert_eq!(server.next_line(), "came 0");
        let stopped = Stopped::new(&server);
        while session.submit(&1).is_ok() {}
        assert!(!session.arm_for_room().unwrap(), "{doorbell:?}");
        drop(stopped);
        let rung = session.pollable().unwrap();
        assert!(poll::wait_readable(&[rung], Some(test_deadline())).unwrap().any(), "{doorbell:?}");
        assert!(session.try_reply().unwrap().is_none(), "its worker is held");
        session.submit(&2).unwrap();
    }
}
