//! One attack until the runner closes its standard input: `hostile-attack RUN_DIR NAME`.

use bellwire_hostile::wire::Target;
use bellwire_hostile::{attacks, stdio};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().ok_or("usage: hostile-attack RUN_DIR NAME");
    let target = Target::new(next()?.into());
    let name = next()?;
    let attack = attacks::named(&name).ok_or("there is no such attack")?;
    stdio::exit_with_runner();
    (attack.run)(&target);
    Ok(())
}
