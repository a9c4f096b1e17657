//! Builds the victims in C.

fn main() {
    #[cfg(feature = "c")]
    {
        let dir = "src/victim/c";
        println!("cargo::rerun-if-changed={dir}");
        println!("cargo::rerun-if-changed=../../c/include/bellwire.h");
        cc::Build::new()
            .file(format!("{dir}/victim.c"))
            .include("../../c/include")
            .std("c11")
            .flag("-Wpedantic")
            .extra_warnings(true)
            .warnings_into_errors(true)
            .compile("victim");
    }
}
