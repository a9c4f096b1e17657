//! The server under attack: `hostile-server RUN_DIR WORKERS GUEST`. The runner moves it to its cgroup, then sends a line.

use bellwire::RunDir;
use bellwire_hostile::{life, services};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().ok_or("usage: hostile-server RUN_DIR WORKERS GUEST");
    let (run_dir, workers, guest) = (RunDir::new(next()?), next()?.parse()?, next()?.parse()?);
    if life::await_line(&mut String::new()) {
        services::serve(&run_dir, workers, guest)?;
    }
    Ok(())
}
