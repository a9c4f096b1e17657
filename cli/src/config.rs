//! The initial configuration of every command that connects or serves.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use bellwire::{ClientConfig, RunDir, ServerConfig, Token, User};

use crate::exit::{Exit, Failure};
use crate::provide::args::Provide;

/// What the command line sets for all of this program's sessions.
#[derive(Default)]
struct CliOptions {
    token: Option<Token>,
    trusted: Vec<User>,
}

static OPTIONS: OnceLock<CliOptions> = OnceLock::new();

/// Applies `--token-file` and `--trust`, before the first session.
pub(crate) fn set(token_file: Option<&Path>, trusted: Vec<User>) -> Result<(), Failure> {
    let token = match token_file {
        Some(file) => Some(read(file)?),
        None => Token::from_environment().map_err(|error| {
            Failure::new(Exit::Failed, format!("BELLWIRE_TOKEN: {error}"))
                .next("unset it, or make one with `od -An -tx1 -N16 /dev/urandom | tr -d ' \\n'`")
        })?,
    };
    let _ = OPTIONS.set(CliOptions { token, trusted });
    Ok(())
}

/// Refuses a run dir that can never be one.
pub(crate) fn check(run_dir: &RunDir) -> Result<(), Failure> {
    let path = run_dir.path();
    if fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
        let what = format!("the run dir {} is not a directory", path.display());
        return Err(
            Failure::new(Exit::Failed, what).next("remove it, or name another with --run-dir DIR")
        );
    }
    Ok(())
}

fn read(file: &Path) -> Result<Token, Failure> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot read the token in {name}: {error}"))
    })?;
    text.trim().parse().map_err(|error| Failure::new(Exit::Failed, format!("{name}: {error}")))
}

fn options() -> &'static CliOptions {
    OPTIONS.get_or_init(CliOptions::default)
}

pub(crate) fn client() -> ClientConfig {
    let CliOptions { token, trusted } = options();
    ClientConfig::default().token(*token).trusted(trusted.clone())
}

pub(crate) fn server() -> ServerConfig {
    ServerConfig::default().token(options().token)
}

pub(crate) fn provider(args: &Provide) -> ServerConfig {
    let config = server().admission(args.admit.clone());
    config.netipc(args.netipc).group_run_dir(args.group_run_dir)
}
