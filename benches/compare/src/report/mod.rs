//! Output: for people, for programs, and as plots.

pub(crate) mod again;
pub(crate) mod csv;
pub(crate) mod markdown;
pub(crate) mod model;
pub(crate) mod plots;
pub(crate) mod rows;
pub(crate) mod table;

use std::fs;
use std::path::Path;

use crate::Outcome;
use model::Report;

/// Writes all forms of a report into a directory.
pub(crate) fn write(report: &Report, dir: &Path) -> Outcome<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("report.json"), json(report)?)?;
    fs::write(dir.join("report.csv"), csv::text(report)?)?;
    let pictures = plots::draw(report, dir)?;
    fs::write(dir.join("README.md"), markdown::text(report, &pictures))?;
    Ok(())
}

/// One object, on lines.
pub(crate) fn json(report: &Report) -> Outcome<String> {
    Ok(serde_json::to_string(report)? + "\n")
}
