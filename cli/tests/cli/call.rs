//! `bellwire call`: any service, by bytes, by text and by Protocol Buffers.

use std::fs;

use bellwire::{Contract, HandlerError, Payload, RunDir, Server, schema};

use crate::support::Place;

#[derive(bellwire::Service)]
#[service(name = "increment", version = 3, request = u64, response = u64)]
struct Increment;

#[derive(bellwire::Service)]
#[service(name = "shout", request = String, response = String)]
struct Shout;

const PROTO: &str = r#"
syntax = "proto3";
package disks.v1;

message Name { string name = 1; }
message Disk { string name = 1; uint64 reads = 2; repeated string partitions = 3; }
service Disks { rpc Find(Name) returns (Disk); }
"#;

/// `Disk { name, reads: 7, partitions: ["a", "b"] }` of a `Name`, by hand.
fn disk(request: &[u8]) -> Result<Payload, HandlerError> {
    let [0x0a, len, name @ ..] = request else { return Err("no such name".into()) };
    assert_eq!(name.len(), usize::from(*len));
    Ok([&[0x0a, *len][..], name, &[0x10, 7, 0x1a, 1, b'a', 0x1a, 1, b'b']].concat().into())
}

fn provider(place: &Place) -> Server {
    let mut builder = Server::builder(&RunDir::new(place.run_dir()));
    builder.serve::<Increment>(|_, number| Ok(number + 1)).unwrap();
    builder.serve::<Shout>(|_, text| Ok(text.to_uppercase())).unwrap();
    let contract = Contract::new("disks".parse().unwrap());
    let contract = contract.schema(schema("proto:disks.v1.Name -> proto:disks.v1.Disk"));
    builder.serve_dynamic(contract, |_, request| disk(&request)).unwrap();
    builder.start().unwrap()
}

#[test]
fn bytes_and_text_go_to_any_service_and_answers_are_printed() {
    let place = Place::new();
    let _server = provider(&place);
    let printed = |args: &[&str]| {
        let ended = place.run(&[&["call"], args].concat());
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        ended.stdout
    };
    let number = "29 000000 00000000";
    assert_eq!(
        printed(&["increment", "--service-version", "3", "--hex", number]),
        "2a00000000000000\n"
    );
    let described =
        ["increment", "--service-version", "3", "--hex", number, "--schema", "u64 -> u64"];
    assert_eq!(printed(&described), "2a00000000000000\n");
    assert_eq!(printed(&["shout", "--text", "bell"]), "BELL\n");
    assert_eq!(printed(&["shout", "--text", "bell", "--raw"]), "BELL");
    assert_eq!(printed(&["shout"]), "\n");
    let object = printed(&["shout", "--text", "bell", "-o", "json"]);
    let object: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert_eq!(object, serde_json::json!({ "bytes": 4, "text": "BELL", "hex": "42454c4c" }));
}

#[test]
fn json_round_trips_as_protocol_buffers() {
    let place = Place::new();
    let _server = provider(&place);
    let file = place.temp().join("disks.proto");
    fs::write(&file, PROTO).unwrap();
    let call = |args: &[&str]| {
        place.run(&[&["call", "disks", "--proto", file.to_str().unwrap()], args].concat())
    };
    let found = call(&["--json", r#"{"name": "sda"}"#]);
    assert_eq!((found.status, found.stderr.as_str()), (Some(0), ""), "{found:?}");
    let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let expected = serde_json::json!({ "name": "sda", "reads": "7", "partitions": ["a", "b"] });
    assert_eq!(found, expected);
    let wrong = call(&["--json", r#"{"nam": "sda"}"#]);
    assert_eq!(wrong.status, Some(1), "{wrong:?}");
    assert!(wrong.stderr.contains("--json is no disks.v1.Name"), "{wrong:?}");
    // The fingerprint is of both names.
    let swapped = call(&["--request", "Disk", "--json", "{}"]);
    assert_eq!(swapped.status, Some(4), "{swapped:?}");
    let unknown = call(&["--request", "Dusk"]);
    assert!(unknown.stderr.contains("disks.v1.Disk"), "{unknown:?}");
}

#[test]
fn each_failure_has_its_exit_code() {
    let place = Place::new();
    place.exits(3, &["call", "shout", "--text", "bell"]);
    let _server = provider(&place);
    let other =
        place.run(&["call", "increment", "--service-version", "3", "--schema", "[u8;8] -> u64"]);
    assert_eq!(other.status, Some(4), "{other:?}");
    place.exits(6, &["call", "increment", "--service-version", "3", "--hex", "29"]);
    let failed = place.exits(6, &["call", "disks", "--text", "sda"]);
    assert!(failed.stderr.contains("no such name"), "{failed:?}");
    place.exits(2, &["call", "shout", "--hex", "2"]);
}

#[test]
fn a_snapshot_of_any_service_is_printed_as_text_as_digits_as_json_and_by_its_proto() {
    let place = Place::new();
    let mut builder = Server::builder(&RunDir::new(place.run_dir()));
    let publisher = builder.publish_dynamic(Contract::new("name".parse().unwrap())).unwrap();
    let _server = builder.start().unwrap();
    // A disks.v1.Name.
    publisher.publish(b"\x0a\x03sda").unwrap();
    let file = place.temp().join("disks.proto");
    fs::write(&file, PROTO).unwrap();
    let get = |args: &[&str]| place.run(&[&["get", "name"], args].concat());
    assert_eq!(get(&[]).stdout, "0a03736461\n");
    let object: serde_json::Value = serde_json::from_str(&get(&["-o", "json"]).stdout).unwrap();
    let hex = "0a03736461";
    let expected = serde_json::json!({ "generation": 1, "bytes": 5, "text": null, "hex": hex });
    assert_eq!(object, expected);
    let by_proto = ["--proto", file.to_str().unwrap(), "--message", "Name"];
    assert_eq!(get(&by_proto).stdout, "{\"name\":\"sda\"}\n");
    publisher.publish(b"sda").unwrap();
    assert_eq!((get(&[]).stdout, get(&["--hex"]).stdout), ("sda\n".into(), "736461\n".into()));
    let wrong = get(&by_proto);
    assert!(wrong.stderr.contains("the snapshot is no disks.v1.Name"), "{wrong:?}");
    assert_eq!(place.run(&["get", "nobody", "--timeout", "10ms"]).status, Some(3));
}
