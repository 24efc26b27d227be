//! The steps of a long command: a heading and a time for each, and a final summary that
//! distinguishes skipped parts from passed ones.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How a step ended that did not fail.
pub(crate) enum Outcome {
    Passed,
    Skipped(String),
    /// Skipped, and no failure with `CI=true` either. The summary says so.
    Optional(String),
}

enum End {
    Passed,
    Failed(String),
    Skipped(String),
    Optional(String),
}

struct Part {
    name: &'static str,
    end: End,
    took: Duration,
}

#[derive(Default)]
pub(crate) struct Report {
    parts: Vec<Part>,
}

impl Report {
    /// Runs a step. A failure is printed and recorded, and the next steps still run, so that one
    /// run reports everything.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome>) {
        println!("\n==> {name}");
        let start = Instant::now();
        let end = match work() {
            Ok(Outcome::Passed) => End::Passed,
            Ok(Outcome::Skipped(why)) => End::Skipped(why),
            Ok(Outcome::Optional(why)) => End::Optional(why),
            Err(error) => End::Failed(format!("{error:#}")),
        };
        let part = Part { name, end, took: start.elapsed() };
        println!("{}", part.line());
        self.parts.push(part);
    }

    /// A step that either passes or fails.
    pub(crate) fn check(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        self.step(name, || work().map(|()| Outcome::Passed));
    }

    /// Records a part that was skipped on purpose.
    pub(crate) fn skip(&mut self, name: &'static str, why: &str) {
        self.parts.push(Part { name, end: End::Skipped(why.to_owned()), took: Duration::ZERO });
    }

    /// Prints the summary; an error if any part failed.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n==> summary");
        for part in &self.parts {
            println!("{}", part.line());
        }
        println!("{}", self.total());
        let failed = self.names(|end| matches!(end, End::Failed(_)));
        if failed.is_empty() {
            return Ok(());
        }
        bail!("failed: {}", failed.join(", "));
    }

    /// The last line, with the most important result.
    fn total(&self) -> String {
        let count = |word: &str, names: Vec<&str>| match names.len() {
            0 => String::new(),
            number => format!(", {number} {word} ({})", names.join(", ")),
        };
        let passed = self.names(|end| matches!(end, End::Passed)).len();
        let failed = count("FAILED", self.names(|end| matches!(end, End::Failed(_))));
        let skipped = count("skipped", self.names(|end| matches!(end, End::Skipped(_))));
        let optional =
            count("optional and left out", self.names(|end| matches!(end, End::Optional(_))));
        format!("{passed} passed{failed}{skipped}{optional}")
    }

    fn names(&self, wanted: impl Fn(&End) -> bool) -> Vec<&'static str> {
        self.parts.iter().filter(|part| wanted(&part.end)).map(|part| part.name).collect()
    }
}

impl Part {
    fn line(&self) -> String {
        let (word, why) = match &self.end {
            End::Passed => ("passed", ""),
            End::Failed(why) => ("FAILED", why.as_str()),
            End::Skipped(why) => ("SKIPPED", why.as_str()),
            End::Optional(why) => ("OPTIONAL", why.as_str()),
        };
        let took = self.took.as_secs_f64();
        let line = format!("{word:<9}{:<14}{took:>7.1} s  {why}", self.name);
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_named_and_does_not_stop_the_next_step() {
        let mut report = Report::default();
        report.check("first", || bail!("broken"));
        report.step("second", || Ok(Outcome::Skipped("not here".to_owned())));
        report.check("third", || Ok(()));

        assert_eq!(report.parts.len(), 3);
        let error = report.finish().expect_err("a failed part");
        assert_eq!(error.to_string(), "failed: first");
    }

    #[test]
    fn skipping_is_no_failure_and_says_why() {
        let mut report = Report::default();
        report.skip("lints", "a filter was given");
        assert_eq!(report.parts[0].line(), "SKIPPED  lints             0.0 s  a filter was given");
        assert!(report.finish().is_ok());
    }

    #[test]
    fn the_last_line_tells_what_was_left_out_and_what_was_optional() {
        let mut report = Report::default();
        report.check("tests", || Ok(()));
        assert_eq!(report.total(), "1 passed");
        report.check("format", || bail!("ugly"));
        report.skip("fresh", "not asked for");
        report.step("advisories", || Ok(Outcome::Optional("offline".to_owned())));
        assert_eq!(
            report.total(),
            "1 passed, 1 FAILED (format), 1 skipped (fresh), 1 optional and left out (advisories)"
        );
    }
}
