//! The tables of attacks and faults.
//!
//! The last cell of a row holds claims, each followed by its place in parentheses: `` `name`, `other` (tests calls/stop) ``.
//! A claim is the name of a test in the module or below it, or `20 or more` for a whole module; or a phase of `ci/kill`:
//! `` `client/write` (kill) ``.

/// Where tests are, besides the modules that follow: `unit` is beside the code.
const PLACES: [&str; 9] =
    ["core", "memfd", "loom", "tests", "cli", "fuzz", "soak", "unit", "xtask"];

/// What stands in place of tests: phases of `ci/kill`.
const KILL: &str = "kill";
/// How the first rows of the tables begin.
const HEADS: [&str; 2] = ["attack or fault |", "fault |"];

/// One attack, and what the table says of it.
pub(super) struct Row {
    /// From 1.
    pub(super) line: usize,
    pub(super) attack: String,
    pub(super) named: Vec<Named>,
    pub(super) trouble: Vec<String>,
}

/// A claim, and the module that it is about: `calls::stop`.
pub(super) struct Named {
    pub(super) module: String,
    pub(super) claim: Claim,
}

pub(super) enum Claim {
    Test(String),
    /// A phase in which `ci/kill` kills a peer. It has no module.
    Phase(String),
    /// So many tests of the module.
    AtLeast(usize),
}

/// The rows of all tables that begin with "attack or fault", or "fault".
pub(super) fn rows(text: &str) -> Vec<Row> {
    let mut in_table = false;
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate() {
        match line.strip_prefix("| ") {
            Some(cells) if HEADS.iter().any(|head| cells.starts_with(head)) => in_table = true,
            Some(cells) if in_table && !cells.starts_with("---") => rows.push(row(at + 1, cells)),
            Some(_) => {}
            None => in_table = false,
        }
    }
    rows
}

fn row(line: usize, cells: &str) -> Row {
    let mut cells = cells.trim_end().trim_end_matches('|').split(" | ");
    let attack = cells.next().unwrap_or_default().trim().to_owned();
    let tests = cells.last().unwrap_or_default();
    let mut row = Row { line, attack, named: Vec::new(), trouble: Vec::new() };
    // Claims up to a closing parenthesis are of one place.
    for group in tests.split_inclusive(')') {
        let (claims, place) = match group.rsplit_once('(') {
            Some((claims, place)) => (claims, place.trim_end_matches(')')),
            None => (group, ""),
        };
        let claims: Vec<_> = claims.split('`').skip(1).step_by(2).collect();
        if claims.is_empty() {
            continue;
        }
        if place == KILL {
            row.named.extend(claims.iter().map(|text| Named {
                module: KILL.to_owned(),
                claim: Claim::Phase((*text).to_owned()),
            }));
            continue;
        }
        match module(place) {
            Some(module) => row.named.extend(
                claims.iter().map(|text| Named { module: module.clone(), claim: claim(text) }),
            ),
            None => row.trouble.push(format!("{place:?} is no place")),
        }
    }
    row
}

fn module(place: &str) -> Option<String> {
    let (place, module) = place.split_once(' ')?;
    let is_known = PLACES.contains(&place) && !module.contains(' ');
    is_known.then(|| module.replace('/', "::"))
}

fn claim(text: &str) -> Claim {
    let least = text.strip_suffix(" or more").and_then(|number| number.parse().ok());
    least.map_or_else(|| Claim::Test(text.to_owned()), Claim::AtLeast)
}
