//! Why no call was sampled.

use std::collections::BTreeSet;

use crate::Losses;
use crate::processes;
use crate::scope::Scope;
use crate::sessions::{self, Session};
use crate::targets;

/// Returns the reason, and what to do.
pub(crate) fn nothing(scope: &Scope, losses: &Losses) -> String {
    let Ok(pids) = processes::pids() else {
        return "/proc cannot be read, where processes and sessions are found".to_owned();
    };
    let all = sessions::open(&pids);
    let sessions: Vec<&Session> =
        all.iter().filter(|session| targets::is_in(scope, session)).collect();
    if sessions.is_empty() {
        return no_session(scope, &all);
    }
    if losses.unread > 0 {
        return format!(
            "{} records of sessions could not be read, since their memory was not present; try again",
            losses.unread
        );
    }
    let lacking = sessions.iter().find_map(|session| lacking(session));
    if let Some(lacking) = lacking {
        return lacking;
    }
    let Losses { requests, replies, unmatched, disordered, .. } = losses;
    if *disordered > 0 {
        return format!(
            "the times of {disordered} calls are not in order: an end reports false ones"
        );
    }
    if *unmatched > 0 {
        return format!(
            "{unmatched} answers were seen, and not the requests before them: their server started after the tracer, or \
             runs another file"
        );
    }
    if *requests > 0 && *replies == 0 {
        return format!(
            "{requests} requests were seen, and no answer yet: their handlers still run"
        );
    }
    format!(
        "{} sessions are open, and none made a call that was sampled in this time",
        sessions.len()
    )
}

fn no_session(scope: &Scope, all: &[Session]) -> String {
    let services: BTreeSet<&str> = all.iter().map(|session| session.service.as_str()).collect();
    let known = match services.len() {
        0 => "/proc shows no session at all; processes of other users are seen by root only"
            .to_owned(),
        _ => {
            format!("there are sessions of {}", services.into_iter().collect::<Vec<_>>().join(", "))
        }
    };
    match (&scope.service, scope.pid) {
        (Some(service), Some(pid)) => format!("process {pid} has no session of {service}; {known}"),
        (Some(service), None) => format!("no session of {service} is open; {known}"),
        (None, Some(pid)) => format!("process {pid} has no session; {known}"),
        (None, None) => known,
    }
}

/// Returns what an end of this session lacks.
fn lacking(session: &Session) -> Option<String> {
    let ends = [("server", session.server, "message"), ("client", session.client, "reply")];
    for (role, pid, probe) in ends {
        let which = format!("session {} of {}", session.number, session.service);
        let Some(pid) = pid else {
            return Some(format!(
                "the {role} of {which} is in no process that /proc shows: trace as root, from the host's pid namespace"
            ));
        };
        if !processes::traceable(&[pid]).iter().any(|file| file.has(probe)) {
            return Some(format!(
                "the {role} of {which}, process {pid} ({}), lacks the probe {probe}: build it with the feature `probes`, \
                 and keep the section .note.stapsdt when it is stripped",
                processes::command(pid)
            ));
        }
    }
    None
}
