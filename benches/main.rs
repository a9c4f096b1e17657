//! Bellwire's benches: criterion's figures, and ratios to the machine's own costs.
//!
//! `cargo bench` runs both; `cargo bench -- ratios` only the ratios
//! (`cargo bench -- ratios hot` only those of the steps with that word), `cargo bench -- call` only criterion's
//! benches of that name; `gate` is for `ci/budget`. Each other end is a real process, pinned to the second processor.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::panic,
    clippy::type_complexity,
    unreachable_pub,
    missing_docs,
    reason = "a bench that cannot go on says so by panicking"
)]

#[cfg(feature = "tokio")]
mod asynchronous;
mod call;
mod gate;
mod large;
mod many_clients;
mod pipeline;
mod provider;
mod ratios;
mod scale;
mod snapshot;
mod stream;

use std::process::ExitCode;
use std::time::Duration;

use bellwire_floor as floor;
use criterion::Criterion;

fn main() -> ExitCode {
    let roles: [floor::process::Role; 4] = [
        (provider::ROLE, provider::serve),
        (many_clients::CALLERS, many_clients::callers),
        (scale::CROWD, scale::crowd),
        (scale::STREAMER, scale::streamer),
    ];
    if let Some(code) = floor::peer_main(&roles) {
        return code;
    }
    let cpus = floor::Cpus::pick().expect("no processor to pin to");
    cpus.pin_client().expect("cannot pin to a processor");
    let mut words = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let wanted = words.next();
    if wanted.as_deref() == Some("ratios") {
        return ratios::run(cpus, words.next().as_deref());
    }
    if wanted.as_deref() == Some("gate") {
        gate::run(cpus, words.next().as_deref());
        return ExitCode::SUCCESS;
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    call::benches(&mut criterion, cpus);
    #[cfg(feature = "tokio")]
    asynchronous::benches(&mut criterion, cpus);
    stream::benches(&mut criterion, cpus);
    snapshot::benches(&mut criterion, cpus);
    criterion.final_summary();
    if wanted.is_none() { ratios::run(cpus, None) } else { ExitCode::SUCCESS }
}
