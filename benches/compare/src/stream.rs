//! Latencies while the run goes on: a line for each value of a sample that counts.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::Outcome;
use crate::run::CountedSample;

/// The file of `--stream`.
pub(crate) enum Stream {
    Csv(Box<csv::Writer<File>>),
    JsonLines(File),
}

/// How often an operation of one round took so many ns.
#[derive(Serialize)]
struct Line<'a> {
    scenario: &'a str,
    contender: &'a str,
    /// 2 where an unstable row was measured again.
    attempt: u32,
    round: usize,
    placement: &'a str,
    ns: u64,
    count: u64,
}

impl Stream {
    /// CSV if that is its name's end, else JSON lines.
    pub(crate) fn create(path: &Path) -> Outcome<Self> {
        let file = File::create(path)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let is_csv = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        Ok(if is_csv {
            Self::Csv(Box::new(csv::Writer::from_writer(file)))
        } else {
            Self::JsonLines(file)
        })
    }

    /// Writes a sample. Readers have it when this returns.
    pub(crate) fn add(
        &mut self,
        scenario: &str,
        contender: &str,
        attempt: u32,
        counted: &CountedSample,
    ) -> Outcome<()> {
        let placement = counted.placement.map_or_else(|| "any".to_owned(), |at| at.to_string());
        let mut lines = counted.sample.took.iter().map(|&(ns, count)| Line {
            scenario,
            contender,
            attempt,
            round: counted.round + 1,
            placement: &placement,
            ns,
            count,
        });
        match self {
            Self::Csv(csv) => {
                lines.try_for_each(|line| csv.serialize(line))?;
                csv.flush()?;
            }
            Self::JsonLines(file) => {
                let mut text = Vec::new();
                for line in lines {
                    serde_json::to_writer(&mut text, &line)?;
                    text.push(b'\n');
                }
                file.write_all(&text)?;
            }
        }
        Ok(())
    }
}
