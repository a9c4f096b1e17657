//! What child processes do that only Linux can have done.

use bellwire::{Refreshed, RunDir, SnapshotCache};
use rustix::thread::{SecureComputingMode, set_secure_computing_mode};

use super::blobs::{self, Settings};
use super::child::{Parent, ParentWriter};
use super::guard::TEST_TIMEOUT;
use super::kernel;
use super::limiter::{ResourceLimiter, drop_limit_capabilities};
use super::services::Numbers;
pub(crate) use super::shared::roles::parse_stats;
use super::shared::roles::{self, serve};
use super::test_server::client_config;
use crate::processes::{activation, latency, stopped};

/// Plays a role until the parent is gone, or ends it.
pub(crate) fn play(role: &str, parent: Parent) {
    let (name, words) = role.split_once(' ').unwrap_or((role, ""));
    match name {
        "pinned-server" => {
            kernel::pin(&[words.parse().unwrap()]);
            serve(parent, 0);
        }
        "blobs" => {
            let mut limiter = limited();
            let settings = Settings::parse(words.split_whitespace());
            blobs::serve(parent, &settings, |words| limiter.apply(words));
        }
        "blob-client" => {
            let mut limiter = limited();
            blobs::call(parent, |words| limiter.apply(words));
        }
        "backend" => crate::backends::serve(parent, words),
        #[cfg(feature = "tokio")]
        "async-idle" => crate::asynchronous::idle(parent),
        "busy" => latency::spin(parent, words.parse().unwrap()),
        "observer" => latency::observe(parent),
        "victim" => latency::wait_for_death(parent, &words.split(' ').collect::<Vec<_>>()),
        "activated" => activation::play(parent),
        "not-reading" => stopped::stop_reading(parent),
        "admission" => crate::admission::play(parent, role),
        "scale" => crate::scale::play(parent, words),
        "limits" => crate::limits::play(parent, role),
        "reader" => read_without_system_calls(parent),
        "news" => crate::events::short::publish(parent, limited()),
        "publisher" => crate::events::killed::publish_for_ever(&parent),
        _ => roles::play(role, parent),
    }
}

fn limited() -> ResourceLimiter {
    drop_limit_capabilities();
    ResourceLimiter::default()
}

/// Refreshes a cache a thousand times, with nothing allowed but reading and writing.
fn read_without_system_calls(mut parent: Parent) {
    let run_dir = RunDir::from_environment();
    let mut cache = SnapshotCache::<Numbers>::with_config(&run_dir, client_config());
    assert_eq!(cache.refresh_within(TEST_TIMEOUT).unwrap(), Refreshed::Changed);
    parent.send_line("ready");
    parent.next_line().unwrap();
    let [unchanged_line, different_line] = ["unchanged", "different"].map(ParentWriter::line);
    let reader = std::thread::spawn(move || {
        // From here on any other system call ends this thread.
        set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
        let mut unchanged = 0;
        for _ in 0..1000 {
            unchanged += u32::from(matches!(cache.refresh(), Ok(Refreshed::Unchanged)));
        }
        let line = if unchanged == 1000 { &unchanged_line } else { &different_line };
        // As bare as can be: the standard library might take a lock.
        let _ = rustix::io::write(std::io::stderr(), line.as_bytes());
        // Not even to end is allowed.
    });
    // Panics either way, which ends the process: the kernel ended the thread.
    reader.join().unwrap();
}
