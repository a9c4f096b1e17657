use std::io::IoSlice;
use std::os::fd::AsFd;

use bellwire_core::lane::Epoch;
use bellwire_core::wire::{Attachment, Message};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use bellwire_hostile::wire::{ATTACHMENT_SEALS, SEALS, Session, Target, memfd, rest, send};

/// Passes four lanes and four attachments that no record refers to.
pub(super) fn queued(target: &Target) {
    let (Ok(lane), Ok(attachment)) =
        (memfd(4_096, &[], SEALS, false), memfd(4_096, &[], ATTACHMENT_SEALS, false))
    else {
        return;
    };
    let fill = |session: &Session| {
        let mut epoch = Epoch::first(target.lane);
        for _ in 0..4 {
            epoch = epoch.next(bellwire_core::Geometry::SMALLEST);
            send(&session.socket, &Message::Lane(epoch), &[lane.as_fd()]);
            let message = Attachment { id: 1, generation: 0, len: 4_096 };
            send(&session.socket, &Message::Attachment(message), &[attachment.as_fd()]);
        }
        session.publish();
    };
    let mut sessions = Vec::new();
    loop {
        if sessions.len() < 1_000 {
            sessions.extend(target.open("echo").inspect(fill));
        } else {
            rest();
        }
        sessions.retain(|session| !session.is_closed());
    }
}

/// Sends empty messages: to `recvmsg` each looks like the end of the stream.
pub(super) fn empty(target: &Target) {
    target.repeat("echo", 100, std::thread::yield_now, |session| {
        let mut control = SendAncillaryBuffer::default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while sendmsg(&session.socket, &[IoSlice::new(&[])], &mut control, flags).is_ok() {}
    });
}
