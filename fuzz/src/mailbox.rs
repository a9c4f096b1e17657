//! The control socket of an open session: messages with descriptors, and records that refer to them.

use std::collections::BTreeSet;

use bellwire_core::lane::{Epoch, MAX_ATTACHED, MAX_OUTSTANDING};
use bellwire_core::mailbox::Mailbox;
use bellwire_core::wire::{Attachment, MAX_CONTROL, Message};
use bellwire_core::{Geometry, Limits};

use crate::script::Script;

/// Passes arbitrary messages to a mailbox, and takes lanes and attachments from it. No descriptor is lost, used twice or
/// kept beyond the limits.
pub fn run(input: &[u8]) {
    let script = Script::new(input);
    let limits = Limits {
        max_message: 40_000,
        max_lane: Geometry::new(32 << 10).expect("a power of two"),
        max_shared_bytes_per_session: 200_000,
    };
    let mut model = Model {
        mailbox: Mailbox::new(limits),
        limits,
        sent: 0,
        held: BTreeSet::new(),
        lanes: Vec::new(),
        is_poisoned: false,
    };
    while !script.is_over() && !model.is_poisoned {
        model.act(&script);
    }
    let rest = model.mailbox.drain();
    model.remove(rest);
    assert!(model.held.is_empty(), "descriptors {:?} were lost", model.held);
}

/// The mailbox, and a model of its contents.
struct Model {
    mailbox: Mailbox<u32>,
    limits: Limits,
    /// The number of descriptors sent so far; each descriptor is represented by its number.
    sent: u32,
    held: BTreeSet<u32>,
    /// The epochs whose memory the mailbox holds, in order.
    lanes: Vec<Epoch>,
    is_poisoned: bool,
}

impl Model {
    fn act(&mut self, script: &Script<'_>) {
        match script.byte() % 8 {
            0 => {
                let fds = script.byte() % 4;
                self.accept(script.sized(), fds);
            }
            1 | 2 => self.post(&Message::Lane(epoch(script)), 1),
            3 | 4 => {
                let id = script.byte().into();
                let attachment = Attachment { id, generation: 0, len: script.u16().into() };
                self.post(&Message::Attachment(attachment), 1);
            }
            5 => self.ask_for_lane(epoch(script), script.byte()),
            6 => match self.mailbox.attachment(script.byte().into()) {
                Ok(Some((attachment, fd))) => {
                    assert!(attachment.len <= self.limits.max_message);
                    self.remove(vec![fd]);
                }
                Ok(None) => assert!(!self.mailbox.has_attachment()),
                Err(_) => assert!(self.mailbox.has_attachment()),
            },
            _ => {
                self.is_poisoned = self.mailbox.give_up(script.byte().into()).is_err();
                let unwanted = self.mailbox.unwanted();
                self.remove(unwanted);
            }
        }
        assert!(self.held.len() <= MAX_OUTSTANDING + 2 * MAX_ATTACHED + 1024);
    }

    fn post(&mut self, message: &Message, fds: u8) {
        let mut bytes = [0; MAX_CONTROL];
        let len = message.encode(fds.into(), &mut bytes);
        self.accept(&bytes[..len], fds);
    }

    fn accept(&mut self, bytes: &[u8], fds: u8) {
        let fds: Vec<u32> = (0..fds).map(|n| self.sent + u32::from(n)).collect();
        self.sent += fds.len() as u32;
        self.held.extend(&fds);
        match self.mailbox.accept(bytes, fds.clone()) {
            Ok(()) => match Message::parse(bytes, fds.len()).expect("the mailbox has parsed it") {
                Message::Ring => assert!(fds.is_empty()),
                Message::Lane(epoch) => {
                    assert!(epoch.size <= self.limits.max_lane);
                    self.lanes.push(epoch);
                    assert!(self.lanes.len() <= MAX_OUTSTANDING, "more lanes than the limit");
                    let bytes: u64 = self.lanes.iter().map(|epoch| epoch.size.size()).sum();
                    assert!(bytes <= self.limits.max_shared_bytes_per_session);
                }
                Message::Attachment(_) => {}
                message => panic!("{message:?} is not allowed in an open session"),
            },
            Err(rejected) => {
                assert_eq!(rejected.descriptors.len(), fds.len(), "all descriptors are returned");
                self.remove(rejected.descriptors);
                self.is_poisoned = true;
            }
        }
    }

    fn ask_for_lane(&mut self, epoch: Epoch, then: u8) {
        match self.mailbox.lane(epoch) {
            Ok(Some(fd)) => {
                assert_eq!(self.lanes.first(), Some(&epoch), "lanes come in order");
                if then & 1 == 0 {
                    self.mailbox.put_back(epoch, fd);
                } else {
                    self.lanes.remove(0);
                    self.remove(vec![fd]);
                }
            }
            Ok(None) => assert!(self.lanes.is_empty()),
            Err(_) => {
                assert_ne!(self.lanes.first(), Some(&epoch));
                assert!(!self.lanes.is_empty());
            }
        }
    }

    /// Removes descriptors that the mailbox gave out, which it must have held.
    fn remove(&mut self, fds: Vec<u32>) {
        for fd in fds {
            assert!(self.held.remove(&fd), "descriptor {fd} was given out twice");
        }
    }
}

fn epoch(script: &Script<'_>) -> Epoch {
    let [number, bits] = script.array();
    let size = Geometry::new(1 << (12 + bits % 6)).expect("a lane's size");
    Epoch { number: number.into(), size }
}
