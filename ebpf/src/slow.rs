//! `snoop --all-slower-than`: every slow call, and why the threads of both ends were off the CPU meanwhile.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bellwire_trace_core::call::{Call, OffTime, SlowCall, TraceEvent};
use bellwire_trace_core::{Options, Tracer, processes};
use serde_json::{Value, json};

use crate::args::SnoopArgs;
use crate::error::Error;
use crate::flame;
use crate::out::outln;
use crate::signal::Waiter;
use crate::symbols::Symbols;
use crate::tracer;

/// The most times off the CPU that are kept; the oldest are dropped.
const MAX_KEPT: usize = 1 << 16;
/// The most calls that are remembered, to tell whether a time off the CPU was part of one.
const MAX_SHOWN: usize = 1024;
/// A time off the CPU is shown if it is at least this part of the wait.
const SHOWN_PART: u64 = 10;

/// What is known of slow calls and not shown yet.
#[derive(Default)]
struct Slow {
    /// Reported since the last round: what else is known of them may still come.
    fresh: Vec<SlowCall>,
    due: Vec<SlowCall>,
    off: VecDeque<OffTime>,
    /// Threads that lost their CPU for as long as a slow call, since the last round: a client that loses it before it waits
    /// does not notice.
    preempted: Vec<OffTime>,
    due_preempted: Vec<OffTime>,
    /// The waits of the last calls, with their threads.
    shown: VecDeque<SlowCall>,
    least: u64,
    /// Those of them that were sampled, by creation, session and sequence.
    sampled: HashMap<(u64, u64, u64), Box<Call>>,
    symbols: Symbols,
    /// Nanoseconds off the CPU, by stack: the outermost function first.
    stacks: BTreeMap<Vec<String>, u64>,
    left: Option<u64>,
    failed: Option<Error>,
}

pub(super) fn run(args: &SnoopArgs, least: Duration) -> Result<(), Error> {
    let waiter = Waiter::on_signals()?;
    let options =
        Options { all_slower_than: Some(least), min_duration: Some(least), ..Options::default() };
    tracer::trace(&args.scope, options, |tracer| {
        let least = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
        let slow = RefCell::new(Slow { left: args.count, least, ..Slow::default() });
        let on_event = |event| slow.borrow_mut().note(event);
        let should_stop = || {
            let mut slow = slow.borrow_mut();
            slow.show_due(tracer, args.scope.json);
            slow.is_done() || waiter.stops_within(Duration::ZERO)
        };
        tracer.poll_events(on_event, should_stop)?;
        let mut slow = slow.into_inner();
        for _ in 0..2 {
            slow.show_due(tracer, args.scope.json);
        }
        if let Some(path) = &args.flame {
            let title = "Off-CPU time of the threads of slow calls";
            let drawn = flame::draw(title, &slow.stacks);
            let unwritten = |source| Error::Write { path: path.clone(), source };
            std::fs::write(path, drawn).map_err(unwritten)?;
        }
        slow.failed.map_or_else(|| tracer::finish(tracer), Err)
    })
}

impl Slow {
    fn is_done(&self) -> bool {
        self.failed.is_some() || self.left == Some(0)
    }

    /// Keeps an event. Returns whether more are wanted.
    fn note(&mut self, event: TraceEvent) -> bool {
        match event {
            TraceEvent::Slow(call) => self.fresh.push(call),
            TraceEvent::OffCpu(off) => {
                let span = off.entered.saturating_sub(off.left);
                if off.takes_messages && off.state == "preempted" && span >= self.least {
                    self.preempted.push(off.clone());
                }
                if self.off.len() == MAX_KEPT {
                    self.off.pop_front();
                }
                self.off.push_back(off);
            }
            TraceEvent::Call(call) => {
                self.sampled.insert((call.created, call.session, call.sequence), call);
            }
            _ => {}
        }
        true
    }

    /// Shows the calls that were reported before the last round.
    fn show_due(&mut self, tracer: &Tracer<'_>, json: bool) {
        let due = std::mem::replace(&mut self.due, std::mem::take(&mut self.fresh));
        for call in &due {
            if self.is_done() {
                return;
            }
            if let Err(error) = self.show(tracer, call, json) {
                self.failed = Some(error);
            }
            self.left = self.left.map(|left| left.saturating_sub(1));
            if self.shown.len() == MAX_SHOWN {
                self.shown.pop_front();
            }
            self.shown.push_back(call.clone());
        }
        let preempted =
            std::mem::replace(&mut self.due_preempted, std::mem::take(&mut self.preempted));
        for off in preempted {
            let known = self.shown.iter().chain(&self.due);
            if !known.into_iter().any(|call| off.left < call.ended && call.began < off.entered)
                && let Err(error) = show_preempted(&off, json)
            {
                self.failed = Some(error);
            }
        }
        if due.is_empty() && self.due.is_empty() {
            self.sampled.clear();
        }
    }

    fn show(&mut self, tracer: &Tracer<'_>, call: &SlowCall, json: bool) -> Result<(), Error> {
        let sampled = self.sampled.remove(&(call.created, call.session, call.sequence));
        let server = sampled.as_ref().map_or(call.peer, |sampled| sampled.request.receiver_pid);
        let waited = call.ended.saturating_sub(call.began);
        let off: Vec<(OffTime, u64)> = self
            .off
            .iter()
            .filter(|off| off.pid == server || off.thread == call.thread)
            .filter_map(|off| {
                let overlap = off.entered.min(call.ended).checked_sub(off.left.max(call.began))?;
                (overlap * SHOWN_PART >= waited).then(|| (off.clone(), overlap))
            })
            .collect();
        let off: Vec<(OffTime, u64, Vec<String>)> = off
            .into_iter()
            .map(|(off, overlap)| {
                let stack = self.stack(tracer, &off);
                let mut path = vec![off.thread.name.clone()];
                path.extend(stack.iter().cloned());
                *self.stacks.entry(path).or_default() += overlap;
                (off, overlap, stack)
            })
            .collect();
        if json {
            let waits: Vec<Value> = off.iter().map(|(off, overlap, stack)| json!({
                "end": if off.pid == server { "server" } else { "client" },
                "pid": off.pid, "tid": off.thread.tid, "thread": off.thread.name,
                "why": off.state, "off_cpu_ns": overlap,
                "runnable_ns": off.entered.saturating_sub(off.runnable.max(call.began)).min(*overlap),
                "waker": off.waker.as_ref().map(ToString::to_string),
                "ran_instead": off.next.to_string(),
                "cgroup": processes::cgroup(off.cgroup), "stack": stack,
            })).collect();
            let line = json!({
                "service": call.service, "session": call.session, "sequence": call.sequence,
                "began_ns": call.began, "waited_ns": waited, "answer_bytes": call.length,
                "client": call.pid, "client_tid": call.thread.tid, "server": server,
                "cgroup": processes::cgroup(call.cgroup), "stages": sampled, "waits": waits,
            });
            outln!("{line}");
            return Ok(());
        }
        outln!(
            "{}, session {}, call {}: waited {} us; client {} in {}, server {server}",
            call.service,
            call.session,
            call.sequence,
            micros(waited),
            call.thread,
            processes::cgroup(call.cgroup)
        );
        if let Some(sampled) = sampled {
            outln!(
                "    sampled: request {} us, queue {}, decode {}, handler {}, reply {}",
                micros(sampled.request.total_ns()),
                micros(sampled.queue_ns),
                micros(sampled.decode_ns),
                micros(sampled.handler_ns),
                micros(sampled.reply.total_ns())
            );
        }
        for (off, overlap, stack) in &off {
            let end = if off.pid == server { "server" } else { "client" };
            let woken =
                off.waker.as_ref().map_or_else(String::new, |waker| format!(", woken by {waker}"));
            outln!(
                "    {end} {} {} for {} us{woken}, {} us of it runnable; {} ran there; {}",
                off.thread,
                off.state,
                micros(*overlap),
                micros(off.entered.saturating_sub(off.runnable.max(call.began)).min(*overlap)),
                off.next,
                processes::cgroup(off.cgroup)
            );
            if !stack.is_empty() {
                outln!("        {}", stack.join(";"));
            }
        }
        if off.is_empty() {
            outln!(
                "    no thread of either end was off its CPU for a tenth of it: it was computing"
            );
        } else if off.iter().all(|(off, ..)| off.pid != server) {
            outln!("    server: none of its threads was off its CPU for a tenth of it");
        }
        Ok(())
    }

    /// Returns the functions of the program and then of the kernel, the outermost first.
    fn stack(&mut self, tracer: &Tracer<'_>, off: &OffTime) -> Vec<String> {
        let user = off.user_stack.map_or_else(Vec::new, |number| tracer.stack(number));
        let mut names: Vec<String> =
            user.into_iter().rev().map(|at| self.symbols.user(off.pid, at)).collect();
        names.extend(off.kernel_stack.iter().rev().map(|at| self.symbols.kernel(*at)));
        names
    }
}

/// Shows a thread that lost its CPU while no slow call was seen.
fn show_preempted(off: &OffTime, json: bool) -> Result<(), Error> {
    let (span, cgroup) = (off.entered.saturating_sub(off.left), processes::cgroup(off.cgroup));
    if json {
        outln!(
            "{}",
            json!({
                "preempted": off.thread.name, "pid": off.pid, "tid": off.thread.tid, "off_cpu_ns": span,
                "ran_instead": off.next.to_string(), "cgroup": cgroup,
            })
        );
    } else {
        outln!(
            "thread {} of process {} lost its processor to {} for {} us, outside of a slow call's wait; {cgroup}",
            off.thread,
            off.pid,
            off.next,
            micros(span)
        );
    }
    Ok(())
}

fn micros(nanos: u64) -> String {
    format!("{}.{}", nanos / 1000, nanos % 1000 / 100)
}
