use std::time::Duration;

use bellwire_core::ServiceName;
use bellwire_core::lane::LaneStats;
use bellwire_core::wire::RefuseCode;

use crate::connect::Connecting;
use crate::transport::{Os, prelude::*};
use crate::{ClientConfig, ConnectError, Dynamic, RunDir, Service, Session, SessionStats};

/// The result of a [`probe`].
///
/// ```
/// use bellwire::{ClientConfig, Probe, probe};
#[doc = include_str!("doc/increment_served.txt")]
/// let found: Probe = probe(&run_dir, "increment".parse()?, Increment::VERSION, &ClientConfig::default())?;
/// assert_eq!((found.pid, found.refused), (Some(std::process::id()), None));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// The time from the first system call to the provider's last message.
    pub took: Duration,
    /// The provider's process id as reported by the kernel.
    pub pid: Option<u32>,
    /// Why the provider sent REFUSE, as a code and as a message for the operator; `None` when it sent READY.
    pub refused: Option<(RefuseCode, Box<str>)>,
    /// The terms of the session; `None` when the provider sent REFUSE.
    pub terms: Option<SessionTerms>,
}

/// The terms agreed on by both ends, and the content of the provider's board.
///
/// ```
/// use bellwire::{ClientConfig, probe};
#[doc = include_str!("doc/increment_served.txt")]
/// let found = probe(&run_dir, "increment".parse()?, Increment::VERSION, &ClientConfig::default())?;
/// let terms = found.terms.ok_or("refused")?;
/// assert_eq!((terms.requests.size, terms.generation), (16 << 10, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionTerms {
    /// The lane that requests would travel in.
    pub requests: LaneStats,
    /// The lane that answers would travel in.
    pub answers: LaneStats,
    /// The longest request that both ends' limits allow, in bytes.
    pub max_request: u64,
    /// The newest snapshot's generation; 0 when the service has not published any, or publishes none.
    pub generation: u64,
}

impl SessionTerms {
    pub(crate) fn of<S: Service>(session: &Session<S>) -> Self {
        let SessionStats { requests, answers, .. } = session.stats();
        let (max_request, generation) = (session.max_request(), session.board().generation());
        Self { requests, answers, max_request, generation }
    }
}

/// Opens a session with a service without knowing its types, and closes it: one complete handshake, with the memory
/// of both ends. A refusal counts as an answer: the provider is alive.
///
/// # Errors
/// [`ConnectError`] when the provider gave no answer.
pub fn probe(
    run_dir: &RunDir,
    service: ServiceName,
    version: u32,
    config: &ClientConfig,
) -> Result<Probe, ConnectError> {
    let begun = Os::now();
    let until = begun.after(config.connect_timeout);
    let connecting = Connecting::start(run_dir, service, (version, 0), config, until)?;
    let pid = connecting.provider_pid();
    let opened = connecting.finish();
    let took = Os::now().since(begun);
    match opened {
        Err(ConnectError::Refused { code, reason }) => {
            Ok(Probe { took, pid, refused: Some((code, reason)), terms: None })
        }
        opened => {
            let terms = SessionTerms::of(&Session::<Dynamic>::new(opened?, config));
            Ok(Probe { took, pid, refused: None, terms: Some(terms) })
        }
    }
}
