//! What libFuzzer prints while it runs, and when it ends.

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) executions: u64,
    /// Edges of the code that were reached.
    pub(super) coverage: u64,
    /// Inputs that reach what others do not.
    pub(super) corpus: u64,
    /// Of those, how many were found in this run.
    pub(super) new: u64,
    /// What a panic said, and where.
    pub(super) panic: Vec<String>,
    /// The file that the input was written to which ended the run.
    pub(super) artifact: Option<String>,
    /// The next line says what a panic is about.
    in_panic: bool,
}

impl Progress {
    /// Reads one more line.
    pub(super) fn read(&mut self, line: &str) {
        if self.in_panic {
            self.in_panic =
                !line.is_empty() && self.panic.len() < 4 && !line.starts_with("stack backtrace");
            if self.in_panic {
                self.panic.push(line.trim().to_owned());
            }
        }
        if let Some((_, place)) = line.split_once(" panicked at ") {
            self.panic = vec![place.trim_end_matches(':').to_owned()];
            self.in_panic = true;
        } else if let Some(summary) = line.strip_prefix("SUMMARY: ") {
            if self.panic.is_empty() {
                self.panic.push(summary.to_owned());
            }
        } else if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.artifact = Some(path.trim().to_owned());
        } else if let Some(stat) = line.strip_prefix("stat::") {
            self.read_stat(stat);
        } else if let Some(status) = line.strip_prefix('#') {
            self.read_status(status);
        }
    }

    /// The statistics of a run that is over.
    fn read_stat(&mut self, stat: &str) {
        let Some((name, value)) = stat.split_once(':') else { return };
        let Ok(value) = value.trim().parse() else { return };
        match name {
            "number_of_executed_units" => self.executions = value,
            "new_units_added" => self.new = value,
            _ => {}
        }
    }

    /// A line such as `#2048 NEW cov: 90 ft: 594 corp: 4/4656b exec/s: 0 rss: 35Mb`.
    fn read_status(&mut self, status: &str) {
        let mut words = status.split_whitespace();
        let Some(executions) = words.next().and_then(|word| word.parse().ok()) else { return };
        self.executions = self.executions.max(executions);
        while let Some(word) = words.next() {
            let field = match word {
                "cov:" => &mut self.coverage,
                "corp:" => &mut self.corpus,
                _ => continue,
            };
            let number = words.next().and_then(|word| word.split('/').next()?.parse().ok());
            *field = number.unwrap_or(*field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    fn read(output: &str) -> Progress {
        let mut progress = Progress::default();
        output.lines().for_each(|line| progress.read(line));
        progress
    }

    #[test]
    fn a_running_target_reports_its_progress() {
        let progress = read(
            "INFO: Seed: 1\n#17\tINITED cov: 870 ft: 4312 corp: 16/267b exec/s: 0 rss: 39Mb\n\
             #2048\tpulse  cov: 871 ft: 4313 corp: 17/300b lim: 4096 exec/s: 682 rss: 43Mb\n",
        );
        let Progress { executions, coverage, corpus, .. } = progress;
        assert_eq!((executions, coverage, corpus), (2048, 871, 17));
    }

    #[test]
    fn a_run_that_is_over_reports_its_totals() {
        let progress = read(
            "#9\tDONE   cov: 5 ft: 6 corp: 2/3b lim: 4 exec/s: 3 rss: 1Mb\nDone 9 runs in 3 second(s)\n\
             stat::number_of_executed_units: 9\nstat::new_units_added:          1\n",
        );
        assert_eq!((progress.executions, progress.new, progress.coverage), (9, 1, 5));
        assert_eq!((progress.panic, progress.artifact), (vec![], None));
    }

    #[test]
    fn a_panic_is_reported_with_its_place_and_its_input() {
        let progress = read(
            "\nthread '<unnamed>' (7) panicked at fuzz/src/a.rs:1:2:\na lie was not noticed\nstack backtrace:\n\
             SUMMARY: libFuzzer: deadly signal\n\
             artifact_prefix='./'; Test unit written to ./crash-1\n",
        );
        assert_eq!(progress.panic, ["fuzz/src/a.rs:1:2", "a lie was not noticed"]);
        assert_eq!(progress.artifact.as_deref(), Some("./crash-1"));
    }

    #[test]
    fn an_end_without_a_panic_is_reported_too() {
        let progress = read("SUMMARY: libFuzzer: timeout\n");
        assert_eq!(progress.panic, ["libFuzzer: timeout"]);
    }
}
