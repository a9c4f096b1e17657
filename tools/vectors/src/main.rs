//! Writes the vectors.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire/vectors");
    for file in bellwire_vectors::files() {
        let text = file.text();
        println!("{:<16} {:>4} cases {:>7} bytes", file.name, file.cases.len(), text.len());
        std::fs::write(dir.join(file.name), text)?;
    }
    Ok(())
}
