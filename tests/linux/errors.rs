//! What a program finds among the sources of an error, besides the text for an operator.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;

use bellwire::{CallError, Client, ClientConfig, ConnectError, RunDir, ServeError, Server, probe};

use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, client_config};

/// The system's error below this one, and its number. Each [`io::Error`] above it has its kind.
#[track_caller]
pub(crate) fn system_error(error: &(dyn Error + 'static)) -> (ErrorKind, i32) {
    let text = error.to_string();
    let mut sources = successors(error.source(), |&error| error.source())
        .inspect(|source| assert!(text.contains(&source.to_string()), "{source} is not in {text}"))
        .filter_map(|error| error.downcast_ref::<io::Error>());
    let first = sources.next().unwrap_or_else(|| panic!("{error:?} has none"));
    let last = sources.last().unwrap_or(first);
    assert_eq!(first.kind(), last.kind());
    (last.kind(), last.raw_os_error().unwrap_or_else(|| panic!("{last:?} has no number")))
}

const NO_DIRECTORY: (ErrorKind, i32) = (ErrorKind::NotADirectory, libc::ENOTDIR);

/// A run dir that nobody can make.
fn below_a_file(dir: &Dir) -> RunDir {
    let file = dir.run_dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    RunDir::new(file.join("run"))
}

#[test]
fn a_call_without_a_session_has_the_systems_error_among_its_sources() {
    let dir = Dir::new();
    let mut client = Client::<Echo>::with_config(&below_a_file(&dir), client_config());
    for attempt in 0..2 {
        // The second one is before a retry is due, and reports the same.
        let error = client.call(&vec![1]).unwrap_err();
        assert!(matches!(error, CallError::Connect { .. }), "{attempt}: {error:?}");
        assert_eq!(system_error(&error), NO_DIRECTORY);
    }
}

#[test]
fn a_probe_has_the_systems_error_among_its_sources() {
    let dir = Dir::new();
    let service = Client::<Echo>::SERVICE;
    let tried = probe(&below_a_file(&dir), service, 1, &ClientConfig::default());
    let error = tried.unwrap_err();
    assert!(matches!(error, ConnectError::System { .. }), "{error:?}");
    assert_eq!(system_error(&error), NO_DIRECTORY);
}

#[test]
fn a_server_without_an_endpoint_has_the_systems_error_among_its_sources() {
    let dir = Dir::new();
    let mut builder = Server::builder(&below_a_file(&dir));
    let error = builder.serve::<Echo>(echo).map(drop).unwrap_err();
    assert!(matches!(error, ServeError::Endpoint { .. }), "{error:?}");
    assert_eq!(system_error(&error), NO_DIRECTORY);
}

#[test]
fn an_impostor_has_its_reason_as_source() {
    let dir = Dir::new();
    std::fs::write(dir.run_dir.path().join("echo.sock"), "").unwrap();
    let tried = probe(&dir.run_dir, Client::<Echo>::SERVICE, 1, &ClientConfig::default());
    let error = tried.unwrap_err();
    assert!(matches!(error, ConnectError::Impostor { .. }), "{error:?}");
    let source = error.source().unwrap().to_string();
    assert!(source.contains("is not a socket"), "{source}");
    assert_eq!(error.to_string().matches(&source).count(), 1, "{error}");
}
