//! The server under attack: `hostile-server RUN_DIR WORKERS ATTACKER_UID`. The runner moves this process to its
//! cgroup, then sends a line.

use bellwire::RunDir;
use bellwire_hostile::{services, stdio};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().ok_or("usage: hostile-server RUN_DIR WORKERS ATTACKER_UID");
    let (run_dir, workers, attacker_uid) =
        (RunDir::new(next()?), next()?.parse()?, next()?.parse()?);
    if stdio::read_line_into(&mut String::new()) {
        services::serve(&run_dir, workers, attacker_uid)?;
    }
    Ok(())
}
