//! Services that answer look-ups: `apps-lookup`, `cgroups-lookup`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use bellwire::{BatchAnswers, Lookup, RunDir, Server, Service};
use bellwire_apps::AppsLookup;
use bellwire_cgroups::CgroupsLookup;

use super::args::Provide;
use super::{Incidents, Names, log, place, unserved};
use crate::args::Args;
use crate::config;
use crate::exit::{Exit, Failure, chain};
use crate::out::{GOOD, WARN, span};
use crate::stop::Stop;
use bellwire_apps::scan::{ProcError, Processes};
use bellwire_cgroups::scan::{Directory, Limits, ScanError, Scanner};

/// Threads that read kernel files, so that a long batch holds up no other client.
const WORKERS: usize = 2;

pub(super) fn apps(run_dir: &RunDir, args: &Provide) -> Result<Exit, Failure> {
    refuse_synthetic(args);
    let root = args.root.as_deref().unwrap_or(Path::new(Processes::ROOT));
    let processes = Processes::open(root).map_err(|error| no_processes(root, &error))?;
    let hides = processes.is_hiding();
    if args.enable.is_some() || args.enable_names.is_some() {
        Args::refuse("--enable and --enable-names are for cgroups");
    }
    let names = Names::of(args)?;
    let what = format!("the processes of {}", root.display());
    let handler = move |pids: &[u32], answers: &mut BatchAnswers<'_, _>| {
        // A process that is requested twice in one batch is read once.
        let mut read = HashMap::new();
        names.refresh();
        let describe = |pid| {
            let mut found = processes.lookup(pid);
            if let Lookup::Known(app) = &mut found {
                names.name_app(app);
            }
            found
        };
        for pid in pids {
            if answers.is_abandoned() {
                return;
            }
            answers.push(read.entry(*pid).or_insert_with(|| describe(*pid)));
        }
    };
    serve::<AppsLookup>(run_dir, args, handler, || {
        let name = AppsLookup::NAME;
        log(format_args!("{GOOD}providing{GOOD:#} {name} at {}: {what}", place(run_dir, name)));
        if hides {
            log(format_args!(
                "{WARN}incomplete{WARN:#}: this system hides other users' processes from this one (hidepid): \
                 run as root, or as the group that it makes an exception of"
            ));
        }
    })
}

pub(super) fn cgroups(run_dir: &RunDir, args: &Provide) -> Result<Exit, Failure> {
    refuse_synthetic(args);
    let root = args.root.as_deref().unwrap_or(Path::new(Scanner::ROOT));
    let limits = Limits { items: args.max_cgroups, depth: args.max_depth };
    let directory = Directory::open(root, limits, args.interval);
    let directory = directory.map_err(|error| no_cgroups(root, &error))?;
    let names = Names::of(args)?;
    let (count, age) = (directory.known(), span(args.interval));
    let handler = move |paths: &[String], answers: &mut BatchAnswers<'_, _>| {
        names.refresh();
        let mut asked = paths.iter();
        directory.lookup(paths, |mut found| {
            if let (Some(path), Lookup::Known(details)) = (asked.next(), &mut found) {
                names.name_details(path, details);
            }
            answers.push(&found);
            if answers.is_abandoned() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    };
    serve::<CgroupsLookup>(run_dir, args, handler, || {
        let (name, root) = (CgroupsLookup::NAME, root.display());
        let place = place(run_dir, name);
        log(format_args!(
            "{GOOD}providing{GOOD:#} {name} at {place}: {count} cgroups of {root}, cached for {age}"
        ));
    })
}

/// Serves until stopped.
fn serve<S: Service>(
    run_dir: &RunDir,
    args: &Provide,
    handler: impl Fn(&[S::Request], &mut BatchAnswers<'_, S::Response>) + Send + Sync + 'static,
    say: impl FnOnce(),
) -> Result<Exit, Failure> {
    let stop = Stop::of_provider()?;
    let config = config::provider(args).workers(WORKERS);
    let mut builder = Server::builder_with_config(run_dir, config);
    let incidents = Incidents::print(&mut builder);
    let served = builder.serve_batches::<S>(move |_, requests, answers| handler(requests, answers));
    served.map_err(|error| unserved(run_dir, &error))?;
    let server = builder.start().map_err(|error| unserved(run_dir, &error))?;
    say();
    stop.sleep();
    let stats = server.stop();
    incidents.finish();
    let (clients, answered) = (stats.admitted, stats.answered);
    log(format_args!("stopped: {clients} sessions served, {answered} requests answered"));
    Ok(Exit::Ok)
}

fn refuse_synthetic(args: &Provide) {
    if args.synthetic.is_some() {
        Args::refuse("--synthetic is for cgroups only");
    }
}

fn no_processes(root: &Path, error: &ProcError) -> Failure {
    let root = root.display();
    match error {
        ProcError::Missing => Failure::new(
            Exit::Unavailable,
            format!("{root} shows no processes: this system has no {} to serve", AppsLookup::NAME),
        )
        .next("provide it on Linux; name the mount point of proc(5) with --root DIR"),
        ProcError::Unreadable(error) => {
            Failure::new(Exit::Failed, format!("cannot read {root}: {}", chain(error)))
        }
    }
}

fn no_cgroups(root: &Path, error: &ScanError) -> Failure {
    let none = !root.exists() && !Scanner::has_cgroups();
    let exit = if none { Exit::Unavailable } else { Exit::Failed };
    Failure::of(exit, "nothing to provide", error)
        .next("name the mount point of the cgroup hierarchies with --root DIR")
}
