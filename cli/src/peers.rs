//! Whom this command talks to, as its global options say.

use std::path::Path;
use std::sync::OnceLock;

use bellwire::{ClientConfig, ServerConfig, Token};

/// Set once, before any command runs.
static TOKEN: OnceLock<Token> = OnceLock::new();

/// Takes the token from a file: its bytes, but for one line feed at the end, as if `BELLWIRE_TOKEN` were that.
pub(crate) fn set_token_file(file: &Path) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("--token-file {}: {why}", file.display());
    let bytes = std::fs::read(file).map_err(|error| failed(&error))?;
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if text.is_empty() {
        return Err(failed(&"it is empty"));
    }
    let _ = TOKEN.set(Token::of(text));
    Ok(())
}

/// What clients of this command begin with.
pub(crate) fn client() -> ClientConfig {
    let config = ClientConfig::default();
    ClientConfig { token: TOKEN.get().copied().or(config.token), ..config }
}

/// What providers of this command begin with.
pub(crate) fn server() -> ServerConfig {
    let config = ServerConfig::default();
    ServerConfig { token: TOKEN.get().copied().or(config.token), ..config }
}
