use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::{Duration, Instant};

use bellwire_hostile::attacks::Attack;
use bellwire_hostile::honest::Window;
use serde::Serialize;
use tempfile::TempDir;

use crate::cgroup::Cgroup;
use crate::process::{Held, Process};

/// The user of the server and the honest client.
const OWN: u32 = 65_532;
/// The attackers' user, whom the server admits.
const GUEST: u32 = 65_531;
/// The attackers' own limit, so that they do not harm the machine instead of the server.
const ATTACKERS: u64 = 1 << 30;
/// How often in a window the server's holdings are read. That takes some milliseconds for a server with 1 000
/// sessions.
const LOOKS: f64 = 2.0;

/// How an attack is run.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) seconds: f64,
    pub(crate) limit: u64,
    pub(crate) same_user: bool,
    /// How many times the p99 of an idle server beside the attacked one the attacked one's may be.
    pub(crate) factor: f64,
    /// The windows without an attack, of each kind.
    pub(crate) windows: usize,
}

/// The outcome of an attack.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) attack: &'static str,
    pub(crate) about: &'static str,
    pub(crate) oom_kills: u64,
    pub(crate) server_alive: bool,
    /// The most memory that the server's cgroup had.
    pub(crate) peak_bytes: u64,
    pub(crate) held: Held,
    /// The processors that the attackers kept busy.
    pub(crate) processors: f64,
    /// Those that the server kept busy.
    pub(crate) server_processors: f64,
    pub(crate) honest: Window,
    /// The honest client's p99 of an idle server, in microseconds.
    pub(crate) idle_us: f64,
    /// The same while the attackers attack another server beside it.
    pub(crate) beside_us: f64,
    /// What does not hold; empty when all does.
    pub(crate) faults: Vec<String>,
}

/// A place for the processes: copies of the executables that other users may run, and a run directory.
pub(crate) struct Testbed {
    dir: TempDir,
    is_root: bool,
}

/// A server in its cgroup, and the honest client. Dropped in this order.
struct House {
    honest: Process,
    server: Process,
    cgroup: Cgroup,
}

/// Attackers in their cgroup, and the observed holdings of the server under attack. Dropped in this order.
struct Siege<'a> {
    attackers: Process,
    _cgroup: Cgroup,
    server: &'a mut Process,
    held: Held,
    processors: f64,
    server_processors: f64,
}

impl Testbed {
    pub(crate) fn build() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("bellwire-hostile-").tempdir()?;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let own = std::env::current_exe()?;
        for name in ["hostile-server", "hostile-honest", "hostile-attack"] {
            let from = own.with_file_name(name);
            fs::copy(&from, dir.path().join(name)).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("{}: {error}: build the whole package", from.display()),
                )
            })?;
        }
        let is_root = rustix::process::geteuid().is_root();
        Ok(Self { dir, is_root })
    }

    pub(crate) fn run(
        &self,
        attack: &'static Attack,
        course: &Course,
        say: impl Fn(&str),
    ) -> io::Result<Outcome> {
        let (idle_for, beside_for) = (course.seconds / 6.0, course.seconds / 3.0);
        let (mut idle, mut beside) = (Vec::new(), Vec::new());
        let mut house = self.open("server", attack.workers, course)?;
        say("idle");
        idle.push(window(&mut house.honest, idle_for, None)?.p99_us);
        say("attack");
        let House { honest, server, cgroup } = &mut house;
        let mut siege = self.besiege(server, "server", attack, course)?;
        let attacked = window(honest, course.seconds, Some(&mut siege))?;
        let ended = siege.attackers.has_ended();
        let Siege { held, processors, server_processors, .. } = siege;
        drop(siege);
        let outcome = (cgroup.kills(), !server.has_ended(), cgroup.peak());
        drop(house);
        let mut house = self.open("server", attack.workers, course)?;
        for _ in 0..course.windows {
            say("beside");
            let mut other = self.open("neighbour", attack.workers, course)?;
            let mut siege = self.besiege(&mut other.server, "neighbour", attack, course)?;
            beside.push(window(&mut house.honest, beside_for, Some(&mut siege))?.p99_us);
            drop(siege);
            drop(other);
            say("idle");
            idle.push(window(&mut house.honest, idle_for, None)?.p99_us);
        }
        let (oom_kills, server_alive, peak_bytes) = outcome;
        let mut outcome = Outcome {
            attack: attack.name,
            about: attack.about,
            oom_kills,
            server_alive,
            peak_bytes,
            held,
            processors,
            server_processors,
            honest: attacked,
            idle_us: median(idle),
            beside_us: median(beside),
            faults: Vec::new(),
        };
        outcome.judge(course.factor, ended);
        Ok(outcome)
    }

    /// Starts a server, whose run directory and cgroup have that name, and an honest client of it.
    fn open(&self, name: &str, workers: usize, course: &Course) -> io::Result<House> {
        let run_dir = self.dir.path().join(name);
        let _ = fs::remove_dir_all(&run_dir);
        fs::create_dir(&run_dir)?;
        fs::set_permissions(&run_dir, Permissions::from_mode(0o755))?;
        if self.is_root {
            chown(&run_dir, Some(OWN), Some(OWN))?;
        }
        let cgroup = Cgroup::with_limit(name, course.limit)?;
        let guest = course.guest().to_string();
        let mut server =
            self.start("hostile-server", name, &[&workers.to_string(), &guest], OWN)?;
        cgroup.take(server.pid())?;
        server.tell("go")?;
        server.hear()?;
        let mut honest = self.start("hostile-honest", name, &[], OWN)?;
        honest.hear()?;
        Ok(House { honest, server, cgroup })
    }

    fn besiege<'a>(
        &self,
        server: &'a mut Process,
        name: &str,
        attack: &Attack,
        course: &Course,
    ) -> io::Result<Siege<'a>> {
        let cgroup = Cgroup::with_limit("attackers", ATTACKERS)?;
        let attackers = self.start("hostile-attack", name, &[attack.name], course.guest())?;
        cgroup.take(attackers.pid())?;
        let held = Held::default();
        let (processors, server_processors) = (0.0, 0.0);
        Ok(Siege { attackers, _cgroup: cgroup, server, held, processors, server_processors })
    }

    fn start(&self, program: &str, run_dir: &str, args: &[&str], uid: u32) -> io::Result<Process> {
        let run_dir = self.dir.path().join(run_dir);
        let args = [&[run_dir.to_str().unwrap_or_default()], args].concat();
        Process::start(&self.dir.path().join(program), &args, uid)
    }
}

/// What becomes of the honest client for so long, and of a server that is attacked meanwhile. Ends sooner when that ends.
fn window(honest: &mut Process, seconds: f64, mut siege: Option<&mut Siege>) -> io::Result<Window> {
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let before = siege.as_ref().map(|siege| siege.server.used()).unwrap_or_default();
    honest.tell(&seconds.to_string())?;
    while let left = until.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        std::thread::sleep(left.min(Duration::from_secs_f64(seconds / LOOKS)));
        let Some(siege) = &mut siege else { continue };
        siege.look(before, start.elapsed());
        if siege.server.has_ended() {
            honest.finish();
            break;
        }
    }
    Ok(serde_json::from_str(&honest.hear()?)?)
}

impl Siege<'_> {
    /// Reads what the server holds, and the processor time used in this time.
    fn look(&mut self, server_before: Duration, long: Duration) {
        self.held = self.held.most(self.server.held());
        let server = self.server.used().saturating_sub(server_before);
        self.processors = self.attackers.used().div_duration_f64(long);
        self.server_processors = server.div_duration_f64(long);
    }
}

impl Course {
    fn guest(&self) -> u32 {
        if self.same_user { OWN } else { GUEST }
    }
}

impl Outcome {
    fn judge(&mut self, factor: f64, ended: bool) {
        let mut faults = Vec::new();
        if self.oom_kills > 0 {
            faults.push("OOM kill".to_owned());
        } else if !self.server_alive {
            faults.push("the server ended".to_owned());
        }
        let Window { refused, failed, p99_us, calls, .. } = self.honest;
        // Failures of a dead server say nothing new.
        if faults.is_empty() {
            if refused > 0 {
                faults.push(format!("{refused} refused"));
            }
            if failed > 0 {
                faults.push(format!("{failed} failed"));
            }
            if calls == 0 || p99_us > factor * self.beside_us {
                faults.push(format!("p99 above {factor} times"));
            }
        }
        if ended {
            faults.push("the attack ended: not a result".to_owned());
        }
        self.faults = faults;
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
