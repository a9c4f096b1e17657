use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
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
/// What the attackers may have, so that they harm the machine no more than the server.
const ATTACKERS: u64 = 1 << 30;
/// How often it is looked at what the server holds.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How an attack is run.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) seconds: f64,
    pub(crate) limit: u64,
    pub(crate) same_user: bool,
    /// How many times the busy neighbour's p99 an attack may cause.
    pub(crate) factor: f64,
    /// The windows without an attack, of each kind.
    pub(crate) windows: usize,
}

/// What an attack came to.
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
    pub(crate) honest: Window,
    /// The honest client's p99 of an idle server, in microseconds.
    pub(crate) idle_us: f64,
    /// The same beside a process as busy as the attackers were.
    pub(crate) busy_us: f64,
    /// What does not hold; empty when all does.
    pub(crate) faults: Vec<String>,
}

/// A place for the processes: copies of the executables that other users may run, and a run directory.
pub(crate) struct Stage {
    dir: TempDir,
    is_root: bool,
}

/// A server in its cgroup, and the honest client. Dropped in this order.
struct House {
    honest: Process,
    server: Process,
    cgroup: Cgroup,
}

impl Stage {
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
        let short = course.seconds / 6.0;
        let (mut idle, mut busy) = (Vec::new(), Vec::new());
        let mut house = self.open(attack.workers, course)?;
        say("idle");
        idle.push(house.window(short, None)?.0.p99_us);
        say("attack");
        let guest = if course.same_user { OWN } else { GUEST };
        let cage = Cgroup::with_limit("attackers", ATTACKERS)?;
        let mut attackers = self.start("hostile-attack", &[attack.name], guest)?;
        cage.take(attackers.pid())?;
        let (honest, held, processors) = house.window(course.seconds, Some(&mut attackers))?;
        let ended = attackers.has_ended();
        let outcome = (house.cgroup.kills(), !house.server.has_ended(), house.cgroup.peak());
        drop(house);
        drop(attackers);
        drop(cage);
        let mut house = self.open(attack.workers, course)?;
        for _ in 0..course.windows {
            say("busy neighbour");
            let neighbour =
                self.start("hostile-attack", &["busy", &format!("{processors:.2}")], guest)?;
            busy.push(house.window(short, None)?.0.p99_us);
            drop(neighbour);
            say("idle");
            idle.push(house.window(short, None)?.0.p99_us);
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
            honest,
            idle_us: median(idle),
            busy_us: median(busy),
            faults: Vec::new(),
        };
        outcome.judge(course.factor, ended);
        Ok(outcome)
    }

    fn open(&self, workers: usize, course: &Course) -> io::Result<House> {
        let run_dir = self.run_dir();
        let _ = fs::remove_dir_all(&run_dir);
        fs::create_dir(&run_dir)?;
        fs::set_permissions(&run_dir, Permissions::from_mode(0o755))?;
        if self.is_root {
            chown(&run_dir, Some(OWN), Some(OWN))?;
        }
        let cgroup = Cgroup::with_limit("server", course.limit)?;
        let guest = if course.same_user { OWN } else { GUEST }.to_string();
        let mut server = self.start("hostile-server", &[&workers.to_string(), &guest], OWN)?;
        cgroup.take(server.pid())?;
        server.tell("go")?;
        server.hear()?;
        let mut honest = self.start("hostile-honest", &[], OWN)?;
        honest.hear()?;
        Ok(House { honest, server, cgroup })
    }

    fn start(&self, name: &str, args: &[&str], uid: u32) -> io::Result<Process> {
        let run_dir = self.run_dir();
        let args = [&[run_dir.to_str().unwrap_or_default()], args].concat();
        Process::start(&self.dir.path().join(name), &args, uid)
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }
}

impl House {
    /// What becomes of the honest client for so long, what the server holds at most, and how many processors the attackers
    /// keep busy. Ends sooner when the server ends.
    fn window(
        &mut self,
        seconds: f64,
        mut attackers: Option<&mut Process>,
    ) -> io::Result<(Window, Held, f64)> {
        let start = Instant::now();
        let until = start + Duration::from_secs_f64(seconds);
        let mut held = Held::default();
        let mut used = Duration::ZERO;
        self.honest.tell(&seconds.to_string())?;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            std::thread::sleep(left.min(LOOK_EVERY));
            let Some(attackers) = &mut attackers else { continue };
            held = held.most(self.server.held());
            used = used.max(attackers.used());
            if self.server.has_ended() {
                self.honest.finish();
                break;
            }
        }
        let processors = used.as_secs_f64() / start.elapsed().as_secs_f64();
        let window = serde_json::from_str(&self.honest.hear()?)?;
        Ok((window, held, processors))
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
        // What fails of a server that is dead says nothing new.
        if faults.is_empty() {
            if refused > 0 {
                faults.push(format!("{refused} refused"));
            }
            if failed > 0 {
                faults.push(format!("{failed} failed"));
            }
            if calls == 0 || p99_us > factor * self.busy_us {
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
