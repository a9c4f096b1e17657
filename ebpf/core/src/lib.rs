//! Where the time of a Bellwire message goes: what `bellwire-trace` is made of, for programs that show it themselves.
//!
//! [`trace`] attaches to the library's probes in running processes and to the scheduler's tracepoints; programs in the kernel
//! (`bpf/`) join the two and count. `docs/tracing.md` explains probes and stages. It takes `CAP_BPF` and `CAP_PERFMON`, and
//! Linux 5.15 with BTF.
//!
//! ```no_run
//! use bellwire_trace_core::{Error, Options, Scope, Stage, trace};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Error> {
//! let scope = Scope { service: Some("orders".to_owned()), ..Scope::default() };
//! trace(&scope, Options::default(), &|message| eprintln!("{message}"), |tracer| {
//!     for _ in 0..5 {
//!         std::thread::sleep(Duration::from_secs(1));
//!         // Attaches to processes that have come meanwhile.
//!         tracer.maintain();
//!     }
//!     for (key, counts) in tracer.counts() {
//!         for stage in Stage::ALL.iter().copied().filter(|stage| stage.is_of(key.pattern)) {
//!             let p99 = counts.stage(stage).quantile(0.99);
//!             println!("{} {}: {} of {p99} ns at most", key.service, stage.name(), key.pattern.plural());
//!         }
//!     }
//!     tracer.check_seen()
//! })
//! # }
//! ```

pub mod call;
mod error;
mod histogram;
mod links;
mod notes;
pub mod places;
pub mod processes;
mod raw;
mod scope;
pub mod sessions;
mod stage;
mod stats;
mod targets;
mod tracer;
mod why;

pub use error::Error;
pub use histogram::Histogram;
pub use scope::{Rate, Scope};
pub use stage::{
    CALL_STAGES, DELIVERY_STAGES, HANDLER_STAGES, RECEIVE_STAGES, REPLY_STAGES, Stage,
};
pub use stats::Exemplar;
pub use tracer::{Counts, Key, Losses, Options, Pattern, TYPES, Tracer, trace};
