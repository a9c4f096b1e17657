use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::transport::endpoint::{Endpoint, EndpointInfo, ListError};
use crate::transport::{Os, prelude::*};

/// The directory of the endpoints: on Linux the sockets `{run_dir}/{service}.sock`, on Windows the lock files of the
/// pipes.
///
/// Providers and their clients must use the same one. On Linux, it must belong to the provider's user or to root, and
/// no other user may be able to write to it, unless it is sticky.
///
/// ```
/// use bellwire::{RunDir};
/// # use bellwire::{Server, Service};
/// # struct Increment;
/// # impl Service for Increment {
/// #     const NAME: &'static str = "increment";
/// #     type Request = u64;
/// #     type Response = u64;
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let run_dir = RunDir::new(dir.path());
/// # let mut builder = Server::builder(&run_dir);
/// # builder.serve::<Increment>(|_, number| Ok(number + 1))?;
/// # let server = builder.start()?;
/// let run_dir = RunDir::new(run_dir.path());
/// let [endpoint] = &run_dir.endpoints()?[..] else { return Err("one service".into()) };
/// assert_eq!(endpoint.service.as_str(), "increment");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// The environment variable that names the run dir: `BELLWIRE_RUN_DIR`.
    pub const VARIABLE: &'static str = "BELLWIRE_RUN_DIR";

    /// Uses this directory. A provider creates it when it is missing, on Linux with mode 0700 unless [other users are
    /// admitted](crate::ServerConfig::admission); its parent must exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Uses `BELLWIRE_RUN_DIR`. Without it, on Linux, `bellwire` below `XDG_RUNTIME_DIR`, and without that
    /// `/run/bellwire`; on Windows `bellwire` below `LOCALAPPDATA`.
    pub fn from_environment() -> Self {
        Self::choose(std::env::var_os(Self::VARIABLE))
    }

    /// Uses Netdata's: `NETDATA_RUN_DIR`, or `/run/netdata` without it. Its group may write it, which a server accepts with
    /// [`ServerConfig::group_run_dir`](crate::ServerConfig::group_run_dir).
    #[cfg(feature = "netipc")]
    pub fn of_netdata() -> Self {
        let named = std::env::var_os("NETDATA_RUN_DIR").filter(|path| !path.is_empty());
        Self(named.map_or_else(|| "/run/netdata".into(), PathBuf::from))
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the endpoints in it by name, and whether a provider serves each. Does not disturb the providers.
    ///
    /// # Errors
    /// [`ListError`] when it cannot be read; its source tells whether it exists.
    pub fn endpoints(&self) -> Result<Vec<EndpointInfo>, ListError> {
        Endpoint::list(&self.0)
    }

    fn choose(named: Option<OsString>) -> Self {
        let named = named.filter(|path| !path.is_empty());
        Self(named.map_or_else(Os::default_run_dir, PathBuf::from))
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
    fn the_variable_takes_precedence_over_the_default_run_dir() {
        let some = |text: &str| Some(OsString::from(text));
        let default = RunDir::new(Os::default_run_dir());
        assert_eq!(RunDir::choose(some("/a")), RunDir::new("/a"));
        assert_eq!(RunDir::choose(some("")), default);
        assert_eq!(RunDir::choose(None), default);
        assert!(default.path().ends_with("bellwire"));
    }
}
