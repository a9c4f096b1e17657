use clap::ValueEnum;
use serde::Serialize;

/// A stage of the latency of a call, or the whole call: `enum stage` of `bpf/trace.h`, in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    Send,
    Publish,
    Wake,
    OnCpu,
    Receive,
    Reply,
    ReplySend,
    ReplyPublish,
    ReplyWake,
    ReplyOnCpu,
    Call,
}

/// The number of stages, with [`Stage::Call`].
pub(crate) const STAGE_COUNT: usize = Stage::Call as usize + 1;

/// The stages that make up a call; [`Stage::Reply`] is the sum of [`REPLY_STAGES`].
pub(crate) const CALL_STAGES: [Stage; 6] =
    [Stage::Send, Stage::Publish, Stage::Wake, Stage::OnCpu, Stage::Receive, Stage::Reply];

/// The stages of the reply.
pub(crate) const REPLY_STAGES: [Stage; 4] =
    [Stage::ReplySend, Stage::ReplyPublish, Stage::ReplyWake, Stage::ReplyOnCpu];

impl Stage {
    /// Returns its index among the histograms of a session.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Returns its name in `docs/tracing.md`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Publish => "publish",
            Self::Wake => "wake",
            Self::OnCpu => "on-CPU",
            Self::Receive => "receive",
            Self::Reply => "reply",
            Self::ReplySend => "reply/send",
            Self::ReplyPublish => "reply/publish",
            Self::ReplyWake => "reply/wake",
            Self::ReplyOnCpu => "reply/on-CPU",
            Self::Call => "call",
        }
    }
}
