//! Copies of the workspace that something is changed in. Files that are the same already are left alone: cargo goes by their
//! times.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;

/// Copies a folder without what is hidden, was built in it or holds the copy, and removes the files that are gone there: cargo
/// builds what it finds.
pub(crate) fn dir(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::file("create", to))?;
    let mut names = Vec::new();
    for entry in fs::read_dir(from).map_err(Error::file("read", from))? {
        let entry = entry.map_err(Error::file("read", from))?;
        let kind = entry.file_type().map_err(Error::file("look at", entry.path()))?;
        let (name, path) = (entry.file_name(), entry.path());
        if kind.is_file() {
            file(&path, &to.join(&name))?;
        } else if kind.is_dir() && !is_left_out(&path) && !to.starts_with(&path) {
            dir(&path, &to.join(&name))?;
        }
        names.push(name);
    }
    for entry in fs::read_dir(to).map_err(Error::file("read", to))? {
        let entry = entry.map_err(Error::file("read", to))?;
        if !names.contains(&entry.file_name()) && entry.path().is_file() {
            fs::remove_file(entry.path()).map_err(Error::file("remove", entry.path()))?;
        }
    }
    Ok(())
}

/// Git's folder, and those of cargo, which [it marks](https://bford.info/cachedir/).
fn is_left_out(dir: &Path) -> bool {
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    dir.file_name().is_some_and(is_hidden) || dir.join("CACHEDIR.TAG").exists()
}

fn file(from: &Path, to: &Path) -> Result<(), Error> {
    let bytes = fs::read(from).map_err(Error::file("read", from))?;
    write(to, bytes)
}

/// Writes a file.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|there| there == bytes.as_ref()) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
    }
    fs::write(path, bytes).map_err(Error::file("write", path))
}

/// Takes over what was built at `from`, unless something was built at `to` before: what does not change need not be built
/// again.
pub(crate) fn built(from: &Path, to: &Path) -> Result<(), Error> {
    if to.exists() || !from.exists() {
        return Ok(());
    }
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
    }
    // With the times of the files.
    let mut cp = Command::new("cp");
    cp.args(["--archive", "--reflink=auto"])
        .args([from, to])
        .status()
        .map_err(Error::spawn("cp"))?;
    Ok(())
}

/// Runs cargo in a copy of the workspace, which is built on its own: cargo takes two copies for the same one. What is under
/// test there is built again and again, so make that quick. `Err` inside holds what the compiler said.
pub(crate) fn cargo(dir: &Path, command: &mut Command) -> Result<Result<String, String>, Error> {
    let output = command
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::spawn("cargo"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn a_copy_inside_the_folder_is_not_copied_into_itself() {
        let root = tempfile::tempdir().unwrap();
        let copy = root.path().join("target/copy");
        super::write(&root.path().join("src/a.rs"), "a").unwrap();
        super::dir(root.path(), &copy).unwrap();
        super::dir(root.path(), &copy).unwrap();
        assert_eq!(fs::read(copy.join("src/a.rs")).unwrap(), b"a");
        assert!(!copy.join("target").exists());
    }
}
