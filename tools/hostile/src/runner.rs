use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

use crate::attacks::Attack;
use crate::cgroup::Cgroup;
use crate::honest::Window;
use crate::process::{Process, ResourceUsage};

/// The user of the server and the honest client.
const SERVER_UID: u32 = 65_532;
/// The user of the attackers, whom the server admits.
const ATTACKER_UID: u32 = 65_531;
/// The memory limit of the attackers' own cgroup, so that they do not exhaust the machine instead of the server.
const ATTACKERS_LIMIT: u64 = 1 << 30;
/// How often in a window the server's resources are sampled. A sample takes some milliseconds for a server with 1 000
/// sessions.
const SAMPLES_PER_WINDOW: f64 = 2.0;

/// How an attack is run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// How long each attack lasts. A window beside an attacked server takes a third of that, an idle window a sixth.
    #[arg(long, default_value_t = 30.0)]
    pub(crate) seconds: f64,
    /// The limit of the server's memory cgroup, such as 64M.
    #[arg(long, default_value = "64M", value_parser = bytes)]
    pub(crate) limit: u64,
    /// Run the attackers as the server's user.
    #[arg(long)]
    pub(crate) same_user: bool,
    /// The limit of the ratio of the p99 under attack to that of an idle server beside the attacked one.
    #[arg(long, default_value_t = 3.0)]
    pub(crate) factor: f64,
    /// How many idle windows, and how many windows beside an attacked server, are measured.
    #[arg(long, default_value_t = 3)]
    pub(crate) windows: usize,
}

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['M', 'm']) {
        Some(digits) => (digits, 1 << 20),
        None => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is not a size such as 64M"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is too large"))
}

/// The outcome of an attack.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) attack: &'static str,
    pub(crate) about: &'static str,
    pub(crate) oom_kills: u64,
    pub(crate) server_alive: bool,
    /// The peak memory of the server's cgroup.
    pub(crate) peak_bytes: u64,
    pub(crate) held: ResourceUsage,
    /// How many processors the attackers kept busy.
    pub(crate) processors: f64,
    /// How many processors the server kept busy.
    pub(crate) server_processors: f64,
    pub(crate) honest: Window,
    /// The honest client's p99 with an idle server on an idle machine, in microseconds.
    pub(crate) idle_us: f64,
    /// The same while the attackers attack another server beside the idle one.
    pub(crate) beside_us: f64,
    /// Which requirements the server violated; empty if none.
    pub(crate) faults: Vec<String>,
}

/// The name of this program's copy.
const PROGRAM: &str = "bellwire-hostile";

/// Runs attacks from a directory that has a copy of this program, which other users may run, and the run directories.
pub(crate) struct Runner {
    dir: TempDir,
    is_root: bool,
}

/// A server in its cgroup, and its honest client. The fields are dropped in this order.
struct ServerUnderTest {
    honest: Process,
    server: Process,
    cgroup: Cgroup,
}

/// Attackers in their cgroup, and what was sampled of the server meanwhile. The fields are dropped in this order.
struct RunningAttack<'a> {
    attackers: Process,
    _cgroup: Cgroup,
    server: &'a mut Process,
    held: ResourceUsage,
    processors: f64,
    server_processors: f64,
}

impl Runner {
    pub(crate) fn new() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("bellwire-hostile-").tempdir()?;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        fs::copy(std::env::current_exe()?, dir.path().join(PROGRAM))?;
        let is_root = rustix::process::geteuid().is_root();
        Ok(Self { dir, is_root })
    }

    pub(crate) fn run(
        &self,
        attack: &'static Attack,
        options: &RunOptions,
        say: impl Fn(&str),
    ) -> io::Result<Outcome> {
        let (idle_for, beside_for) = (options.seconds / 6.0, options.seconds / 3.0);
        let (mut idle, mut beside) = (Vec::new(), Vec::new());
        let mut tested = self.start_server("server", attack.workers, options)?;
        say("idle");
        idle.push(window(&mut tested.honest, idle_for, None)?.p99_us);
        say("attack");
        let ServerUnderTest { honest, server, cgroup } = &mut tested;
        let mut running = self.start_attack(server, "server", attack, options)?;
        let attacked = window(honest, options.seconds, Some(&mut running))?;
        let attack_ended = running.attackers.has_ended();
        let RunningAttack { held, processors, server_processors, .. } = running;
        drop(running);
        let (oom_kills, server_alive, peak_bytes) =
            (cgroup.kills(), !server.has_ended(), cgroup.peak());
        drop(tested);
        let mut tested = self.start_server("server", attack.workers, options)?;
        // What ends the attacked server ends its neighbor, too, and there is nothing to compare.
        for _ in 0..if server_alive { options.windows } else { 0 } {
            say("beside");
            let mut other = self.start_server("neighbor", attack.workers, options)?;
            let mut running = self.start_attack(&mut other.server, "neighbor", attack, options)?;
            beside.push(window(&mut tested.honest, beside_for, Some(&mut running))?.p99_us);
            drop(running);
            drop(other);
            say("idle");
            idle.push(window(&mut tested.honest, idle_for, None)?.p99_us);
        }
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
        outcome.judge(options.factor, attack_ended);
        Ok(outcome)
    }

    /// Starts a server, whose run directory and cgroup are called `name`, and its honest client.
    fn start_server(
        &self,
        name: &str,
        workers: usize,
        options: &RunOptions,
    ) -> io::Result<ServerUnderTest> {
        let run_dir = self.dir.path().join(name);
        let _ = fs::remove_dir_all(&run_dir);
        fs::create_dir(&run_dir)?;
        fs::set_permissions(&run_dir, Permissions::from_mode(0o755))?;
        if self.is_root {
            chown(&run_dir, Some(SERVER_UID), Some(SERVER_UID))?;
        }
        let cgroup = Cgroup::with_limit(name, options.limit)?;
        let args = [workers.to_string(), options.attacker_uid().to_string()];
        let args = args.each_ref().map(String::as_str);
        let mut server = self.start("server", name, &args, SERVER_UID)?;
        cgroup.add_process(server.pid())?;
        server.write_line("go")?;
        server.read_line()?;
        let mut honest = self.start("honest", name, &[], SERVER_UID)?;
        honest.read_line()?;
        Ok(ServerUnderTest { honest, server, cgroup })
    }

    fn start_attack<'a>(
        &self,
        server: &'a mut Process,
        name: &str,
        attack: &Attack,
        options: &RunOptions,
    ) -> io::Result<RunningAttack<'a>> {
        let cgroup = Cgroup::with_limit("attackers", ATTACKERS_LIMIT)?;
        let uid = options.attacker_uid();
        let attackers = self.start("attack", name, &[attack.name], uid)?;
        cgroup.add_process(attackers.pid())?;
        Ok(RunningAttack {
            attackers,
            _cgroup: cgroup,
            server,
            held: ResourceUsage::default(),
            processors: 0.0,
            server_processors: 0.0,
        })
    }

    fn start(&self, role: &str, run_dir: &str, args: &[&str], uid: u32) -> io::Result<Process> {
        let run_dir = self.dir.path().join(run_dir);
        let args = [&[role, run_dir.to_str().unwrap_or_default()], args].concat();
        Process::start(&self.dir.path().join(PROGRAM), &args, uid)
    }
}

/// Has the honest client measure a window, and samples the attack that runs meanwhile, if any. Returns early if the attacked
/// server exits.
fn window(
    honest: &mut Process,
    seconds: f64,
    mut running: Option<&mut RunningAttack>,
) -> io::Result<Window> {
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let cpu_before = running.as_ref().map(|running| running.server.cpu_time()).unwrap_or_default();
    honest.write_line(&seconds.to_string())?;
    while let left = until.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        std::thread::sleep(left.min(Duration::from_secs_f64(seconds / SAMPLES_PER_WINDOW)));
        let Some(running) = &mut running else { continue };
        running.sample(cpu_before, start.elapsed());
        if running.server.has_ended() {
            honest.close_input();
            break;
        }
    }
    Ok(serde_json::from_str(&honest.read_line()?)?)
}

impl RunningAttack<'_> {
    /// Samples the server's resources, and the CPU time that both sides have used in the `elapsed` time.
    fn sample(&mut self, server_cpu_before: Duration, elapsed: Duration) {
        self.held = self.held.maximum(self.server.resources());
        let server = self.server.cpu_time().saturating_sub(server_cpu_before);
        self.processors = self.attackers.cpu_time().div_duration_f64(elapsed);
        self.server_processors = server.div_duration_f64(elapsed);
    }
}

impl RunOptions {
    fn attacker_uid(&self) -> u32 {
        if self.same_user { SERVER_UID } else { ATTACKER_UID }
    }
}

impl Outcome {
    fn judge(&mut self, factor: f64, attack_ended: bool) {
        let mut faults = Vec::new();
        if self.oom_kills > 0 {
            faults.push("OOM kill".to_owned());
        } else if !self.server_alive {
            faults.push("the server ended".to_owned());
        }
        let Window { refused, failed, p99_us, calls, .. } = self.honest;
        // The failures of calls to a dead server say nothing new.
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
        if attack_ended {
            faults.push("the attack ended: not a result".to_owned());
        }
        self.faults = faults;
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
