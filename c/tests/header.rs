use std::fs;
use std::path::Path;

/// `BELLWIRE_BLESS=1 cargo test -p bellwire-c` writes it.
#[test]
fn the_checked_in_header_is_the_generated_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings =
        cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    // What rustdoc and clippy want to have said is said of pointers in the header's own words.
    let text = String::from_utf8(text)
        .unwrap()
        .replace("/// # Safety\n", "/// Requires:\n")
        .replace("// # Safety\n", "// Requires:\n");
    let path = root.join("include/bellwire.h");
    if std::env::var_os("BELLWIRE_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "c/include/bellwire.h is not what cbindgen makes: run BELLWIRE_BLESS=1 cargo test -p bellwire-c"
    );
}
