//! Compiles the kernel programs and generates their skeleton. Needs clang.

use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "bpf/trace.bpf.c";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("trace.skel.rs");
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang_args(["-Wall", "-Werror", "-mcpu=v3", "-I", "bpf"])
        .build_and_generate(&out)?;
    println!("cargo:rerun-if-changed=bpf");
    Ok(())
}
