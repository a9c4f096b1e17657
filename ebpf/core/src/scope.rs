use std::path::PathBuf;

/// What to trace; everything by default.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Only messages from or to this process.
    pub pid: Option<u32>,
    /// Only messages of this service.
    pub service: Option<String>,
    /// The processes that run these programs or libraries, also later ones, instead of all that run now.
    pub exe: Vec<PathBuf>,
    /// How many messages are sampled.
    pub rate: Rate,
}

/// The most messages that are sampled a second, for each session and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rate {
    /// All of up to 25, beyond that one in 32, and 2 000 at most.
    #[default]
    Default,
    /// 5 000, of any share.
    Middle,
    /// 50 000, of any share.
    High,
    /// Every message.
    All,
}
