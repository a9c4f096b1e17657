//! Protocol Buffers between ends of different age.

use bellwire::{Client, RunDir, Server};
use bellwire_codec::{Message, Proto, proto_schema};

/// Version 1 of a message, and version 2 with another field.
#[derive(Clone, PartialEq, prost::Message)]
struct Disk1 {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    reads: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Disk2 {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    reads: u64,
    #[prost(string, optional, tag = "3")]
    model: Option<String>,
}

macro_rules! named {
    ($($message:ident $service:ident),*) => {$(
        impl prost::Name for $message {
            const NAME: &'static str = "Disk";
            const PACKAGE: &'static str = "disks.v1";
        }

        #[derive(bellwire::Service)]
        #[service(
            name = "disk",
            request = Proto<$message>,
            response = Proto<$message>,
            schema = proto_schema::<$message, $message>()
        )]
        struct $service;
    )*};
}
named!(Disk1 Old, Disk2 New);

#[test]
fn an_old_client_calls_a_new_server_and_a_new_client_an_old_server() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let mut builder = Server::builder(&run_dir);
    builder
        .serve::<New>(|_, Proto(asked)| {
            assert_eq!(asked.model, None, "an old client says nothing of it");
            Ok(Proto(Disk2 { reads: asked.reads + 1, model: Some("new".into()), ..asked }))
        })
        .unwrap();
    let server = builder.start().unwrap();
    let asked = Disk1 { name: "sda".into(), reads: 7 };
    let answer = Client::<Old>::new(&run_dir).call(&Proto(asked.clone())).unwrap().0;
    assert_eq!(answer, Disk1 { reads: 8, ..asked });
    server.stop();

    let mut builder = Server::builder(&run_dir);
    builder
        .serve::<Old>(|_, Proto(asked)| Ok(Proto(Disk1 { reads: asked.reads + 1, ..asked })))
        .unwrap();
    let server = builder.start().unwrap();
    let asked = Disk2 { name: "sda".into(), reads: 7, model: Some("skipped".into()) };
    let answer = Client::<New>::new(&run_dir).call(&Proto(asked.clone())).unwrap().0;
    assert_eq!(answer, Disk2 { reads: 8, model: None, ..asked });
    server.stop();
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nested {
    #[prost(message, optional, boxed, tag = "1")]
    inner: Option<Box<Nested>>,
}

#[test]
fn invalid_and_too_deep_messages_are_malformed() {
    // A string of 9 bytes, of which 2 are there; a string that is not UTF-8; a group that does not end.
    for bytes in [&[0x0a, 9, b'a', b'b'][..], &[0x0a, 1, 0xff], &[0x0b]] {
        let malformed = Proto::<Disk1>::decode(bytes).unwrap_err();
        assert_eq!(
            (malformed.len, malformed.why),
            (bytes.len(), "not this message of Protocol Buffers")
        );
        // Behind the tag at least.
        assert!((1..=bytes.len()).contains(&malformed.at), "{malformed}");
    }
    let mut nested = Nested::default();
    for _ in 0..2_000 {
        nested = Nested { inner: Some(Box::new(nested)) };
    }
    let mut bytes = Vec::new();
    Proto(nested).encode(&mut bytes);
    Proto::<Nested>::decode(&bytes).unwrap_err();
}
