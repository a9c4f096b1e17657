//! Open sessions, by the memory that both ends have mapped: nobody is asked or attached to.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::processes;

/// What the memfd of the page of a server is called before its service and number.
const SERVER_PAGE: &str = "/memfd:bellwire-page-server-";

/// A session that is open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Session {
    pub(crate) service: String,
    pub(crate) number: u64,
    /// `None` for a process that /proc does not show.
    pub(crate) server: Option<u32>,
    pub(crate) client: Option<u32>,
}

/// The sessions of which one of these processes has the server's page mapped.
pub(crate) fn open(pids: &[u32]) -> Vec<Session> {
    let mut pages: BTreeMap<(String, u64), Session> = BTreeMap::new();
    for &pid in pids {
        for map in processes::maps(pid) {
            let Some((service, number)) = parse(&map.name) else { continue };
            let session = pages.entry(map.file).or_insert_with(|| Session {
                service: service.to_owned(),
                number,
                server: None,
                client: None,
            });
            // Only its owner can write it.
            let end = if map.is_writable { &mut session.server } else { &mut session.client };
            *end = Some(pid);
        }
    }
    let mut sessions: Vec<Session> = pages.into_values().collect();
    sessions.sort();
    sessions
}

fn parse(name: &str) -> Option<(&str, u64)> {
    let name = name.strip_prefix(SERVER_PAGE)?;
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let (service, number) = name.rsplit_once('-')?;
    Some((service, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_page_names_its_service_and_session() {
        let page = "/memfd:bellwire-page-server-cgroups-snapshot-12 (deleted)";
        assert_eq!(parse(page), Some(("cgroups-snapshot", 12)));
        assert_eq!(parse("/memfd:bellwire-lane-server-cgroups-snapshot-12 (deleted)"), None);
        assert_eq!(parse("/memfd:bellwire-page-client-cgroups-snapshot-12 (deleted)"), None);
    }
}
