//! Each test is one fault of a client, while a good client of the same server goes on.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bellwire::{Client, Doorbell, LaneConfig, RefuseCode, ServerConfig, ServerStats, Token};
use bellwire_core::wire::{
    Attach, Attachment, Hello, Message, PROTOCOL, Ready, Refuse, Role, Versions,
};
use bellwire_core::{Geometry, Limits};
use rustix::fs::SealFlags;

use crate::support::guard::{scaled, until};
use crate::support::memory::{Draft, SEALS};
use crate::support::rogue::{Rogue, encode, hello, service, welcome};
use crate::support::services::{Echo, Moody};
use crate::support::test_server::{TestServer, patient};

/// A server under attack, and its good client.
struct AttackedServer {
    fixture: TestServer,
    good: Client<Echo>,
}

impl AttackedServer {
    fn begin() -> Self {
        Self::with(ServerConfig::default())
    }

    fn with(config: ServerConfig) -> Self {
        let fixture = TestServer::with(config);
        let good = fixture.client();
        Self { fixture, good }
    }

    fn rogue(&self) -> Rogue {
        Rogue::connect(self.fixture.run_dir(), "echo")
    }

    /// The good client still is served, and a new one is admitted: the counters show how many rogues were not.
    fn end(mut self, turned_away: u64) -> ServerStats {
        assert_eq!(self.good.call(&b"still here".to_vec()).unwrap(), b"still here");
        let mut late = self.fixture.client::<Moody>();
        assert_eq!(late.call(&Moody::ANSWER).unwrap(), b"fine");
        drop((self.good, late));
        let stats = self.fixture.close();
        assert_eq!((stats.turned_away, stats.poisoned), (turned_away, 0), "{stats:?}");
        stats
    }
}

fn fresh_hello() -> Hello {
    hello(service("echo"))
}

/// A first message that the server refuses.
#[track_caller]
fn refuses_first(bytes: &[u8], fds: &[OwnedFd], code: RefuseCode, part: &str) {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    rogue.send_bytes(bytes, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    rogue.is_refused(code, part);
    attacked.end(1);
}

#[track_caller]
fn refuses_hello(hello: Hello, code: RefuseCode, part: &str) {
    refuses_first(&encode(&Message::Hello(hello), 0), &[], code, part);
}

#[test]
fn what_is_no_bellwire_message_is_refused() {
    let http = b"GET / HTTP/1.1\r\n\r\n";
    refuses_first(http, &[], RefuseCode::Protocol, "not a Bellwire peer");
}

#[test]
fn a_single_byte_is_refused() {
    refuses_first(b"B", &[], RefuseCode::Protocol, "1 bytes");
}

#[test]
fn a_client_that_leaves_after_its_hello_is_no_lack_of_a_resource() {
    const ROUNDS: u64 = 100;
    let attacked = AttackedServer::begin();
    let hello = encode(&Message::Hello(fresh_hello()), 0);
    for _ in 0..ROUNDS {
        attacked.rogue().send_bytes(&hello, &[]);
    }
    until("all have left", || attacked.fixture.stats().turned_away == ROUNDS);
    assert_eq!(attacked.fixture.offences(), [], "leaving is no cause");
    attacked.end(ROUNDS);
}

#[test]
fn a_hello_truncated_at_any_length_is_refused() {
    let attacked = AttackedServer::begin();
    let whole = encode(&Message::Hello(fresh_hello()), 0);
    for len in 1..whole.len() {
        let rogue = attacked.rogue();
        rogue.send_bytes(&whole[..len], &[]);
        rogue.is_refused(RefuseCode::Protocol, &format!("{len} bytes"));
    }
    attacked.end(whole.len() as u64 - 1);
}

#[test]
fn a_hello_with_a_byte_too_many_is_refused() {
    let mut bytes = encode(&Message::Hello(fresh_hello()), 0);
    bytes.push(0);
    refuses_first(&bytes, &[], RefuseCode::Protocol, "149 bytes");
}

#[test]
fn a_message_longer_than_any_is_not_read() {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    rogue.send_bytes(&[b'x'; 4000], &[]);
    rogue.is_closed();
    attacked.end(1);
}

#[test]
fn a_hello_with_descriptors_is_refused() {
    let bytes = encode(&Message::Hello(fresh_hello()), 1);
    refuses_first(&bytes, &[Draft::lane().make()], RefuseCode::Protocol, "1 descriptors");
}

#[test]
fn a_hello_that_hides_its_descriptors_is_refused() {
    let bytes = encode(&Message::Hello(fresh_hello()), 0);
    refuses_first(&bytes, &[Draft::lane().make()], RefuseCode::Protocol, "descriptor count");
}

#[test]
fn more_descriptors_than_any_message_has_are_not_taken() {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    let lane = Draft::lane().make();
    rogue.send_bytes(&encode(&Message::Hello(fresh_hello()), 200), &[lane.as_fd(); 200]);
    rogue.is_closed();
    attacked.end(1);
}

#[test]
fn an_unknown_kind_is_refused() {
    let mut bytes = encode(&Message::Ring, 0);
    bytes[4] = 99;
    refuses_first(&bytes, &[], RefuseCode::Protocol, "unknown kind 99");
}

#[test]
fn a_foreign_version_is_refused_with_both_ranges() {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    let versions = Versions { min: PROTOCOL.max + 1, max: PROTOCOL.max + 7 };
    // Whatever follows the versions is not for this server to read.
    let bytes = encode(&Message::Hello(Hello { versions, ..fresh_hello() }), 0);
    rogue.send_bytes(&bytes[..40], &[]);
    let Some((Message::Refuse(refuse), _)) = rogue.receive() else { panic!("not refused") };
    assert_eq!((refuse.code, refuse.versions), (RefuseCode::Incompatible, PROTOCOL));
    for part in ["1-1", "2-8"] {
        assert!(refuse.reason().contains(part), "{}", refuse.reason());
    }
    rogue.is_closed();
    attacked.end(1);
}

#[test]
fn a_version_range_upside_down_is_refused() {
    let versions = Versions { min: 2, max: 1 };
    refuses_hello(Hello { versions, ..fresh_hello() }, RefuseCode::Protocol, "version range");
}

#[test]
fn another_service_is_refused() {
    let service = service("moody");
    refuses_hello(Hello { service, ..fresh_hello() }, RefuseCode::Service, "moody");
}

#[test]
fn a_service_name_that_is_none_is_refused() {
    let mut bytes = encode(&Message::Hello(fresh_hello()), 0);
    bytes[24..28].copy_from_slice(b"../x");
    refuses_first(&bytes, &[], RefuseCode::Protocol, "service");
}

#[test]
fn another_method_is_refused() {
    refuses_hello(Hello { method: 2, ..fresh_hello() }, RefuseCode::Service, "method 2");
}

#[test]
fn another_token_is_refused() {
    let token = Token::new([1; 16]);
    let fixture = TestServer::with(ServerConfig::default().token(token));
    let config = || patient().token(token);
    let mut good = fixture.client_with::<Echo>(config());
    let rogue = Rogue::connect(fixture.run_dir(), "echo");
    // The last of 16 bytes.
    rogue.send(&Message::Hello(fresh_hello()), &[]);
    rogue.is_refused(RefuseCode::Token, "token");
    assert_eq!(good.call(&vec![1]).unwrap(), [1]);
    drop(good);
    assert_eq!(fixture.close().turned_away, 1);
}

#[test]
fn a_lane_above_the_servers_limit_is_refused_with_both_numbers() {
    let max_lane = Geometry::new(32 << 10).unwrap();
    let limits = Limits { max_lane, ..Limits::default() };
    let attacked =
        AttackedServer::with(ServerConfig::default().lane(LaneConfig::default().limits(limits)));
    let lane = Geometry::new(64 << 10).unwrap();
    for part in ["65536", "32768"] {
        let rogue = attacked.rogue();
        rogue.send(&Message::Hello(Hello { lane, ..fresh_hello() }), &[]);
        rogue.is_refused(RefuseCode::Quota, part);
    }
    attacked.end(2);
}

#[test]
fn a_lane_size_that_is_none_is_refused() {
    let mut bytes = encode(&Message::Hello(fresh_hello()), 0);
    bytes[104..108].copy_from_slice(&12_345_u32.to_le_bytes());
    refuses_first(&bytes, &[], RefuseCode::Protocol, "lane size");
}

#[test]
fn a_lane_limit_that_is_no_lanes_size_is_refused() {
    for limit in [0_u32, 4095, 2048, 12_345, u32::MAX] {
        let mut bytes = encode(&Message::Hello(fresh_hello()), 0);
        bytes[120..124].copy_from_slice(&limit.to_le_bytes());
        refuses_first(&bytes, &[], RefuseCode::Protocol, "lane limit");
    }
}

#[test]
fn a_least_lane_above_the_lane_is_refused() {
    let least_lane = Geometry::DEFAULT.doubled();
    let hello = Hello { least_lane, ..fresh_hello() };
    refuses_hello(hello, RefuseCode::Protocol, "least lane size");
    let mut bytes = encode(&Message::Hello(fresh_hello()), 0);
    bytes[116..120].copy_from_slice(&12_345_u32.to_le_bytes());
    refuses_first(&bytes, &[], RefuseCode::Protocol, "least lane size");
}

#[test]
fn a_limit_of_shared_memory_that_holds_no_page_and_lane_is_refused() {
    let max_shared_bytes_per_session = Limits::MIN_SHARED - 1;
    let limits = Limits { max_shared_bytes_per_session, ..Limits::default() };
    let hello = Hello { limits, ..fresh_hello() };
    refuses_hello(hello, RefuseCode::Protocol, "shared memory limit");
}

#[test]
fn an_unknown_doorbell_is_refused() {
    let mut bytes = encode(&Message::Hello(fresh_hello()), 0);
    bytes[108] = 9;
    refuses_first(&bytes, &[], RefuseCode::Protocol, "doorbell");
}

#[test]
fn a_client_that_cannot_ring_an_eventfd_is_given_the_socket() {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    rogue.send(&Message::Hello(Hello { rings_eventfd: false, ..fresh_hello() }), &[]);
    let Some((Message::Welcome(welcome), fds)) = rogue.receive() else { panic!("not let in") };
    assert_eq!((welcome.doorbell, fds.len()), (Doorbell::Socket, 3));
    drop(rogue);
    attacked.end(1);
}

#[test]
fn an_attach_before_hello_is_refused() {
    let attach = Message::Attach(Attach { session: 1 });
    refuses_first(&encode(&attach, 0), &[], RefuseCode::Protocol, "Attach");
}

#[test]
fn a_hello_twice_is_refused() {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    rogue.enter();
    rogue.send(&Message::Hello(fresh_hello()), &[]);
    rogue.is_refused(RefuseCode::Protocol, "Hello");
    attacked.end(1);
}

#[test]
fn a_servers_message_from_a_client_is_refused() {
    let messages = [
        Message::Welcome(welcome(1)),
        Message::Refuse(Refuse::new(RefuseCode::Quota, "no")),
        Message::Ready(Ready { session: 1 }),
        Message::Attachment(Attachment { id: 1, generation: 1, len: 1 }),
        Message::Ring,
    ];
    for message in messages {
        let attacked = AttackedServer::begin();
        for entered in [false, true] {
            let rogue = attacked.rogue();
            if entered {
                rogue.enter();
            }
            rogue.send(&message, &[]);
            rogue.is_refused(RefuseCode::Protocol, "has no place");
        }
        attacked.end(2);
    }
}

/// An ATTACH that differs from an honest one: `alter` changes page, lane, session number and descriptors.
struct Attaching {
    page: Draft,
    lane: Draft,
    session: u64,
    /// Sent instead of page and lane.
    fds: Option<Vec<OwnedFd>>,
}

#[track_caller]
fn refuses_attach(part: &str, alter: impl FnOnce(&mut Attaching)) {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    let (welcome, _fds) = rogue.enter();
    let session = welcome.session;
    let page = Draft::page(Role::Client, session, rogue.service);
    let mut attaching = Attaching { page, lane: Draft::lane(), session, fds: None };
    alter(&mut attaching);
    let honest = || vec![attaching.page.make(), attaching.lane.make()];
    let fds = attaching.fds.unwrap_or_else(honest);
    rogue.attach(attaching.session, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
    rogue.is_refused(RefuseCode::Protocol, part);
    attacked.end(1);
}

#[test]
fn an_honest_attach_of_the_same_making_is_let_in() {
    // Otherwise the tests below would prove nothing.
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    let (welcome, _fds) = rogue.enter();
    let page = Draft::page(Role::Client, welcome.session, rogue.service).make();
    rogue.attach(welcome.session, &[page.as_fd(), Draft::lane().make().as_fd()]);
    assert!(matches!(rogue.receive(), Some((Message::Ready(_), _))));
    drop(rogue);
    attacked.end(0);
}

#[test]
fn an_attach_without_descriptors_is_refused() {
    refuses_attach("0 descriptors", |attach| attach.fds = Some(Vec::new()));
}

#[test]
fn an_attach_with_one_descriptor_is_refused() {
    refuses_attach("1 descriptors", |attach| attach.fds = Some(vec![attach.page.make()]));
}

#[test]
fn an_attach_with_three_descriptors_is_refused() {
    refuses_attach("3 descriptors", |attach| {
        attach.fds = Some(vec![attach.page.make(), attach.lane.make(), attach.lane.make()]);
    });
}

#[test]
fn an_attach_to_another_session_is_refused() {
    refuses_attach("session", |attach| attach.session += 1);
}

#[test]
fn page_and_lane_in_the_wrong_order_are_refused() {
    refuses_attach("bytes", |attach| {
        attach.fds = Some(vec![attach.lane.make(), attach.page.make()]);
    });
}

#[test]
fn a_short_page_is_refused() {
    refuses_attach("2048 bytes", |attach| attach.page.size = 2048);
}

#[test]
fn an_oversized_page_is_refused() {
    refuses_attach("8192 bytes", |attach| attach.page.size = 8192);
}

#[test]
fn a_short_lane_is_refused() {
    refuses_attach("12288 bytes", |attach| attach.lane.size = 12 << 10);
}

#[test]
fn an_oversized_lane_is_refused() {
    refuses_attach("32768 bytes", |attach| attach.lane.size = 32 << 10);
}

#[test]
fn an_empty_page_is_refused() {
    refuses_attach("0 bytes", |attach| {
        attach.page.size = 0;
        attach.page.sparse = true;
        attach.page.bytes = Vec::new();
    });
}

#[test]
fn an_unsealed_page_is_refused() {
    refuses_attach("lacks", |attach| attach.page.seals = SealFlags::empty());
}

#[test]
fn an_unsealed_lane_is_refused() {
    refuses_attach("lacks", |attach| attach.lane.seals = SealFlags::empty());
}

/// The kernel's number of a seal, as the refusal names what is lacking.
fn lacks(seal: SealFlags) -> String {
    format!("lacks {:#x}", seal.bits())
}

#[test]
fn a_page_or_lane_that_may_shrink_is_refused() {
    let seal = SealFlags::SHRINK;
    refuses_attach(&lacks(seal), |attach| attach.page.seals = SEALS - seal);
    refuses_attach(&lacks(seal), |attach| attach.lane.seals = SEALS - seal);
}

#[test]
fn a_page_or_lane_that_may_grow_is_refused() {
    let seal = SealFlags::GROW;
    refuses_attach(&lacks(seal), |attach| attach.page.seals = SEALS - seal);
    refuses_attach(&lacks(seal), |attach| attach.lane.seals = SEALS - seal);
}

#[test]
fn a_page_or_lane_that_others_may_write_is_refused() {
    let seal = SealFlags::FUTURE_WRITE;
    refuses_attach(&lacks(seal), |attach| attach.page.seals = SEALS - seal);
    refuses_attach(&lacks(seal), |attach| attach.lane.seals = SEALS - seal);
}

#[test]
fn a_page_or_lane_whose_seals_are_not_sealed_is_refused() {
    let seal = SealFlags::SEAL;
    refuses_attach(&lacks(seal), |attach| attach.page.seals = SEALS - seal);
    refuses_attach(&lacks(seal), |attach| attach.lane.seals = SEALS - seal);
}

#[test]
fn a_sparse_lane_is_refused() {
    refuses_attach("allocated", |attach| attach.lane.sparse = true);
}

#[test]
fn a_sparse_page_is_refused() {
    refuses_attach("allocated", |attach| {
        attach.page.sparse = true;
        // Its header is what allocates.
        attach.page.bytes = Vec::new();
    });
}

/// Something that is no memfd at all, as page and as lane.
#[track_caller]
fn refuses_as_memory(make: impl Fn() -> OwnedFd) {
    refuses_attach("no memfd", |attach| {
        attach.fds = Some(vec![make(), attach.lane.make()]);
    });
    refuses_attach("no memfd", |attach| {
        attach.fds = Some(vec![attach.page.make(), make()]);
    });
}

#[test]
fn a_pipe_for_memory_is_refused() {
    refuses_as_memory(|| std::io::pipe().unwrap().0.into());
}

#[test]
fn a_file_for_memory_is_refused() {
    // On tmpfs a file may have one seal; on others it has none.
    refuses_attach("memfd", |attach| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        attach.fds = Some(vec![file.into(), attach.lane.make()]);
    });
}

#[test]
fn a_file_on_tmpfs_for_memory_is_refused() {
    refuses_attach("memfd", |attach| {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(4096).unwrap();
        attach.fds = Some(vec![file.into(), attach.lane.make()]);
    });
}

#[test]
fn an_eventfd_for_memory_is_refused() {
    refuses_as_memory(|| rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap());
}

#[test]
fn dev_zero_for_memory_is_refused() {
    refuses_as_memory(|| std::fs::File::open("/dev/zero").unwrap().into());
}

#[test]
fn a_socket_for_memory_is_refused() {
    refuses_as_memory(|| std::os::unix::net::UnixStream::pair().unwrap().0.into());
}

#[test]
fn a_directory_for_memory_is_refused() {
    refuses_as_memory(|| std::fs::File::open("/").unwrap().into());
}

#[test]
fn the_servers_own_memory_sent_back_is_refused() {
    let attacked = AttackedServer::begin();
    let rogue = attacked.rogue();
    let (welcome, fds) = rogue.enter();
    // Sealed, allocated, of the right size; but its header says that it is a server's.
    rogue.attach(welcome.session, &[fds[0].as_fd(), fds[1].as_fd()]);
    rogue.is_refused(RefuseCode::Protocol, "role");
    attacked.end(1);
}

/// A page whose header is wrong at one offset.
#[track_caller]
fn refuses_header(offset: usize, part: &str) {
    refuses_attach(part, |attach| attach.page.bytes[offset] ^= 1);
}

#[test]
fn a_page_without_its_magic_is_refused() {
    refuses_header(0x07, "magic");
}

#[test]
fn a_page_of_another_layout_is_refused() {
    refuses_header(0x08, "layout");
}

#[test]
fn a_page_of_another_role_is_refused() {
    refuses_header(0x0c, "role");
}

#[test]
fn a_page_of_another_session_is_refused() {
    refuses_header(0x17, "session");
}

#[test]
fn a_page_of_another_lane_size_is_refused() {
    refuses_header(0x1c, "lane size");
}

#[test]
fn a_page_of_another_service_is_refused() {
    refuses_header(0x28, "service name");
    refuses_header(0x67, "service name");
}

#[test]
fn a_client_that_is_silent_is_told_when_its_time_is_over() {
    let handshake_timeout = scaled(Duration::from_millis(30));
    let attacked =
        AttackedServer::with(ServerConfig::default().handshake_timeout(handshake_timeout));
    let (mute, halfway) = (attacked.rogue(), attacked.rogue());
    halfway.enter();
    for rogue in [mute, halfway] {
        rogue.is_refused(RefuseCode::Protocol, "in time");
    }
    attacked.end(2);
}

#[test]
fn a_client_that_leaves_at_any_step_leaves_nothing_behind() {
    let attacked = AttackedServer::begin();
    drop(attacked.rogue());
    let said_hello = attacked.rogue();
    said_hello.send(&Message::Hello(fresh_hello()), &[]);
    drop(said_hello);
    let welcomed = attacked.rogue();
    welcomed.enter();
    drop(welcomed);
    let attached = attacked.rogue();
    let (welcome, _fds) = attached.enter();
    let page = Draft::page(Role::Client, welcome.session, attached.service).make();
    attached.attach(welcome.session, &[page.as_fd(), Draft::lane().make().as_fd()]);
    drop(attached);
    until("all seats are free", || {
        let stats = attacked.fixture.stats();
        stats.sessions == 1 && stats.admitted + stats.turned_away == 5
    });
    let fixture = attacked.fixture;
    drop(attacked.good);
    fixture.close();
}

#[test]
fn three_hundred_half_open_handshakes_block_no_good_client() {
    let mut attacked = AttackedServer::begin();
    let mut halfway = Vec::new();
    for at in 0..300 {
        let rogue = attacked.rogue();
        if at % 2 == 0 {
            rogue.send(&Message::Hello(fresh_hello()), &[]);
        }
        halfway.push(rogue);
        if at % 50 == 0 {
            assert_eq!(attacked.good.call(&vec![1]).unwrap(), [1]);
        }
    }
    let mut late = attacked.fixture.client::<Moody>();
    assert_eq!(late.call(&Moody::ANSWER).unwrap(), b"fine");
    drop(late);
    // The connection that was silent longest was evicted.
    halfway.remove(1).is_refused(RefuseCode::Quota, "in the handshake");
    drop(halfway);
    until("all have left", || attacked.fixture.stats().turned_away == 300);
    attacked.end(300);
}

#[test]
fn descriptors_on_an_open_session_poison_it() {
    let attacked = AttackedServer::begin();
    let mut rogue = attacked.rogue().open();
    let bytes = encode(&Message::Ring, 1);
    let fd = Draft::lane().make();
    bellwire_memfd::pass::send(rogue.link.socket(), &bytes, &[fd.as_fd()]).unwrap();
    rogue.is_poisoned();
    poisoned_once(attacked);
}

#[test]
fn junk_on_the_socket_of_an_open_session_poisons_it() {
    for junk in [&b"junk"[..], &encode(&Message::Hello(fresh_hello()), 0), b"\0\0\0\0\0\0\0\0"] {
        let attacked = AttackedServer::begin();
        let mut rogue = attacked.rogue().open();
        bellwire_memfd::pass::send(rogue.link.socket(), junk, &[]).unwrap();
        rogue.is_poisoned();
        poisoned_once(attacked);
    }
}

#[track_caller]
fn poisoned_once(mut attacked: AttackedServer) {
    assert_eq!(attacked.good.call(&vec![1]).unwrap(), [1]);
    drop(attacked.good);
    let stats = attacked.fixture.close();
    assert_eq!((stats.admitted, stats.turned_away, stats.poisoned), (2, 0, 1), "{stats:?}");
}

#[test]
fn a_rogue_that_is_honest_is_served() {
    // Otherwise a poisoned session would prove nothing.
    let attacked = AttackedServer::begin();
    let mut rogue = attacked.rogue().open();
    let header = bellwire_core::wire::Header::new(
        bellwire_core::wire::Kind::Request,
        bellwire_core::wire::Status::Ok,
        1,
        5,
    );
    rogue.put(header, b"hello");
    rogue.sees(bellwire_core::Word::Tail, 32);
    drop(rogue);
    assert_eq!(attacked.end(0).answered, 3);
}
