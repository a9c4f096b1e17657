//! Messages in an order that is none, and steps that are not taken.

use bellwire::RefuseCode;
use bellwire_core::wire::{Attachment, Message, Ready, Refuse};

use super::is_refused;
use crate::support::rogue::{hello, service, welcome};

/// Connects, and sends something other than JOIN.
#[track_caller]
fn is_out_of_place(message: &Message) {
    is_refused(RefuseCode::Protocol, "an unexpected", |rogue| {
        rogue.enter();
        rogue.send(message, &[]);
    });
}

rows! { after_welcome: is_out_of_place {
    a_second_hello(&Message::Hello(hello(service("echo"))));
    a_welcome_in_return(&Message::Welcome(welcome(1)));
    a_refusal_in_return(&Message::Refuse(Refuse::new(RefuseCode::Quota, "no")));
    a_ready_in_return(&Message::Ready(Ready { session: 1 }));
    an_attachment_before_the_session(&Message::Attachment(Attachment { id: 1, generation: 0, len: 1 }));
    a_ring_before_the_session(&Message::Ring);
} }
