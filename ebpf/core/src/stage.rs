use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use crate::Pattern;

/// A stage of the latency of a message, or the whole: `enum stage` of `bpf/trace.h`, in the same order. `docs/tracing.md`
/// says from when to when each lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Stage {
    /// The sender waits for room and copies.
    Send,
    /// Until the receiver is being woken, or has it.
    Publish,
    /// Until the receiver is on a CPU.
    Wake,
    /// Until the receiver has it.
    OnCpu,
    /// The next three together.
    Receive,
    /// For a worker, and for the reactor after that.
    Queue,
    /// The request is decoded.
    Decode,
    /// The handler runs, and the answer is encoded.
    Handler,
    /// The part of the handler on a CPU.
    HandlerOnCpu,
    /// The part of the handler that waits for a CPU.
    HandlerRunnable,
    /// The part of the handler that sleeps.
    HandlerSleeping,
    /// The part of the handler that is stopped by a signal or debugger.
    HandlerStopped,
    /// The next four together.
    Reply,
    /// As [`Stage::Send`], of the answer.
    ReplySend,
    /// As [`Stage::Publish`], of the answer.
    ReplyPublish,
    /// As [`Stage::Wake`], of the answer.
    ReplyWake,
    /// As [`Stage::OnCpu`], of the answer.
    ReplyOnCpu,
    /// The reader copies a snapshot or event.
    Copy,
    /// The reader asks for a snapshot's memory and maps it.
    Map,
    /// The reader validates a snapshot, or decodes an event.
    Validate,
    /// All of it.
    Call,
}

/// The number of stages, including [`Stage::Call`].
pub(crate) const STAGE_COUNT: usize = Stage::Call as usize + 1;

/// The stages that make up a snapshot's or an event's way.
pub const DELIVERY_STAGES: [Stage; 7] = [
    Stage::Send,
    Stage::Publish,
    Stage::Wake,
    Stage::OnCpu,
    Stage::Copy,
    Stage::Map,
    Stage::Validate,
];

/// The stages that make up a call; [`Stage::Reply`] is the sum of [`REPLY_STAGES`].
pub const CALL_STAGES: [Stage; 6] =
    [Stage::Send, Stage::Publish, Stage::Wake, Stage::OnCpu, Stage::Receive, Stage::Reply];

/// The stages that make up [`Stage::Receive`].
pub const RECEIVE_STAGES: [Stage; 3] = [Stage::Queue, Stage::Decode, Stage::Handler];

/// The states of the handler's thread that make up [`Stage::Handler`].
pub const HANDLER_STAGES: [Stage; 4] =
    [Stage::HandlerOnCpu, Stage::HandlerRunnable, Stage::HandlerSleeping, Stage::HandlerStopped];

/// The stages of the reply.
pub const REPLY_STAGES: [Stage; 4] =
    [Stage::ReplySend, Stage::ReplyPublish, Stage::ReplyWake, Stage::ReplyOnCpu];

impl Stage {
    /// All stages, each before those that make it up, and the call last.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns its index among the histograms of a session.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Returns its name on the command line and in JSON.
    pub fn id(self) -> &'static str {
        self.into()
    }

    /// Returns whether messages of this pattern have it.
    pub fn is_of(self, pattern: Pattern) -> bool {
        let is_reply = self == Self::Reply || REPLY_STAGES.contains(&self);
        let is_taken = [Self::Copy, Self::Map, Self::Validate].contains(&self);
        match pattern {
            Pattern::Call => !is_taken,
            Pattern::Post => !is_taken && !is_reply,
            Pattern::Delivery => self == Self::Call || DELIVERY_STAGES.contains(&self),
        }
    }

    /// Returns its name in `docs/tracing.md`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Publish => "publish",
            Self::Wake => "wake",
            Self::OnCpu => "on-CPU",
            Self::Receive => "receive",
            Self::Queue => "receive/queue",
            Self::Decode => "receive/decode",
            Self::Handler => "receive/handler",
            Self::HandlerOnCpu => "handler/on-CPU",
            Self::HandlerRunnable => "handler/runnable",
            Self::HandlerSleeping => "handler/sleeping",
            Self::HandlerStopped => "handler/stopped",
            Self::Reply => "reply",
            Self::ReplySend => "reply/send",
            Self::ReplyPublish => "reply/publish",
            Self::ReplyWake => "reply/wake",
            Self::ReplyOnCpu => "reply/on-CPU",
            Self::Copy => "copy",
            Self::Map => "map",
            Self::Validate => "validate",
            Self::Call => "call",
        }
    }
}
