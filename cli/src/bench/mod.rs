//! `bellwire bench`: measurements that take real processes.

pub(crate) mod args;
mod process;
pub(crate) mod reactor;

use crate::exit::{Exit, Failure};
use args::{Bench, What};

pub(crate) fn run(args: &Bench) -> Result<Exit, Failure> {
    match &args.what {
        What::Reactor(reactor) => reactor::run(reactor),
    }
}
