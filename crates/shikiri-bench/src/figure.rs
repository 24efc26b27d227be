//! One measured figure, what it is held against, and whether its goal is met.

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// One for each round.
    pub(crate) samples: Vec<f64>,
    pub(crate) against: Option<Against>,
    pub(crate) goal: Option<Goal>,
    /// Set when it could not be had: a figure with a goal then counts as missed.
    pub(crate) not_measured: Option<String>,
    /// Only kept: its benchmark prints it in a table of its own.
    pub(crate) detail: bool,
}

/// A peer or a limit, measured in the same rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Against {
    pub(crate) name: &'static str,
    pub(crate) samples: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, samples: Vec<f64>) -> Self {
        let (against, goal, not_measured) = (None, None, None);
        Self { name: name.into(), unit, samples, against, goal, not_measured, detail: false }
    }

    pub(crate) fn missing(self, reason: impl Into<String>) -> Self {
        Self { samples: Vec::new(), not_measured: Some(reason.into()), ..self }
    }

    pub(crate) fn against(mut self, name: &'static str, samples: &[f64]) -> Self {
        self.against = Some(Against { name, samples: samples.to_vec() });
        self
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    pub(crate) fn detail(self) -> Self {
        Self { detail: true, ..self }
    }

    pub(crate) fn value(&self) -> f64 {
        median(&self.samples)
    }

    /// The median of the rounds' ratios: within a round the machine was as busy for both.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let against = self.against.as_ref().filter(|_| self.not_measured.is_none())?;
        let ratios: Vec<_> =
            self.samples.iter().zip(&against.samples).map(|(own, other)| own / other).collect();
        Some(median(&ratios))
    }

    pub(crate) fn holds(&self) -> bool {
        let Some(goal) = self.goal else { return true };
        let ratio = || self.ratio().unwrap_or(f64::NAN);
        self.not_measured.is_none()
            && match goal {
                Goal::RatioAtLeast(least) => ratio() >= least,
                Goal::RatioAtMost(most) => ratio() <= most,
                Goal::AtMost(most) => self.value() <= most,
                Goal::AtLeast(least) => self.value() >= least,
            }
    }
}

/// The middle, or between the two in the middle: the rounds of a short look are few and even.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    at(sorted.len().saturating_sub(1) / 2).midpoint(at(sorted.len() / 2))
}

/// The value below which about `percent` of the others are; NaN if there are none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let sorted = sorted(values);
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_favours_neither_side() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let figure = Figure::new("rate", "calls/s", vec![80.0, 10.0, 90.0])
            .against("peer", &[100.0, 10.0, 100.0])
            .goal(Goal::RatioAtLeast(0.9));
        assert_eq!(figure.ratio(), Some(0.9));
        assert!(figure.holds());
        assert!(!figure.missing("not there").holds());
    }
}
