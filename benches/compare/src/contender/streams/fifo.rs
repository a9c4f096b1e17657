//! Named pipes, fifo(7): one each way, created by the client.

use std::fs::{File, OpenOptions, remove_file};
use std::path::PathBuf;

use rustix::pipe::fcntl_setpipe_size;

use super::{Ends, Wire};
use crate::Outcome;
use crate::contender::arrivals::{Arrivals, announce, create, new_name};
use crate::load::{Case, Load};

/// The most that a user's pipe may hold, unless the administrator has said otherwise: pipe(7).
const LARGEST: usize = 1 << 20;

/// Pipes.
pub(in crate::contender) struct Fifo;

impl Wire for Fifo {
    const NAME: &'static str = "pipe";
    type From = File;
    type To = File;

    const SETTINGS: &'static str = "named pipes of 64 KiB, of up to 1 MiB where what is in flight is more; both ends block, \
                                    a thread for each connection";

    fn listen(case: &Case) -> Outcome<impl FnMut() -> Outcome<Ends<Self>> + Send + 'static> {
        let (mut arrivals, case) = (Arrivals::new(case)?, case.clone());
        Ok(move || {
            let (requests, answers) = paths(&case, &arrivals.next()?);
            let from = File::open(&requests)?;
            let to = OpenOptions::new().write(true).open(&answers)?;
            enlarge(&to, &case.load);
            remove_file(requests)?;
            remove_file(answers)?;
            Ok((from, to))
        })
    }

    fn connect(case: &Case) -> Outcome<Ends<Self>> {
        let name = new_name()?;
        let (requests, answers) = paths(case, &name);
        create(&requests)?;
        create(&answers)?;
        announce(case, &name)?;
        let to = OpenOptions::new().write(true).open(requests)?;
        enlarge(&to, &case.load);
        Ok((File::open(answers)?, to))
    }
}

fn paths(case: &Case, name: &str) -> (PathBuf, PathBuf) {
    (case.file(&format!("{name}.requests")), case.file(&format!("{name}.answers")))
}

/// If that is not allowed, its size stays.
fn enlarge(pipe: &File, load: &Load) {
    let wanted = load.depth() * (load.longest() + size_of::<u32>());
    if wanted > 64 << 10 {
        let _ = fcntl_setpipe_size(pipe, wanted.min(LARGEST).next_power_of_two());
    }
}
