//! Another user's client, and another user's server.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use bellwire::{Admission, Client, ProviderState, RunDir, ServerConfig, Token, User};

use super::{NOBODY, is_root, outcome_of_connect, says, set_mode};
use crate::support::child::Process;
use crate::support::services::Echo;
use crate::support::test_server::{Dir, TestServer, client_config};

/// A fixture whose run dir and socket another user can reach: only the server's own check remains.
fn open_to_others(config: ServerConfig) -> TestServer {
    let dir = Dir::new();
    set_mode(dir.run_dir.path(), 0o711);
    let fixture = TestServer::in_dir(dir, config);
    set_mode(&fixture.run_dir().path().join("echo.sock"), 0o666);
    fixture
}

/// A server that admits nobody's user, and a client of that user.
fn open_to_user_nobody(config: ServerConfig) -> (TestServer, Process) {
    let admission = Admission::Users(vec![User::from(NOBODY)]);
    let fixture = open_to_others(config.admission(admission));
    let nobody = Process::start("admission client nobody", fixture.run_dir());
    (fixture, nobody)
}

#[test]
fn a_client_of_another_user_cannot_reach_the_socket() {
    if !is_root() {
        return;
    }
    let fixture = TestServer::open();
    let mut nobody = Process::start("admission client nobody", fixture.run_dir());
    let advice = ["65534 may not connect to", "run the client as the provider's user"];
    // First by the run dir's mode, then by the socket's own.
    says(&nobody.ask("connect"), &advice);
    set_mode(fixture.run_dir().path(), 0o711);
    says(&nobody.ask("connect"), &advice);
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.handshakes_failed), (0, 0));
}

#[test]
fn a_client_of_another_user_is_refused_with_advice() {
    if !is_root() {
        return;
    }
    let fixture = open_to_others(ServerConfig::default());
    let mut good: Client<Echo> = fixture.client();
    let mut nobody = Process::start("admission client nobody", fixture.run_dir());
    let reply = nobody.ask("connect");
    says(
        &reply,
        &["Refused", "Credentials", "uid 65534 is not admitted", "run the client as uid 0"],
    );
    says(&reply, &["or have the provider admit it", "--admit", "it admits nobody else besides"]);
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    drop((good, nobody));
    let stats = fixture.close();
    assert_eq!((stats.admitted, stats.handshakes_failed), (1, 1));
}

#[test]
fn a_client_of_another_user_that_is_listed_is_served() {
    // Otherwise the refusals would prove nothing.
    if !is_root() {
        return;
    }
    let (fixture, mut nobody) = open_to_user_nobody(ServerConfig::default());
    says(&nobody.ask("call"), &["Ok([104, 101, 108, 108, 111])"]);
    drop(nobody);
    assert_eq!(fixture.close().answered, 1);
}

#[test]
fn sessions_of_another_user_beyond_a_burst_wait_or_are_refused_with_the_reason() {
    if !is_root() {
        return;
    }
    let config = ServerConfig::default().max_session_rate_per_user(1);
    let (fixture, mut nobody) = open_to_user_nobody(config);
    let reply = nobody.ask("many_clients 40");
    let mut parts = reply.splitn(3, ' ');
    let [ready, millis] = [(); 2].map(|()| parts.next().unwrap().parse::<u128>().unwrap());
    // Seventeen at once, and one each second after them; on a slow machine more of these are in time.
    assert!((18..40).contains(&ready) && millis >= (ready - 17) * 1000, "{reply}");
    says(&reply, &["Refused", "Quota", "uid 65534 opens more than 1 sessions a second"]);
    says(&reply, &["raise max_session_rate_per_user"]);
    let own = super::many_clients(fixture.run_dir(), 40);
    assert!(own.starts_with("40 "), "the provider's own user is not limited: {own}");
}

#[test]
fn a_session_of_another_user_that_violates_the_protocol_counts_as_sixteen() {
    if !is_root() {
        return;
    }
    let config = ServerConfig::default().max_session_rate_per_user(1);
    let (_fixture, mut nobody) = open_to_user_nobody(config);
    assert_eq!(nobody.ask("violate"), "poisoned");
    // Without the violation, all of these are within the burst.
    let reply = nobody.ask("many_clients 16");
    says(&reply, &["Refused", "Quota", "uid 65534 opens more than 1 sessions a second"]);
}

#[test]
fn a_client_with_a_wrong_token_is_refused_with_advice() {
    let token = Token::new([1; 16]);
    let fixture = TestServer::with(ServerConfig::default().token(token));
    let others = [None, Token::new([2; 16])];
    for token in others {
        let config = client_config().token(token);
        let mut client = Client::<Echo>::with_config(fixture.run_dir(), config);
        let ProviderState::Refused { reason, .. } = outcome_of_connect(&mut client) else {
            panic!("let in")
        };
        let whose = match token {
            None => "the server has a token and the client has none",
            Some(_) => "the client's token is not the server's",
        };
        says(&reason, &[whose, "BELLWIRE_TOKEN"]);
    }
    let mut good: Client<Echo> = fixture.client_with(client_config().token(token));
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    drop(good);
    assert_eq!(fixture.close().handshakes_failed, 2);
}

/// The squatter was there first, in a run dir where any user may create files.
#[test]
fn a_socket_squatted_by_another_user_is_refused_on_both_sides() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    set_mode(dir.run_dir.path(), 0o1777);
    let mut squatter = Process::start("admission server nobody", &dir.run_dir);
    assert_eq!(squatter.ask("serve"), "serving");
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let ProviderState::Failed { reason, .. } = outcome_of_connect(&mut client) else {
        panic!("it connects")
    };
    says(
        &reason,
        &["belongs to uid 65534", "remove it, or list that user in the client's trusted"],
    );
    // The squatter holds the lock, too, and is not taken for an honest provider.
    let refused = super::start(&dir.run_dir).unwrap_err();
    says(&refused, &["echo.lock is not this user's lock", "remove it"]);
    squatter.kill();
    let refused = super::start(&dir.run_dir).unwrap_err();
    says(&refused, &["echo.sock exists and is not this user's socket: remove it"]);
}

/// The file that a client checks is root's; the listening process is not.
#[test]
fn a_server_of_another_user_behind_a_socket_of_ours_is_refused() {
    if !is_root() {
        return;
    }
    let dir = Dir::new();
    set_mode(dir.run_dir.path(), 0o1777);
    let mut squatter = Process::start("admission server nobody", &dir.run_dir);
    assert_eq!(squatter.ask("serve"), "serving");
    let socket = dir.run_dir.path().join("echo.sock");
    std::os::unix::fs::chown(&socket, Some(0), None).unwrap();
    let mut client = Client::<Echo>::with_config(&dir.run_dir, client_config());
    let ProviderState::Failed { reason, .. } = outcome_of_connect(&mut client) else {
        panic!("it connects")
    };
    says(&reason, &["not a trusted provider", "it runs as uid 65534"]);
    // And with that user in its list it is one.
    let config = client_config().trusted(vec![User::from(NOBODY)]);
    let mut trusting = Client::<Echo>::with_config(&dir.run_dir, config);
    assert!(!matches!(outcome_of_connect(&mut trusting), ProviderState::Failed { .. }));
}

/// The usual layout: a daemon that runs as a user of its own, and plugins of root.
#[test]
fn a_client_of_root_trusts_the_owner_of_a_run_dir_that_no_other_user_can_change() {
    // Below a directory that is root's: in a world-writable one, any user could have made the run dir.
    if !is_root() || !Path::new("/run").is_dir() {
        return;
    }
    let path = PathBuf::from(format!("/run/bellwire-test-{}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(NOBODY), None).unwrap();
    let run_dir = RunDir::new(&path);
    let mut daemon = Process::start("admission server nobody", &run_dir);
    assert_eq!(daemon.ask("serve"), "serving");
    let connects = |mode| {
        set_mode(&path, mode);
        let mut client = Client::<Echo>::with_config(&run_dir, client_config());
        !matches!(outcome_of_connect(&mut client), ProviderState::Failed { .. })
    };
    let trusted = [0o755, 0o700].map(connects);
    let refused = [0o775, 0o757, 0o1777].map(connects);
    set_mode(&path, 0o755);
    let dir = Dir::new();
    let link = dir.run_dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut linked = Client::<Echo>::with_config(&RunDir::new(&link), client_config());
    let of_link = !matches!(outcome_of_connect(&mut linked), ProviderState::Failed { .. });
    daemon.kill();
    std::fs::remove_dir_all(&path).unwrap();
    assert_eq!((trusted, refused, of_link), ([true; 2], [false; 3], false));
}

/// Whoever starts it names the run dir, and so could provide anything.
#[test]
fn a_client_that_is_setuid_root_does_not_trust_the_owner_of_the_run_dir() {
    if !is_root() || !Path::new("/run").is_dir() {
        return;
    }
    let program = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    if rustix::fs::statvfs(&*program)
        .unwrap()
        .f_flag
        .contains(rustix::fs::StatVfsMountFlags::NOSUID)
    {
        eprintln!("not run: setuid means nothing in {}", program.display());
        return;
    }
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    set_mode(&program, 0o4755);
    let above = tempfile::tempdir_in("/run").unwrap();
    let run_dir = RunDir::new(above.path().join("run"));
    std::fs::create_dir(run_dir.path()).unwrap();
    std::os::unix::fs::chown(run_dir.path(), Some(NOBODY), None).unwrap();
    for dir in [above.path(), run_dir.path()] {
        set_mode(dir, 0o755);
    }
    let mut daemon = Process::start("admission server nobody", &run_dir);
    assert_eq!(daemon.ask("serve"), "serving");
    let mut command = std::process::Command::new(&program);
    command.uid(2002).gid(2002);
    let mut client = Process::start_by(command, "admission client", &run_dir);
    says(&client.ask("call"), &["belongs to uid 65534"]);
    says(&client.ask("call-trusting"), &["Ok("]);
}
