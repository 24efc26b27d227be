//! Lifetime and number of lanes, from the environment.

use std::time::Duration;

pub const DEFAULT_TTL_MINUTES: f64 = 30.0;
pub const DEFAULT_MAX_LANES: u32 = 10;
/// The most characters of a question.
pub const MAX_QUESTION: usize = 100_000;
/// Ten years. A larger value makes no difference and could overflow.
const MAX_TTL_MINUTES: f64 = 5_256_000.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneLimits {
    /// A lane without use for this long expires. May be fractional.
    pub ttl_minutes: f64,
    pub max_lanes: u32,
}

impl Default for LaneLimits {
    fn default() -> Self {
        Self { ttl_minutes: DEFAULT_TTL_MINUTES, max_lanes: DEFAULT_MAX_LANES }
    }
}

impl LaneLimits {
    /// Parses environment values. A value that is not a number above zero is ignored.
    pub fn read(ttl_minutes: Option<&str>, max_lanes: Option<&str>) -> Self {
        let ttl = ttl_minutes.and_then(number).filter(|minutes| *minutes > 0.0);
        let max = max_lanes.and_then(number).map(f64::floor).filter(|max| *max >= 1.0);
        Self {
            ttl_minutes: ttl.unwrap_or(DEFAULT_TTL_MINUTES).min(MAX_TTL_MINUTES),
            max_lanes: max.map_or(DEFAULT_MAX_LANES, |max| max.min(f64::from(u32::MAX)) as u32),
        }
    }

    pub fn ttl(&self) -> Duration {
        Duration::from_secs_f64((self.ttl_minutes * 60.0).clamp(0.001, MAX_TTL_MINUTES * 60.0))
    }
}

/// A valid number.
fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_above_zero_is_the_default() {
        for bad in ["NaN", "nan", "0", "-0", "-3", "", " ", "ten", "1_000", "inf", "-inf", "０"] {
            assert_eq!(LaneLimits::read(Some(bad), Some(bad)), LaneLimits::default(), "{bad:?}");
        }
        assert_eq!(LaneLimits::read(None, None), LaneLimits::default());
    }

    #[test]
    fn the_limit_is_floored_first_and_the_time_may_be_fractional() {
        let max = |text| LaneLimits::read(None, Some(text)).max_lanes;
        assert_eq!([max("3"), max("3.9"), max("1e2"), max("0.5")], [3, 3, 100, 10]);
        assert_eq!(max("1e300"), u32::MAX);
        let ttl = |text| LaneLimits::read(Some(text), None).ttl();
        assert_eq!(ttl("0.05"), Duration::from_secs(3));
        assert_eq!(ttl(" 1.5 "), Duration::from_secs(90));
        assert_eq!(ttl("1e300"), Duration::from_secs(5_256_000 * 60));
        assert_eq!(ttl("1e-300"), Duration::from_millis(1));
    }
}
