//! Compiles the kernel programs and generates their skeleton. Needs clang.

use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "bpf/trace.bpf.c";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let object = out.join("trace.bpf.o");
    let mut builder = SkeletonBuilder::new();
    builder
        .source(SOURCE)
        .obj(&object)
        // The program's type information names its source: relative, so that it is the same wherever it is built.
        .clang_args(["-Wall", "-Werror", "-mcpu=v3", "-I", "bpf", "-fdebug-compilation-dir=."])
        .build()?;
    // It names libbpf's headers too, which were in a folder with a random name.
    let mut bytes = std::fs::read(&object)?;
    for at in 0..bytes.len() {
        if let Some([b'/', b'.', b't', b'm', b'p', random @ .., b'/']) = bytes.get_mut(at..at + 12)
        {
            random.fill(b'x');
        }
    }
    std::fs::write(&object, bytes)?;
    builder.generate(out.join("trace.skel.rs"))?;
    println!("cargo:rerun-if-changed=bpf");
    Ok(())
}
