//! Bytes that travel unencoded: where they are, and that they arrive.

use std::thread;

use bellwire::{CallError, Client, Payload, Service};

use crate::support::blob_server::{BlobServer, is_answer, request, request_by};
use crate::support::blobs::{Blobs, Storage, number, submit};
use crate::support::child::Process;
use crate::support::guard::until;
use crate::support::test_server::{Dir, client_config, provide, reconcile_session};

#[test]
fn one_call_site_serves_few_bytes_and_many() {
    let blob_server = BlobServer::open::<Blobs>("");
    for doorbell in 1..=3 {
        let mut client = blob_server.client::<Blobs>(&format!("doorbell={doorbell}"));
        for len in [8, 9, 100, 8144, 8145, 100_000, 1 << 20, (32 << 20) - 1, 32 << 20, 40 << 20] {
            let request = Storage::Built.make(number(len, Storage::Built), len);
            let answer = client.call(&request.unwrap()).unwrap();
            is_answer(&answer, len, Storage::Built);
            assert_eq!(answer.is_mapped(), len >= Payload::ATTACH_FROM, "{len}");
        }
    }
    assert_eq!(blob_server.close().answered, 30);
}

#[test]
fn no_bytes_at_all_travel_in_every_way() {
    // The blobs of nothing: a service that answers with what it gets.
    struct Mirror;
    impl Service for Mirror {
        const NAME: &'static str = "mirror";
        type Request = Payload;
        type Response = Payload;
    }
    let dir = Dir::new();
    let _server = provide::<Mirror>(&dir.run_dir, |_, request| Ok(request));
    let mut client = Client::<Mirror>::with_config(&dir.run_dir, client_config());
    for empty in [Payload::from(vec![]), Payload::build_from(0, 0, |_| {}).unwrap()] {
        assert_eq!(&*client.call(&empty).unwrap(), b"");
        // What was received in a memfd is sent on as bytes: it is another process's memfd.
        let sealed = Payload::build_from(0, 3, |into| into.copy_from_slice(b"abc")).unwrap();
        assert_eq!(&*client.call(&sealed).unwrap(), b"abc");
    }
}

#[test]
fn attach_from_is_where_memory_of_its_own_begins() {
    let settings = "stream=0 attach=1000";
    for (server, client, by) in [(settings, "", 1), ("", settings, 0), (settings, settings, 2)] {
        let blob_server = BlobServer::open::<Blobs>(server);
        let mut client = blob_server.client::<Blobs>(client);
        let session = client.session().unwrap();
        let answer = submit(session, &request(999, 999)).unwrap();
        assert!(!answer.is_mapped());
        let stats = session.stats();
        assert_eq!([stats.requests.attaches, stats.answers.attaches], [0, 0]);
        let answer = session.call(&request(1000, 1000)).unwrap();
        is_answer(&answer, 1000, Storage::Private);
        let stats = session.stats();
        let attaches = [stats.requests.attaches, stats.answers.attaches];
        assert_eq!(attaches, [[1, 0], [0, 1], [1, 1]][by]);
        assert_eq!(answer.is_mapped(), attaches[1] == 1);
    }
}

#[test]
fn a_received_payload_outlives_its_session_and_its_provider() {
    let blob_server = BlobServer::open::<Blobs>("");
    let mut client = blob_server.client::<Blobs>("");
    let sealed = request_by(100, Storage::Private, 3 << 20, Storage::Sealed);
    let answer = client.call(&sealed).unwrap();
    drop(client);
    assert!(answer.is_mapped());
    is_answer(&answer, 3 << 20, Storage::Sealed);
    blob_server.close();
    let again = answer.clone();
    drop(answer);
    is_answer(&again, 3 << 20, Storage::Sealed);

    // Its process, too.
    let dir = Dir::new();
    let mut server = Process::start("blobs", &dir.run_dir);
    let config = client_config();
    let mut client = Client::<Blobs>::with_config(&dir.run_dir, config);
    let answer = client.call(&sealed).unwrap();
    server.kill();
    is_answer(&answer, 3 << 20, Storage::Sealed);
    assert!(client.call(&sealed).is_err());
    is_answer(&answer, 3 << 20, Storage::Sealed);
}

#[test]
fn workers_take_and_make_payloads() {
    let blob_server = BlobServer::open::<Blobs>("workers=2 stream=0");
    let mut client = blob_server.client::<Blobs>("stream=0");
    let session = client.session().unwrap();
    let mut sent = Vec::new();
    for round in 0..60_usize {
        let len = 8 + (round * 7919) % 40_000;
        let how = if round % 3 == 0 { Storage::Sealed } else { Storage::Private };
        let request = request_by(len, how, len + round, how);
        let ticket = loop {
            match session.submit(&request) {
                Ok(ticket) => break ticket,
                Err(CallError::WouldBlock) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        sent.push((ticket, len + round, how));
        if round % 10 == 9 {
            until("all answers come", || {
                if let Some((ticket, answer)) = session.try_reply().unwrap() {
                    let at = sent.iter().position(|(sent, ..)| *sent == ticket).unwrap();
                    let (_, len, how) = sent.swap_remove(at);
                    let answer = answer.unwrap();
                    is_answer(&answer, len, how);
                    assert_eq!(answer.is_mapped(), how == Storage::Sealed);
                }
                sent.is_empty()
            });
        }
    }
    reconcile_session(session);
    drop(client);
    assert_eq!(blob_server.close().answered, 60);
}

#[test]
fn a_payload_that_is_dropped_while_it_travels_arrives() {
    let (blob_server, gate, arrivals) = BlobServer::gated::<Blobs>("");
    let mut client = blob_server.client::<Blobs>("");
    let session = client.session().unwrap();
    for _ in 0..3 {
        let sealed = request_by(2 << 20, Storage::Sealed, 2 << 20, Storage::Sealed);
        session.submit(&sealed).unwrap();
    }
    assert_eq!(arrivals.next(), 2 << 20);
    gate.open();
    let mut answers = 0;
    until("all three come", || {
        if let Some((_, answer)) = session.try_reply().unwrap() {
            is_answer(&answer.unwrap(), 2 << 20, Storage::Sealed);
            answers += 1;
        }
        answers == 3
    });
}
