use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};

use bellwire_core::wire::MAX_CONTROL;
use bellwire_win::doorbell::Event;
use bellwire_win::pass::{MAX_HANDLES, ReceiveError, SendError};
use bellwire_win::prelude::*;
use bellwire_win::region::{OwnRegion, PeerRegion};

use crate::child;
use crate::region::{UPGRADES, duplicate};
use crate::support::{accept, bind, channels, connect, is_ready, ready, receive, taken};

const SIZE: usize = 8192;

#[test]
fn messages_keep_their_bounds_and_their_order() {
    let (server, client) = channels();
    for len in [1, 2, 8, 511, MAX_CONTROL] {
        client.send(&vec![7; len], &[]).unwrap();
    }
    for len in [1, 2, 8, 511, MAX_CONTROL] {
        assert_eq!(receive(&server).unwrap().0, vec![7; len]);
    }
    assert!(!is_ready(server.arrived()));
    let too_long = client.send(&[0; MAX_CONTROL + 1], &[]);
    assert_eq!(too_long, Err(SendError::TooLong { len: MAX_CONTROL + 1 }));
}

#[test]
fn a_message_longer_than_the_room_is_refused() {
    let (server, client) = channels();
    client.send(&[1; 9], &[]).unwrap();
    assert!(ready(server.arrived()));
    let received = server.receive(&mut [0; 8], 0).map(|_| ());
    assert_eq!(received, Err(ReceiveError::TooLong { room: 8 }));
}

#[test]
fn handles_cross_in_both_directions() {
    let (server, client) = channels();
    for (from, to) in [(&server, &client), (&client, &server)] {
        let (own, section) = OwnRegion::create("crossing", SIZE, |_| {}).unwrap();
        let event = Event::create().unwrap();
        let ringer = event.for_peer().unwrap();
        own.write(0, b"seen");
        from.send(b"two", &[section.as_handle(), ringer.as_handle()]).unwrap();
        drop((section, ringer));
        let (bytes, received) = receive(to).unwrap();
        assert_eq!((&bytes[..], received.count()), (&b"two"[..], 2));
        let [section, ringer] = taken(received);
        for access in UPGRADES {
            assert_eq!(duplicate(section.as_handle(), access).map(|_| ()), Err(5), "{access:#x}");
        }
        let peer = PeerRegion::verify_and_map(section, SIZE).unwrap();
        assert_eq!(peer.read_header::<4>(0), *b"seen");
        Event::from_peer(ringer).unwrap().ring();
        assert!(event.drain());
    }
}

#[test]
fn more_handles_than_allowed_are_refused() {
    let (server, client) = channels();
    let event = Event::create().unwrap();
    let many = vec![event.as_handle(); MAX_HANDLES + 1];
    assert_eq!(client.send(b"x", &many), Err(SendError::TooManyObjects { count: 33, max: 32 }));
    for (from, to) in [(&server, &client), (&client, &server)] {
        from.send(b"x", &many[..9]).unwrap();
        assert_eq!(receive(to).map(|_| ()), Err(ReceiveError::TooManyObjects { count: 9, max: 8 }));
        from.send(b"after", &many[..8]).unwrap();
        assert_eq!(receive(to).unwrap().1.count(), 8);
    }
}

#[test]
fn a_server_that_has_not_opened_the_client_sends_no_handle() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "far");
    let _client = connect(dir.path(), "far");
    assert!(ready(endpoint.as_handle()));
    let server = endpoint.accept().unwrap().expect("a client");
    let event = Event::create().unwrap();
    assert_eq!(server.send(b"x", &[event.as_handle()]), Err(SendError::NoReach));
    assert_eq!(server.send(b"x", &[]), Ok(()));
}

#[test]
fn a_full_pipe_neither_blocks_its_sender_nor_loses_messages() {
    let (server, client) = channels();
    let mut sent = 0_u32;
    let full = loop {
        match client.send(&sent.to_le_bytes(), &[]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 1_000_000);
    };
    assert_eq!(full, SendError::WouldBlock);
    for expected in 0..sent {
        assert_eq!(receive(&server).unwrap().0, expected.to_le_bytes());
    }
    client.send(b"again", &[]).unwrap();
    assert_eq!(receive(&server).unwrap().0, b"again");
}

#[test]
fn messages_sent_before_a_close_arrive() {
    for close_the_server in [true, false] {
        let (server, client) = channels();
        let (closing, staying) = if close_the_server { (server, client) } else { (client, server) };
        closing.send(b"last", &[]).unwrap();
        closing.send(b"words", &[]).unwrap();
        drop(closing);
        assert_eq!(receive(&staying).unwrap().0, b"last");
        assert_eq!(receive(&staying).unwrap().0, b"words");
        assert_eq!(receive(&staying).map(|_| ()), Err(ReceiveError::Closed));
        assert!(is_ready(staying.arrived()), "a closed pipe stays ready");
        assert_eq!(staying.send(b"x", &[]), Err(SendError::Gone));
    }
}

#[test]
fn handles_cross_between_two_processes() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "cross");
    let mut child = child::start("pass::body_swaps", dir.path());
    let server = accept(&endpoint);
    let (own, section) = OwnRegion::create("servers", SIZE, |_| {}).unwrap();
    own.write(100, b"from the server");
    let event = Event::create().unwrap();
    let ringer = event.for_peer().unwrap();
    server.send(b"mine", &[section.as_handle(), ringer.as_handle()]).unwrap();
    let (bytes, received) = receive(&server).unwrap();
    assert_eq!(bytes, b"theirs");
    let [section] = taken(received);
    let peer = PeerRegion::verify_and_map(section, SIZE).unwrap();
    assert_eq!(peer.read_header::<15>(100), *b"from the client");
    assert!(ready(event.as_handle()), "the client rings");
    server.send(b"done", &[]).unwrap();
    assert!(child.wait());
}

#[test]
fn body_swaps() {
    let Some(dir) = child::run_dir() else { return };
    let client = connect(&dir, "cross");
    let (_, received) = receive(&client).unwrap();
    let [section, ringer] = taken(received);
    for access in UPGRADES {
        assert_eq!(duplicate(section.as_handle(), access).map(|_| ()), Err(5), "{access:#x}");
    }
    let peer = PeerRegion::verify_and_map(section, SIZE).unwrap();
    assert_eq!(peer.read_header::<15>(100), *b"from the server");
    let (own, section) = OwnRegion::create("clients", SIZE, |_| {}).unwrap();
    own.write(100, b"from the client");
    client.send(b"theirs", &[section.as_handle()]).unwrap();
    drop(section);
    Event::from_peer(ringer).unwrap().ring();
    assert_eq!(receive(&client).unwrap().0, b"done");
}

#[test]
fn a_client_that_names_an_invalid_handle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "rogue");
    let pipe = std::fs::OpenOptions::new().read(true).write(true).open(endpoint.pipe()).unwrap();
    let server = accept(&endpoint);
    let event = Event::create().unwrap();
    let good = event.as_handle();
    let frame = |numbers: &[u64]| {
        let count = u32::try_from(numbers.len()).unwrap();
        let mut bytes = [count.to_le_bytes(), [0; 4]].concat();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(b"message");
        bytes
    };
    let send = |bytes: &[u8]| {
        use std::io::Write;
        (&pipe).write_all(bytes).unwrap();
    };
    for number in [0, 3, u64::MAX, u64::MAX - 1, 1 << 40] {
        send(&frame(&[number_of(good), number]));
        assert_eq!(receive(&server).map(|_| ()), Err(ReceiveError::NoHandle), "{number:#x}");
    }
    send(&frame(&[0x7fff_fff0]));
    assert!(matches!(receive(&server), Err(ReceiveError::Handle { .. })));
    send(&frame(&[number_of(good)])[..12]);
    assert_eq!(receive(&server).map(|_| ()), Err(ReceiveError::TooShort));
    send(&[1, 0, 0]);
    assert_eq!(receive(&server).map(|_| ()), Err(ReceiveError::TooShort));
    send(&[0xff; 8]);
    let error = receive(&server).map(|_| ()).unwrap_err();
    assert!(matches!(error, ReceiveError::TooManyObjects { .. }), "{error}");
    send(&frame(&[number_of(good)]));
    let [taken] = taken(receive(&server).unwrap().1);
    Event::from_peer(taken).unwrap().ring();
    assert!(event.drain(), "an honest one is taken after all that");
    send(&[0; 2000]);
    assert!(matches!(receive(&server), Err(ReceiveError::TooLong { .. })));
}

fn number_of(handle: BorrowedHandle<'_>) -> u64 {
    handle.as_raw_handle().addr() as u64
}

#[test]
fn a_file_that_crosses_is_no_memory() {
    let (server, client) = channels();
    let file = OwnedHandle::from(tempfile::tempfile().unwrap());
    client.send(b"file", &[file.as_handle()]).unwrap();
    let [file] = taken(receive(&server).unwrap().1);
    assert!(PeerRegion::verify_and_map(file, SIZE).is_err());
}

#[test]
fn a_pipe_outlives_the_thread_that_opened_it() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = bind(dir.path(), "moved");
    // The reads that it has started end with the thread.
    let client =
        std::thread::scope(|scope| scope.spawn(|| connect(dir.path(), "moved")).join().unwrap());
    let server = accept(&endpoint);
    for round in 0..3 {
        server.send(&[round], &[]).unwrap();
        assert_eq!(receive(&client).unwrap().0, [round]);
    }
    drop(server);
    assert_eq!(receive(&client).map(|_| ()), Err(ReceiveError::Closed));
}
