//! A client and a provider in C, of two users: each end refuses the other unless it is told otherwise.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::programs::installed;

/// The provider's user, and the client's.
const NETDATA: u32 = 2001;
const OTHER: u32 = 2002;

/// Both programs, and the provider's run dir, which only root and the provider's user could replace.
struct Place {
    programs: tempfile::TempDir,
    run_dir: PathBuf,
    _above: tempfile::TempDir,
}

/// A provider; it ends with this.
struct Provider(Child);

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    /// `None`, and a line, where this process cannot become another user.
    fn new() -> Option<Self> {
        let above = tempfile::tempdir_in("/run").ok();
        let Some(above) = above.filter(|dir| fs::metadata(dir).is_ok_and(|dir| dir.uid() == 0))
        else {
            println!("skipped: it takes root to become other users");
            return None;
        };
        let (programs, run_dir) = (tempfile::tempdir().unwrap(), above.path().join("run"));
        fs::create_dir(&run_dir).unwrap();
        for dir in [above.path(), programs.path(), &run_dir] {
            set_mode(dir, 0o755);
        }
        chown(&run_dir, Some(NETDATA), Some(NETDATA)).unwrap();
        let copies = [("server", 0o755), ("users_client", 0o755), ("setuid_client", 0o4755)];
        for (program, mode) in copies {
            let source = program.replace("setuid", "users") + ".c";
            let built = installed().build("cc", &["-std=c11", "-D_GNU_SOURCE"], &source);
            let program = programs.path().join(program);
            fs::copy(built, &program).unwrap();
            set_mode(&program, mode);
        }
        Some(Self { programs, run_dir, _above: above })
    }

    fn command(&self, program: &str, user: u32, users: &[u32]) -> Command {
        let mut command = Command::new(self.programs.path().join(program));
        command.env("BELLWIRE_RUN_DIR", &self.run_dir).env_remove("BELLWIRE_TOKEN");
        command.args(users.iter().map(u32::to_string)).uid(user).gid(user);
        command
    }

    fn provider(&self, admitted: &[u32]) -> Provider {
        let mut command = self.command("server", NETDATA, admitted);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "serving\n");
        Provider(child)
    }

    /// What a client says.
    #[track_caller]
    fn says(&self, client: &str, user: u32, trusted: &[u32], expected: &str) {
        let output = self.command(client, user, trusted).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        if client == "setuid_client" && !stdout.ends_with("as 0\n") {
            println!("skipped: setuid means nothing in {}", self.programs.path().display());
            return;
        }
        assert!(output.status.success() && stdout.contains(expected), "{stdout}");
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const ANSWERED: &str = "0 42 ";
const NOT_TRUSTED: &str = "belongs to uid 2001, neither this process's user nor root";

#[test]
fn a_client_and_a_provider_of_two_users_admit_and_trust_each_other_only_if_configured() {
    let Some(place) = Place::new() else { return };
    let provider = place.provider(&[]);
    place.says("users_client", NETDATA, &[], ANSWERED);
    place.says("users_client", OTHER, &[NETDATA], "uid 2002 may not connect to");
    drop(provider);
    let _provider = place.provider(&[OTHER]);
    place.says("users_client", OTHER, &[], NOT_TRUSTED);
    place.says("users_client", OTHER, &[NETDATA], ANSWERED);
}

/// Whoever starts it names the run dir, and so could provide anything.
#[test]
fn a_client_that_is_setuid_root_trusts_only_the_users_that_it_lists() {
    let Some(place) = Place::new() else { return };
    let _provider = place.provider(&[]);
    // Root itself trusts the owner of a run dir that nobody else can replace.
    place.says("users_client", 0, &[], ANSWERED);
    place.says("setuid_client", OTHER, &[], NOT_TRUSTED);
    place.says("setuid_client", OTHER, &[NETDATA], ANSWERED);
}
