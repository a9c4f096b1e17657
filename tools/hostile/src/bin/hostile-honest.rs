//! The honest client: `hostile-honest RUN_DIR`.

use bellwire::RunDir;
use bellwire_hostile::honest;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    honest::run(&RunDir::new(std::env::args().nth(1).ok_or("usage: hostile-honest RUN_DIR")?))
}
