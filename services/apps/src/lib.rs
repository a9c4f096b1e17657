//! The service `apps-lookup`: describes a process by its pid.
//!
//! ```
//! use bellwire_apps::{App, AppsLookup};
//! use bellwire_cgroups::Orchestrator;
//! use bellwire::{Client, Lookup, RunDir, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let run_dir = RunDir::new(dir.path());
//! let mut builder = Server::builder(&run_dir);
//! builder.serve::<AppsLookup>(|_, pid| {
//!     // A real provider reads /proc: `bellwire provide apps` does.
//!     let init = App {
//!         ppid: 0,
//!         uid: 0,
//!         started: std::time::Duration::from_millis(80),
//!         comm: "init".into(),
//!         cgroup: "/init.scope".into(),
//!         orchestrator: Orchestrator::Systemd,
//!         cgroup_name: "init.scope".into(),
//!         labels: vec![("unit".into(), "init.scope".into())],
//!         pending: false,
//!     };
//!     Ok(if pid == 1 { Lookup::Known(init) } else { Lookup::Unknown })
//! })?;
//! let server = builder.start()?;
//!
//! let mut client = Client::<AppsLookup>::new(&run_dir);
//! let apps: Result<Vec<_>, _> = client.connect()?.call_batch(&[1, 4_000_000])?.collect();
//! let [init, other] = apps?.try_into().map_err(|_| "two answers")?;
//! assert_eq!(init.known().map(|app| app.comm).as_deref(), Some("init"));
//! assert_eq!(other, Lookup::Unknown);
//! # server.stop();
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

use std::time::Duration;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(feature = "netipc")]
mod netipc;
#[cfg(feature = "scan")]
pub mod scan;

use bellwire::{Lookup, Malformed, Message, Service};
use bellwire_cgroups::Orchestrator;
use bellwire_cgroups::fields::{Fields, count, cut, put_labels};

/// Describes a process by its pid. Ask for many together with [`Session::call_batch`](bellwire::Session::call_batch).
#[derive(Clone, Copy, Debug)]
pub struct AppsLookup;

impl Service for AppsLookup {
    const NAME: &'static str = "apps-lookup";
    const VERSION: u32 = 1;
    const IDEMPOTENT: bool = true;
    /// A pid in the provider's pid namespace.
    type Request = u32;
    type Response = Lookup<App>;

    #[cfg(feature = "netipc")]
    fn netipc() -> Option<bellwire::netipc::CallMethod> {
        Some(netipc::LOOKUP)
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// The parent's pid; 0 for none, or one in another pid namespace.
    pub ppid: u32,
    /// The user that it runs as: its real uid.
    pub uid: u32,
    /// When it started, counted from boot. Together with the pid it identifies a process permanently, since pids are reused.
    pub started: Duration,
    /// Its name in the kernel: at most 15 bytes for a program, more for a kernel thread.
    pub comm: String,
    /// The path of its cgroup below the hierarchy's root; empty if unknown.
    pub cgroup: String,
    /// The software that manages the cgroup.
    pub orchestrator: Orchestrator,
    /// The cgroup's display name, as in the service `cgroups-snapshot`; empty if the cgroup is unknown.
    pub cgroup_name: String,
    /// The cgroup's labels, as in the service `cgroups-lookup`.
    pub labels: Vec<(String, String)>,
    /// Whether a source of names was asked for the cgroup's name and has not answered yet: it is made from the path, and may
    /// change.
    pub pending: bool,
}

/// The fixed part; the process's name follows, then the path, the cgroup's name and the labels.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    /// In nanoseconds.
    started: U64,
    ppid: U32,
    uid: U32,
    comm_len: U16,
    cgroup_len: U16,
    name_len: U16,
    labels: U16,
    orchestrator: u8,
    pending: u8,
    zero: [u8; 6],
}

impl Message for App {
    /// Encodes the process. A text longer than 65 535 bytes is cut; no process has one.
    fn encode(&self, into: &mut Vec<u8>) {
        let (comm, comm_len) = cut(&self.comm);
        let (cgroup, cgroup_len) = cut(&self.cgroup);
        let (name, name_len) = cut(&self.cgroup_name);
        let head = Head {
            started: u64::try_from(self.started.as_nanos()).unwrap_or(u64::MAX).into(),
            ppid: self.ppid.into(),
            uid: self.uid.into(),
            comm_len: comm_len.into(),
            cgroup_len: cgroup_len.into(),
            name_len: name_len.into(),
            labels: count(&self.labels).into(),
            orchestrator: self.orchestrator.code(),
            pending: self.pending.into(),
            zero: [0; 6],
        };
        into.extend_from_slice(head.as_bytes());
        into.extend_from_slice(comm.as_bytes());
        into.extend_from_slice(cgroup.as_bytes());
        into.extend_from_slice(name.as_bytes());
        put_labels(&self.labels, into);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::of(bytes);
        let head: Head = fields.head()?;
        if head.zero != [0; 6] || head.pending > 1 {
            return Err(fields.malformed("a byte that is neither 0 nor 1, or not 0"));
        }
        let app = Self {
            ppid: head.ppid.get(),
            uid: head.uid.get(),
            started: Duration::from_nanos(head.started.get()),
            comm: fields.text(head.comm_len.get().into())?,
            cgroup: fields.text(head.cgroup_len.get().into())?,
            // A newer provider may know more orchestrators.
            orchestrator: Orchestrator::from_code(head.orchestrator).unwrap_or_default(),
            cgroup_name: fields.text(head.name_len.get().into())?,
            labels: fields.labels(head.labels.get())?,
            pending: head.pending == 1,
        };
        fields.end()?;
        Ok(app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App {
            ppid: 1,
            uid: 1000,
            started: Duration::from_nanos(123_456_789),
            comm: "nginx".into(),
            cgroup: "/system.slice/nginx.service".into(),
            orchestrator: Orchestrator::Systemd,
            cgroup_name: "nginx".into(),
            labels: vec![("unit".into(), "n".into())],
            pending: true,
        }
    }

    fn bytes(app: &App) -> Vec<u8> {
        let mut bytes = Vec::new();
        app.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_process_has_the_documented_bytes_and_round_trips() {
        let bytes = bytes(&app());
        assert_eq!(App::decode(&bytes), Ok(app()));
        let head = [
            [0x15, 0xcd, 0x5b, 7, 0, 0, 0, 0, 1, 0, 0, 0],
            [0xe8, 3, 0, 0, 5, 0, 27, 0, 5, 0, 1, 0],
        ];
        let texts = b"nginx/system.slice/nginx.servicenginx\x04\0\x01\0unitn";
        assert_eq!(bytes, [&head.concat()[..], &[1, 1, 0, 0, 0, 0, 0, 0], texts].concat());
    }

    #[test]
    fn every_cut_and_every_byte_too_many_is_malformed() {
        let good = bytes(&app());
        for len in 0..good.len() {
            App::decode(&good[..len]).unwrap_err();
        }
        App::decode(&[&good[..], b"x"].concat()).unwrap_err();
    }

    #[test]
    fn texts_that_would_harm_a_terminal_and_reserved_bytes_are_malformed() {
        let good = bytes(&app());
        for (at, byte) in [(32, 0x1b), (33, 0xff), (25, 2), (26, 1), (64, 0x1b), (22, 2)] {
            let mut bad = good.clone();
            bad[at] = byte;
            App::decode(&bad).unwrap_err();
        }
    }
}
