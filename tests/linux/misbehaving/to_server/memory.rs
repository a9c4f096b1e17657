//! The page and the lane that a client joins with.

use std::os::fd::{AsFd, OwnedFd};

use bellwire::{Doorbell, RefuseCode};
use bellwire_core::wire::{Join, Message, Role};
use rustix::fs::SealFlags;

use super::{is_refused, is_refused_at_join};
use crate::misbehaving::impostor;
use crate::misbehaving::table::in_handshake::*;
use crate::support::memory::Draft;

bad_memory! { a_page: refused_as_page }

bad_memory! { a_lane: refused_as_lane }

#[track_caller]
fn refused_as_page(part: &str, alter: impl FnOnce(&mut Draft)) {
    is_refused_at_join(part, |it| alter(&mut it.page));
}

#[track_caller]
fn refused_as_lane(part: &str, alter: impl FnOnce(&mut Draft)) {
    is_refused_at_join(part, |it| alter(&mut it.lane));
}

rows! { instead_of_an_eventfd: is_no_eventfd {
    a_pipe(impostor::pipe);
    a_unix_socket(impostor::unix_socket);
    a_tcp_socket_that_lingers(impostor::lingering_socket);
    a_file_on_disk(impostor::file_on_disk);
    dev_zero(impostor::dev_zero);
    an_epoll_instance(impostor::epoll);
    a_pidfd(impostor::pidfd);
    a_memfd(impostor::unsealable);
    an_eventfd_by_its_path(impostor::eventfd_by_its_path);
} }

#[track_caller]
fn is_no_eventfd(make: fn() -> OwnedFd) {
    is_refused(RefuseCode::Protocol, "is not an eventfd", |rogue| {
        let mut hello = rogue.hello;
        hello.doorbell = Doorbell::Eventfd;
        rogue.send(&Message::Hello(hello), &[]);
        let Some((Message::Welcome(welcome), _fds)) = rogue.receive() else { panic!("not let in") };
        let page = Draft::page(Role::Client, welcome.session, rogue.service).make();
        let fds = [page, Draft::lane().make(), make()];
        rogue.join(welcome.session, &fds.each_ref().map(AsFd::as_fd));
    });
}

rows! { header: differs {
    in_the_first_byte_of_its_magic(0x00, 1, "magic");
    in_the_last_byte_of_its_magic(0x07, 1, "magic");
    in_its_layout(0x08, 1, "layout");
    in_the_high_half_of_its_layout(0x0b, 0x80, "layout");
    in_its_role(0x0c, 3, "role");
    in_the_high_half_of_its_role(0x0f, 0x80, "role");
    in_its_session(0x10, 1, "session");
    in_the_high_half_of_its_session(0x17, 0x80, "session");
    in_its_lane_size(0x1c, 1, "lane size");
    in_the_high_half_of_its_lane_size(0x1f, 0x80, "lane size");
    in_its_service(0x28, 1, "service name");
    behind_its_service(0x67, 1, "service name");
} }

#[track_caller]
fn differs(at: usize, bits: u8, part: &str) {
    is_refused_at_join(part, |it| it.page.bytes[at] ^= bits);
}

rows! { messages: is_refused_at_join {
    to_session_zero("session", |it| it.session = 0);
    to_the_next_session("session", |it| it.session += 1);
    to_the_last_session("session", |it| it.session = u64::MAX);
    without_descriptors("0 descriptors", |it| it.fds = Some(Vec::new()));
    with_a_page_alone("1 descriptors", |it| it.fds = Some(vec![it.page.make()]));
    with_an_eventfd_that_was_not_agreed("3 descriptors", |it| {
        it.fds = Some(vec![it.page.make(), it.lane.make(), impostor::eventfd()]);
    });
    with_sixteen_lanes("16 descriptors", |it| {
        it.fds = Some((0..16).map(|_| it.lane.make()).collect());
    });
    with_page_and_lane_exchanged("16384 bytes where 4096", |it| {
        it.fds = Some(vec![it.lane.make(), it.page.make()]);
    });
    with_two_pages("4096 bytes where 16384", |it| {
        it.fds = Some(vec![it.page.make(), it.page.make()]);
    });
} }

rows! { borrowed: is_sent_back {
    the_servers_own_memory([0, 1], "role");
    the_servers_page_for_a_lane([0, 0], "4096 bytes where 16384");
    the_services_board_for_a_page([2, 1], "magic");
} }

/// Of page, lane and board, which the server sent, these two.
#[track_caller]
fn is_sent_back(which: [usize; 2], part: &str) {
    is_refused(RefuseCode::Protocol, part, |rogue| {
        let (welcome, fds) = rogue.enter();
        let join = Message::Join(Join { session: welcome.session });
        rogue.send(&join, &which.map(|at| fds[at].as_fd()));
    });
}
