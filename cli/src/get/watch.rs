use std::io::Write;
use std::time::Instant;

use bellwire::{CallError, ProviderState, RefreshError, Refreshed, RunDir, Snapshot};
use bellwire_cgroups::CgroupsSnapshot;

use super::args::Get;
use super::changes::{Changes, Printed};
use super::selection::Selection;
use super::{Cache, nothing, print, unfetched};
use crate::exit::{Exit, Failure};
use crate::out::{self, BAD, FAINT, Format, GOOD, WARN};
use crate::stop::Stop;

/// Prints the snapshot and then its changes, until stopped.
pub(super) fn run(
    cache: &mut Cache,
    run_dir: &RunDir,
    args: &Get,
    selection: &Selection,
    stop: &Stop,
) -> Result<Exit, Failure> {
    let canceller = cache
        .canceller()
        .map_err(|error| Failure::of(Exit::Failed, "cannot create a canceller", &error))?;
    stop.on_request(move || canceller.cancel());
    let limit = args.timeout.map(|timeout| (Instant::now() + timeout, timeout));
    let mut printer = Printer::new(selection, args.output.format());
    let mut provider = Provider::default();
    let mut found = cache.refresh();
    while stop.requested().is_none() {
        match found {
            Ok(Refreshed::Changed) => printer.changed(cache)?,
            Err(RefreshError::Call(CallError::Cancelled { .. })) => {}
            Err(error @ RefreshError::Malformed { .. }) => provider.report_bad(&error.to_string()),
            Err(error) if printer.printed.is_none() => return Err(unfetched(&error)),
            Err(error) => provider.report_bad(&error.to_string()),
            Ok(_) => {}
        }
        provider.report_state(&cache.state(), printer.printed.is_some());
        if let Some((_, waited)) = limit.filter(|(until, _)| Instant::now() >= *until)
            && printer.printed.is_none()
        {
            return Err(nothing(cache.state(), CgroupsSnapshot::NAME, run_dir, waited));
        }
        let limit = limit.filter(|_| printer.printed.is_none());
        found = cache.wait_for_change(
            limit.map(|(until, _)| until.saturating_duration_since(Instant::now())),
        );
    }
    Ok(Exit::Ok)
}

/// Prints snapshots, and what differs from the one before.
struct Printer<'a> {
    selection: &'a Selection,
    format: Format,
    printed: Option<Printed>,
}

impl<'a> Printer<'a> {
    fn new(selection: &'a Selection, format: Format) -> Self {
        Self { selection, format, printed: None }
    }

    fn changed(&mut self, cache: &Cache) -> Result<(), Failure> {
        let Some(current) = cache.current() else { return Ok(()) };
        let now = self.selection.of(current.index().view());
        let now: Printed = now.map(|cgroup| (cgroup.path.to_owned(), cgroup.into())).collect();
        let changes = self.printed.as_ref().map(|before| Changes::between(before, &now));
        match changes {
            Some(changes) if self.format == Format::Table => {
                let mut stdout = out::stdout();
                let caption = print::caption(current, now.len());
                writeln!(stdout, "{FAINT}{caption}{FAINT:#}")?;
                changes.print(&mut stdout)?;
                stdout.flush()?;
            }
            changes => {
                let changes = changes.map(|changes| changes.json());
                print::snapshot(current, self.selection, self.format, changes)?;
            }
        }
        self.printed = Some(now);
        Ok(())
    }
}

/// The last reported state of the provider.
#[derive(Default)]
struct Provider {
    reported: Option<Reported>,
    bad: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
enum Reported {
    Present,
    Absent,
    Silent,
    Refusing(String),
}

impl Provider {
    /// Reports when the provider appears or disappears.
    fn report_state(&mut self, state: &ProviderState, has_snapshot: bool) {
        let now = match state {
            ProviderState::Ready => Reported::Present,
            ProviderState::Connecting => return,
            ProviderState::Unresponsive { .. } => Reported::Silent,
            ProviderState::Refused { reason, .. } | ProviderState::Failed { reason, .. } => {
                Reported::Refusing(reason.to_string())
            }
            ProviderState::Incompatible { .. } => {
                Reported::Refusing("no common protocol version".into())
            }
            _ => Reported::Absent,
        };
        if self.reported.as_ref() == Some(&now) {
            return;
        }
        let name = CgroupsSnapshot::NAME;
        let kept = if has_snapshot { ", the last snapshot stays" } else { "" };
        match (&self.reported, &now) {
            (None, Reported::Present) => {}
            (_, Reported::Present) => {
                say(format_args!("{GOOD}the provider of {name} is back{GOOD:#}"));
            }
            (None, Reported::Absent) => {
                say(format_args!("{WARN}waiting for a provider of {name}{WARN:#}"));
            }
            (_, Reported::Absent) => {
                say(format_args!("{WARN}the provider of {name} went away{WARN:#}{kept}; waiting"));
            }
            (_, Reported::Silent) => {
                say(format_args!(
                    "{WARN}the provider of {name} does not answer{WARN:#}{kept}; waiting"
                ));
            }
            (_, Reported::Refusing(why)) => {
                say(format_args!(
                    "{WARN}no session with the provider{WARN:#}{kept}: {why}; trying again"
                ));
            }
        }
        self.reported = Some(now);
    }

    /// Reports a snapshot that is not printed, once.
    fn report_bad(&mut self, why: &str) {
        if self.bad.as_deref() != Some(why) {
            say(format_args!("{BAD}{why}{BAD:#}"));
            self.bad = Some(why.to_owned());
        }
    }
}

fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}
