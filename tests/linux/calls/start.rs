//! A service between `serve` and `start`.

use std::thread;

use bellwire::{CallError, Client, ServeError, Server};

use crate::support::guard::TEST_TIMEOUT;
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, client_config};

#[test]
fn until_its_server_starts_a_service_is_absent_and_its_name_is_taken() {
    let dir = Dir::new();
    let mut builder = Server::builder(&dir.run_dir);
    builder.serve::<Echo>(echo).unwrap();
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let error = client.call(&vec![1]).unwrap_err();
    assert!(matches!(error, CallError::Absent { .. }), "{error}");
    let mut other = Server::builder(&dir.run_dir);
    assert!(matches!(other.serve::<Echo>(echo), Err(ServeError::Taken { .. })));
    let twice = builder.serve::<Echo>(echo).unwrap_err();
    assert!(matches!(&twice, ServeError::Name { name, .. } if name == "echo"), "{twice}");
    let waits = thread::spawn(move || {
        client.wait_available(TEST_TIMEOUT).unwrap();
        client.call(&vec![2]).unwrap()
    });
    let _server = builder.start().unwrap();
    assert_eq!(waits.join().unwrap(), [2]);
}
