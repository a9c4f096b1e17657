//! Open sessions, found in `/proc` by the memory that both ends have mapped, without attaching to any process.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::processes;

/// The prefix, before service and number, of the name of a server page's memfd.
const SERVER_PAGE: &str = "/memfd:bellwire-page-server-";

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Session {
    /// The service's name.
    pub service: String,
    /// Its number, unique in its server's process.
    pub number: u64,
    /// `None` for a process that /proc does not show.
    pub server: Option<u32>,
    /// `None` for a process that /proc does not show.
    pub client: Option<u32>,
}

/// Returns the sessions whose server page is mapped by one of these processes.
pub fn open(pids: &[u32]) -> Vec<Session> {
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
            // Only the owner can write it.
            let end = if map.is_writable { &mut session.server } else { &mut session.client };
            *end = Some(pid);
        }
    }
    let mut sessions: Vec<Session> = pages.into_values().collect();
    sessions.sort();
    sessions
}

/// Returns the names and objects of the pages that a process has mapped: they change when it opens or leaves a session.
pub(crate) fn pages(pid: u32) -> Vec<String> {
    let maps = processes::maps(pid).into_iter().filter(|map| parse(&map.name).is_some());
    maps.map(|map| format!("{} {}", map.name, map.file.1)).collect()
}

fn parse(name: &str) -> Option<(&str, u64)> {
    let name = name.strip_prefix(SERVER_PAGE)?;
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let (service, number) = name.rsplit_once('-')?;
    // Any process may call its memory so.
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    Some((service, number.parse().ok()?)).filter(|_| service.bytes().all(is_name))
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
        assert_eq!(parse("/memfd:bellwire-page-server-\u{1b}[2J-12 (deleted)"), None);
    }
}
