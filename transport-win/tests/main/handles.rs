//! Nothing keeps a handle longer than it should. Each test runs in a process of its own, whose handles are
//! counted before and after.
#![allow(unsafe_code, reason = "asks about handles by their numbers")]

use std::os::windows::io::AsHandle;

use bellwire_core::{Bell, Park, Port};
use bellwire_win::doorbell::Event;
use bellwire_win::peer::{Process, ProcessAccess};
use bellwire_win::poll::{Events, Interest, Poller, Trigger};
use bellwire_win::prelude::*;
use bellwire_win::region::OwnRegion;
use bellwire_win::snapshot::{SnapshotBuilder, SnapshotMap};
use bellwire_win::{clock, reaper};
use windows_sys::Win32::Foundation::GetHandleInformation;
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessHandleCount};

use crate::child;
use crate::support::{accept, bind, channels, connect, links, receive, region};

/// How many handles this process has open.
fn count() -> u32 {
    let mut count = 0;
    // SAFETY: a pseudo-handle, always valid.
    let me = unsafe { GetCurrentProcess() };
    // SAFETY: `count` is a live local.
    let result = unsafe { GetProcessHandleCount(me, &mut count) };
    if result != 0 && count > 0 {
        return count;
    }
    // A system that does not count them: look at each number.
    let open = (4..0x1000_usize).step_by(4).filter(|number| {
        let mut flags = 0;
        // SAFETY: `flags` is a live local; a number that is no handle is an error.
        unsafe { GetHandleInformation(std::ptr::without_provenance_mut(*number), &mut flags) != 0 }
    });
    u32::try_from(open.count()).unwrap()
}

/// Runs `body` a few times and compares. The first time is for what is made once.
pub(crate) fn counted(mut body: impl FnMut()) {
    body();
    let count_when_idle = || {
        while reaper::backlog() > 0 {
            std::thread::yield_now();
        }
        count()
    };
    let before = count_when_idle();
    assert!(before > 0);
    for _ in 0..5 {
        body();
    }
    assert_eq!(count_when_idle(), before, "handles open after five rounds");
}

macro_rules! counted {
    ($($name:ident, $body:ident, $what:expr;)*) => {$(
        #[test]
        fn $name() {
            child::run(concat!("handles::", stringify!($body)));
        }

        #[test]
        fn $body() {
            if child::run_dir().is_some() {
                counted($what);
            }
        }
    )*};
}

counted! {
    regions_close_theirs, body_regions, || { region(8192); };
    refused_memory_closes_its, body_refused, || {
        let (_own, section) = OwnRegion::create("x", 8192, |_| {}).unwrap();
        bellwire_win::region::PeerRegion::verify_and_map(section, 4096).unwrap_err();
    };
    snapshots_close_theirs, body_snapshots, || {
        let snapshot = SnapshotBuilder::create("x", 100).unwrap().seal().unwrap();
        let sent = snapshot.as_handle().try_clone_to_owned().unwrap();
        SnapshotMap::of_peer(sent, 100, false).unwrap();
    };
    endpoints_close_theirs, body_endpoints, || {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = bind(dir.path(), "x");
        let client = connect(dir.path(), "x");
        let _server = accept(&endpoint);
        drop(client);
    };
    messages_close_theirs, body_messages, || {
        let (server, client) = channels();
        let event = Event::create().unwrap();
        for (from, to) in [(&server, &client), (&client, &server)] {
            from.send(b"x", &[event.as_handle()]).unwrap();
            receive(to).unwrap();
        }
    };
    unreceived_messages_close_theirs, body_unreceived, || {
        let (server, client) = channels();
        let event = Event::create().unwrap();
        server.send(b"x", &[event.as_handle()]).unwrap();
        client.send(b"x", &[event.as_handle()]).unwrap();
        drop(client);
        drop(server);
    };
    a_taken_lane_is_not_kept_by_its_sender, body_offered, || {
        let (server, client) = channels();
        let event = Event::create().unwrap();
        let mut most = Vec::new();
        for _ in 0..20 {
            client.send(b"x", &[event.as_handle()]).unwrap();
            receive(&server).unwrap();
            server.send(b"y", &[]).unwrap();
            receive(&client).unwrap();
            while reaper::backlog() > 0 {
                std::thread::yield_now();
            }
            most.push(count());
        }
        assert_eq!(most[1], most[19], "{most:?}");
    };
    links_close_theirs, body_links, || {
        let (mut a, b) = links();
        let canceller = a.canceller().unwrap();
        b.ring(Bell::Data);
        a.park(Park { tail: 0, head: None, until: Some(clock::now()) });
        canceller.cancel();
    };
    pollers_close_theirs, body_pollers, || {
        let events: Vec<_> = (0..100).map(|_| Event::create().unwrap()).collect();
        let mut poller = Poller::create().unwrap();
        for (event, token) in events.iter().zip(0..) {
            poller.add(event.as_handle(), token, Interest::readable(Trigger::Edge)).unwrap();
        }
        events[50].ring();
        poller.wait(&mut Events::default(), None).unwrap();
    };
    processes_close_theirs, body_processes, || {
        Process::open(std::process::id(), ProcessAccess::Handles).unwrap();
    };
}

/// The survivor of a session whose other end was killed holds nothing of it.
#[test]
fn a_killed_client_leaves_nothing_with_the_server() {
    child::run("handles::body_survives");
}

#[test]
fn body_survives() {
    if child::run_dir().is_none() {
        return;
    }
    counted(|| {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = bind(dir.path(), "cross");
        let mut client = child::start("handles::body_is_killed", dir.path());
        let server = accept(&endpoint);
        let (own, section) = OwnRegion::create("x", 8192, |_| {}).unwrap();
        server.send(b"x", &[section.as_handle()]).unwrap();
        receive(&server).unwrap();
        client.kill();
        assert!(receive(&server).is_err());
        drop((own, section));
    });
}

#[test]
fn body_is_killed() {
    let Some(dir) = child::run_dir() else { return };
    let client = connect(&dir, "cross");
    let event = Event::create().unwrap();
    client.send(b"x", &[event.as_handle()]).unwrap();
    child::wait_to_be_killed();
}
