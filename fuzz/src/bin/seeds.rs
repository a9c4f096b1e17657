//! Writes the seeds: see `bellwire_fuzz::seeds`.

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let seeds = bellwire_fuzz::seeds::all();
    for seed in &seeds {
        let dir = dir.join(seed.target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(&seed.name), &seed.bytes)?;
    }
    println!("{} seeds in {}", seeds.len(), dir.display());
    Ok(())
}
