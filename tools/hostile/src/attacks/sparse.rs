use std::os::fd::AsFd;

use bellwire_core::wire::{Attachment, Header, Join, Kind, Message, PAGE_SIZE, Status};
use zerocopy::IntoBytes;

use bellwire_hostile::wire::{ATTACHMENT_SEALS, SEALS, Target, memfd, rest, send};

const SIZE: u64 = 32 << 20;

/// Requests in attachments whose pages lie beyond the end of the memfd: the pages count at first, and are then freed.
pub(super) fn attachments(target: &Target) {
    loop {
        let Some(mut session) = target.open("echo") else { continue };
        while let Ok(fd) = memfd(SIZE, &[], ATTACHMENT_SEALS, true)
            && !session.is_closed()
        {
            let attachment = Attachment { id: session.id + 1, generation: 0, len: SIZE };
            if !send(&session.socket, &Message::Attachment(attachment), &[fd.as_fd()]) {
                break;
            }
            session.id += 1;
            session.put(Header::new(Kind::Attach, Status::Ok, session.id, 0), &[]);
            session.publish();
            let _ = rustix::fs::ftruncate(&fd, SIZE);
            session.consume();
            rest();
        }
    }
}

/// The same with the initial lane of a session: only the page with the first request's header is allocated.
pub(super) fn lanes(target: &Target) {
    let target = target.with_lane(SIZE);
    let half = u32::try_from(SIZE / 2 - 48).unwrap_or(0);
    let first = Header::new(Kind::Request, Status::Ok, 1, half);
    let join = |held: &mut Vec<_>| {
        let (socket, session, server_fds) = target.hello_to_welcome("echo")?;
        let header = target.page_header("echo", session)?;
        let mut page = [0; PAGE_SIZE];
        page.get_mut(..128)?.copy_from_slice(header.as_bytes());
        // Tail, WantData, WantSpace, State and Doorbell.
        let words =
            [(0x80, SIZE / 2 - 32), (0x180, u64::MAX), (0x200, u64::MAX), (0x280, 1), (0x288, 1)];
        for (at, value) in words {
            page.get_mut(at..at + 8)?.copy_from_slice(&value.to_le_bytes());
        }
        let page = memfd(PAGE_SIZE as u64, &page, SEALS, false).ok()?;
        let lane = memfd(SIZE, &first.to_bytes(), SEALS, true).ok()?;
        send(&socket, &Message::Join(Join { session }), &[page.as_fd(), lane.as_fd()]);
        let _ = rustix::fs::ftruncate(&lane, SIZE);
        held.push((socket, server_fds));
        Some(())
    };
    let mut held = Vec::new();
    loop {
        join(&mut held);
        if held.len() > 1_000 {
            held.clear();
        }
    }
}
