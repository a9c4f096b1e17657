use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The directory that holds the endpoints, `{run_dir}/{service}.sock`.
///
/// Providers and clients meet there, so both must name the same one. It must belong to the provider's user or
/// to root, and nobody else may write it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// The variable that names the run dir: `BELLWIRE_RUN_DIR`.
    pub const VARIABLE: &'static str = "BELLWIRE_RUN_DIR";

    /// This directory. A provider creates it, mode 0700, when it is missing; its parent must exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// `BELLWIRE_RUN_DIR`; without it `bellwire` below `XDG_RUNTIME_DIR`; without that `/run/bellwire`.
    pub fn from_environment() -> Self {
        Self::choose(std::env::var_os(Self::VARIABLE), std::env::var_os("XDG_RUNTIME_DIR"))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn choose(ours: Option<OsString>, xdg: Option<OsString>) -> Self {
        let set = |value: Option<OsString>| value.filter(|value| !value.is_empty());
        match (set(ours), set(xdg)) {
            (Some(path), _) => Self(path.into()),
            (None, Some(runtime)) => Self(Path::new(&runtime).join("bellwire")),
            (None, None) => Self("/run/bellwire".into()),
        }
    }
}

impl Default for RunDir {
    fn default() -> Self {
        Self::from_environment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_variable_comes_before_the_users_runtime_dir() {
        let some = |text: &str| Some(OsString::from(text));
        assert_eq!(RunDir::choose(some("/a"), some("/b")), RunDir::new("/a"));
        assert_eq!(RunDir::choose(some(""), some("/b")), RunDir::new("/b/bellwire"));
        assert_eq!(RunDir::choose(None, None), RunDir::new("/run/bellwire"));
    }
}
