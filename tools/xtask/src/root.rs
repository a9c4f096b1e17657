use std::env;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The root of the checkout that this program was started in.
pub(crate) fn find() -> Result<PathBuf, Error> {
    let here = env::current_dir().map_err(Error::file("find", "."))?;
    let root = here.ancestors().find(|dir| is_root(dir)).map(Path::to_path_buf);
    root.ok_or(Error::NoRoot { from: here })
}

/// Where cargo builds: `CARGO_TARGET_DIR`, or `target` in the checkout.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

fn is_root(dir: &Path) -> bool {
    dir.join("ci").is_dir() && dir.join("tools/xtask/Cargo.toml").is_file()
}
