//! `bellwire stat` about real servers: what they wait with, and what rings whom.

use bellwire::{Backend, Client, ClientConfig, Doorbell, RunDir, Server, ServerConfig};

use crate::support::Place;

#[derive(bellwire::Service)]
#[service(name = "doubled", request = u64, response = u64)]
pub(crate) struct Doubled;

pub(crate) fn serve(place: &Place, config: ServerConfig) -> Server {
    let mut builder = Server::builder_with_config(&RunDir::new(place.run_dir()), config);
    builder.serve::<Doubled>(|_, number| Ok(2 * number)).unwrap();
    builder.start().unwrap()
}

/// A client that is rung so, with an open session that its server has counted.
fn client(place: &Place, server: &Server, doorbell: Doorbell) -> Client<Doubled> {
    let before = server.stats().admitted;
    let config = ClientConfig::default().doorbell(doorbell);
    let mut client = Client::with_config(&RunDir::new(place.run_dir()), config);
    assert_eq!(client.call(&21).unwrap(), 42);
    while server.stats().admitted == before {
        std::thread::yield_now();
    }
    client
}

/// The only row of the last table, as it is printed.
fn last_row(place: &Place) -> String {
    let table = place.exits(0, &["stat", "doubled"]);
    let titles = table.stdout.lines().position(|line| line.contains("CLIENTS RUNG BY"));
    let row = table.stdout.lines().nth(titles.expect("the table is there") + 1);
    row.unwrap().to_owned()
}

#[test]
fn stat_shows_the_doorbells_of_both_ends() {
    let place = Place::new();
    let server = serve(&place, ServerConfig::default().backend(Backend::Epoll));
    let doorbells = [Doorbell::Futex, Doorbell::Futex, Doorbell::Eventfd, Doorbell::Socket];
    let clients = doorbells.map(|doorbell| client(&place, &server, doorbell));
    let row = last_row(&place);
    for part in ["doubled", "  epoll", "  eventfd 4", "  futex 2, eventfd 1, socket 1"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    let reported =
        place.run(&["stat", "doubled", "--format", "json"]).json()["services"][0].clone();
    let (stats, server_of) = (&reported["stats"], &reported["server"]);
    assert_eq!(server_of["backend"], "epoll");
    assert_eq!(server_of["backend_requested"], "epoll");
    let by = ["clients_by_futex", "clients_by_eventfd", "clients_by_socket", "socket_rung"];
    assert_eq!(by.map(|name| stats[name].as_u64().unwrap()), [2, 1, 1, 0], "{reported:#}");
    let text = place.run(&["stat", "doubled", "--format", "openmetrics"]).stdout;
    let pid = std::process::id();
    for line in [
        format!("bellwire_server_backend{{pid=\"{pid}\",backend=\"epoll\",requested=\"epoll\"}} 1"),
        "bellwire_sessions_client_by_futex{service=\"doubled\"} 2".to_owned(),
        "bellwire_sessions_client_by_eventfd{service=\"doubled\"} 1".to_owned(),
        "bellwire_sessions_client_by_socket{service=\"doubled\"} 1".to_owned(),
        "bellwire_sessions_socket_rung{service=\"doubled\"} 0".to_owned(),
    ] {
        assert!(text.lines().any(|reported| reported == line), "{line}: {text}");
    }
    // Those that are over are of no kind any more.
    drop(clients);
    let over = server.stop();
    let open = [over.clients_by_futex, over.clients_by_eventfd, over.clients_by_socket];
    assert_eq!((over.sessions, open), (0, [0; 3]), "{over:?}");
}

#[test]
fn stat_shows_the_reactors_backend_and_the_unavailable_one() {
    let place = Place::new();
    let config = ServerConfig::default().backend(Backend::IoUring).doorbell(Doorbell::Socket);
    let server = serve(&place, config);
    let _client = client(&place, &server, Doorbell::Futex);
    // A machine may forbid it.
    let has_it = server.backend().backend == Backend::IoUring;
    let row = last_row(&place);
    let waits = if has_it { "  io_uring  " } else { "  epoll, not io_uring  " };
    for part in [waits, "  socket 1", "  futex 1"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    let reported =
        place.run(&["stat", "doubled", "--format", "json"]).json()["services"][0].clone();
    let backend = if has_it { "io_uring" } else { "epoll" };
    assert_eq!(reported["server"]["backend"], backend);
    assert_eq!(reported["server"]["backend_requested"], "io_uring");
    drop(server);

    // The thread pool is for Windows: what was asked for cannot be had.
    let config = ServerConfig::default().backend(Backend::ThreadPool);
    let _server = serve(&place, config);
    let row = last_row(&place);
    assert!(row.contains("  epoll, not thread pool  "), "{row}");
}
