//! `bellwire-bench`: Bellwire beside the floor of the machine and beside the alternatives, in one run.
#![forbid(unsafe_code)]

mod clock;
mod contender;
mod handler;
mod hist;
mod load;
mod measure;
mod order;
mod roles;
mod serve;
mod sink;

use std::error::Error;
use std::process::ExitCode;

/// The result of everything on the way of a measurement: its errors are for people.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    if let Some(code) = bellwire_floor::peer_main(roles::ROLES) {
        return code;
    }
    ExitCode::SUCCESS
}
