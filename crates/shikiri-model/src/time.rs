//! Points in time as milliseconds since the Unix epoch, printed as RFC 3339 in UTC.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Near the end of the year 9999, the last that RFC 3339 can express.
const MAX_MS: i64 = 253_402_207_199_999;
/// The start of the year 1.
const MIN_MS: i64 = -62_135_596_800_000;

impl Timestamp {
    /// Values outside the years 0001–9999 are clamped, so that printing can never fail.
    pub fn from_millis(ms: i64) -> Self {
        Self(ms.clamp(MIN_MS, MAX_MS))
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        let ms = i64::try_from(rhs.as_millis()).unwrap_or(MAX_MS);
        Self::from_millis(self.0.saturating_add(ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        write!(f, "{time:.3}")
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time: jiff::Timestamp = text.parse().map_err(|_| InvalidTimestamp)?;
        Ok(Self::from_millis(time.as_millisecond()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a time: write it as RFC 3339, like 2026-11-15T20:00:00.000Z")]
pub struct InvalidTimestamp;

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_with_milliseconds_and_read_back() {
        let at = Timestamp::from_millis(1_763_236_800_005);
        assert_eq!(at.to_string(), "2025-11-15T20:00:00.005Z");
        assert_eq!(at.to_string().parse(), Ok(at));
        assert_eq!("yesterday".parse::<Timestamp>(), Err(InvalidTimestamp));
    }

    #[test]
    fn adding_never_overflows() {
        let end = Timestamp::from_millis(i64::MAX) + Duration::MAX;
        assert_eq!(end.to_string(), "9999-12-30T21:59:59.999Z");
    }
}
