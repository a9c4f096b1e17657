//! A provider's files, or its run dir, are removed while it runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bellwire::{Client, IncidentCause, RunDir, ServeError, Server};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::guard::until;
use crate::support::rogue::RogueListener;
use crate::support::services::{Echo, echo};
use crate::support::test_server::{Dir, client_config, provide};

/// A client that finds it by its name.
fn is_found(run_dir: &RunDir) -> bool {
    let mut client = Client::<Echo>::with_config(run_dir, client_config());
    client.call(&vec![7]).is_ok_and(|answer| answer == [7])
}

/// So often was the name taken again.
fn taken_again(server: &Server) -> usize {
    let incidents = server.incidents();
    let taken = |cause: &IncidentCause| matches!(cause, IncidentCause::Displaced { why: None });
    incidents.iter().filter(|incident| taken(&incident.cause)).count()
}

/// Waits until the server reports that it could not take its name again, and returns why.
fn why_not_taken(server: &Server) -> Arc<ServeError> {
    let mut found = None;
    until("it says that it is not found", || {
        found = server.incidents().into_iter().find_map(|incident| match &incident.cause {
            IncidentCause::Displaced { why: Some(why) } => {
                assert!(
                    incident
                        .to_string()
                        .ends_with(&format!("until the name can be taken again: {why}"))
                );
                Some(Arc::clone(why))
            }
            _ => None,
        });
        found.is_some()
    });
    found.unwrap()
}

/// The provider is found again after `harm`, reports that, and its sessions continue.
fn survives(harm: impl FnOnce(&Path)) {
    let dir = Dir::new();
    let server = provide::<Echo>(&dir.run_dir, echo);
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    assert_eq!(client.call(&vec![1]).unwrap(), [1]);
    harm(dir.run_dir.path());
    until("it takes its name again", || taken_again(&server) > 0);
    assert!(is_found(&dir.run_dir));
    assert_eq!(client.call(&vec![2]).unwrap(), [2]);
    let mut builder = Server::builder(&dir.run_dir);
    assert!(builder.serve::<Echo>(echo).is_err(), "and holds it");
    assert_eq!(server.stop().lost, 0);
}

#[test]
fn a_socket_that_is_removed_is_made_again() {
    survives(|dir| fs::remove_file(dir.join("echo.sock")).unwrap());
}

#[test]
fn a_lock_that_is_removed_is_taken_again() {
    survives(|dir| fs::remove_file(dir.join("echo.lock")).unwrap());
}

#[test]
fn a_run_dir_that_is_removed_is_made_again() {
    // The provider may have made it again before all of it is gone.
    survives(|dir| drop(fs::remove_dir_all(dir)));
}

#[test]
fn a_run_dir_that_is_moved_away_is_made_again() {
    let elsewhere = Dir::new();
    survives(|dir| fs::rename(dir, elsewhere.run_dir.path().join("moved")).unwrap());
}

#[test]
fn a_socket_that_another_one_was_moved_over_is_made_again() {
    survives(|dir| {
        let _other = RogueListener::bind(&RunDir::new(dir), "other");
        fs::rename(dir.join("other.sock"), dir.join("echo.sock")).unwrap();
    });
}

#[test]
fn a_provider_whose_run_dir_cannot_be_created_reports_it_and_serves_later() {
    let dir = Dir::new();
    let run_dir = RunDir::new(dir.run_dir.path().join("run"));
    fs::create_dir(run_dir.path()).unwrap();
    let server = provide::<Echo>(&run_dir, echo);
    let file = dir.run_dir.path().join("file");
    fs::write(&file, "").unwrap();
    renameat_with(CWD, &file, CWD, run_dir.path(), RenameFlags::EXCHANGE).unwrap();
    let why = why_not_taken(&server);
    let ServeError::Endpoint { service, source } = &*why else { panic!("{why}") };
    assert!(
        service.as_str() == "echo" && source.to_string().contains("is not a directory"),
        "{why}"
    );
    assert_eq!(taken_again(&server), 0);
    fs::remove_file(run_dir.path()).unwrap();
    until("it is there again", || is_found(&run_dir));
    assert_eq!(taken_again(&server), 1);
}

#[test]
fn a_provider_serves_again_when_the_removed_parents_of_its_run_dir_return() {
    let dir = Dir::new();
    let above = dir.run_dir.path().join("above");
    let run_dir = RunDir::new(above.join("run"));
    fs::create_dir_all(run_dir.path()).unwrap();
    let server = provide::<Echo>(&run_dir, echo);
    let _ = fs::remove_dir_all(&above);
    // It may have made its own again before the one above it went.
    until("it is gone", || fs::remove_dir_all(&above).is_err() && !above.exists());
    assert!(!is_found(&run_dir));
    fs::create_dir(&above).unwrap();
    until("it is there again", || is_found(&run_dir));
    assert!(taken_again(&server) > 0);
}

#[test]
fn another_provider_that_took_the_name_meanwhile_keeps_it() {
    let dir = Dir::new();
    let run_dir = RunDir::new(dir.run_dir.path().join("run"));
    let [mine, theirs] = ["run", "theirs"].map(|name| dir.run_dir.path().join(name));
    for dir in [&mine, &theirs] {
        fs::create_dir(dir).unwrap();
    }
    let server = provide::<Echo>(&run_dir, echo);
    let lock = fs::File::create(theirs.join("echo.lock")).unwrap();
    lock.lock().unwrap();
    renameat_with(CWD, &mine, CWD, &theirs, RenameFlags::EXCHANGE).unwrap();
    let why = why_not_taken(&server);
    assert!(matches!(*why, ServeError::Taken { service } if service.as_str() == "echo"), "{why}");
    assert!(!run_dir.path().join("echo.sock").exists());
    // A provider that stops removes its socket.
    drop(lock);
    fs::write(run_dir.path().join("socket"), "").unwrap();
    fs::remove_file(run_dir.path().join("socket")).unwrap();
    until("it takes over", || taken_again(&server) > 0);
    assert!(is_found(&run_dir));
}
