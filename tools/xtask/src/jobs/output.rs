//! The output of jobs that run at the same time: one after the other, each whole.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Passes on what the job that began first prints as it comes, and keeps what the others print until their turn.
#[derive(Debug)]
pub(super) struct Output<W>(Mutex<Sections<W>>);

#[derive(Debug)]
struct Sections<W> {
    to: W,
    /// In the order in which the jobs began; the first is passed on.
    open: VecDeque<Section>,
}

#[derive(Debug)]
struct Section {
    job: &'static str,
    kept: Vec<u8>,
    ended: bool,
}

impl<W: Write> Output<W> {
    pub(super) fn new(to: W) -> Self {
        Self(Mutex::new(Sections { to, open: VecDeque::new() }))
    }

    /// The next section is that of `job`.
    pub(super) fn begin(&self, job: &'static str) {
        self.lock().open.push_back(Section { job, kept: Vec::new(), ended: false });
    }

    /// Adds to the section of `job`.
    pub(super) fn write(&self, job: &str, bytes: &[u8]) -> io::Result<()> {
        let mut sections = self.lock();
        if let Some(section) = sections.of(job) {
            section.kept.extend_from_slice(bytes);
        }
        sections.pass_on()
    }

    /// Nothing follows in the section of `job`.
    pub(super) fn end(&self, job: &str) -> io::Result<()> {
        let mut sections = self.lock();
        if let Some(section) = sections.of(job) {
            section.ended = true;
        }
        sections.pass_on()
    }

    fn lock(&self) -> MutexGuard<'_, Sections<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> Sections<W> {
    fn of(&mut self, job: &str) -> Option<&mut Section> {
        self.open.iter_mut().find(|section| section.job == job)
    }

    /// Prints what the first job printed, and goes on with the next one if it has ended.
    fn pass_on(&mut self) -> io::Result<()> {
        while let Some(first) = self.open.front_mut() {
            self.to.write_all(&take(&mut first.kept))?;
            if !first.ended {
                break;
            }
            self.open.pop_front();
        }
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::Output;

    fn printed(output: &Output<Vec<u8>>) -> String {
        String::from_utf8(output.lock().to.clone()).unwrap()
    }

    #[test]
    fn the_first_job_prints_immediately_and_the_others_whole_in_their_turn() {
        let output = Output::new(Vec::new());
        for job in ["a", "b", "c"] {
            output.begin(job);
        }
        for (job, text) in [("b", "b1 "), ("a", "a1 "), ("c", "c1 "), ("a", "a2 "), ("b", "b2 ")] {
            output.write(job, text.as_bytes()).unwrap();
        }
        assert_eq!(printed(&output), "a1 a2 ");
        output.end("c").unwrap();
        assert_eq!(printed(&output), "a1 a2 ");
        output.end("a").unwrap();
        assert_eq!(printed(&output), "a1 a2 b1 b2 ");
        output.write("b", b"b3 ").unwrap();
        output.end("b").unwrap();
        assert_eq!(printed(&output), "a1 a2 b1 b2 b3 c1 ");
    }
}
