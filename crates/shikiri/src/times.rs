//! Points in time for people. On a terminal they are local, in lists also relative; `--utc` and
//! pipes get RFC 3339 in UTC.

use std::sync::atomic::{AtomicBool, Ordering};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, Zoned};
use shikiri_model::time::Timestamp;
use shikiri_store::{Clock as _, SystemClock};

/// Set once, from the command line.
static IS_UTC: AtomicBool = AtomicBool::new(false);

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
/// Times at least so far away are told with their day. In seconds.
const RELATIVE: i64 = 6 * HOUR;

/// Shows times in UTC from now on, on a terminal too.
pub fn show_utc() {
    IS_UTC.store(true, Ordering::Relaxed);
}

/// The moment and the place from which times are seen.
#[derive(Clone, Debug)]
pub struct LocalTime {
    now: Zoned,
}

impl LocalTime {
    /// Here and now; None where times are shown in UTC.
    pub fn of_terminal() -> Option<Self> {
        if IS_UTC.load(Ordering::Relaxed) {
            return None;
        }
        Some(Self::at(SystemClock.now(), TimeZone::system()))
    }

    pub fn at(now: Timestamp, zone: TimeZone) -> Self {
        Self { now: zoned(now, zone) }
    }

    /// For a column: `3 min ago`, `yesterday 14:02`, `2026-11-15 20:00`.
    pub fn relative(&self, at: Timestamp) -> String {
        let local = self.local(at);
        let seconds = self.now.timestamp().as_second() - local.timestamp().as_second();
        let amount = match seconds.abs() {
            0..5 => return "now".to_owned(),
            amount @ 5..MINUTE => format!("{amount} s"),
            amount @ MINUTE..HOUR => format!("{} min", amount / MINUTE),
            amount @ HOUR..RELATIVE => format!("{} h", amount / HOUR),
            _ => return format!("{} {}", self.day(local.date()), local.strftime("%H:%M")),
        };
        if seconds > 0 { format!("{amount} ago") } else { format!("in {amount}") }
    }

    /// For a line of its own: the time to the second, and how long ago.
    pub fn whole(&self, at: Timestamp) -> String {
        format!("{} ({})", self.local(at).strftime("%Y-%m-%d %H:%M:%S"), self.relative(at))
    }

    /// The time of day, to the millisecond.
    pub fn time_of_day(&self, at: Timestamp) -> String {
        self.local(at).strftime("%H:%M:%S%.3f").to_string()
    }

    fn day(&self, day: Date) -> String {
        let today = self.now.date();
        match day {
            day if day == today => "today".to_owned(),
            day if today.yesterday().ok() == Some(day) => "yesterday".to_owned(),
            day if today.tomorrow().ok() == Some(day) => "tomorrow".to_owned(),
            day => day.to_string(),
        }
    }

    fn local(&self, at: Timestamp) -> Zoned {
        zoned(at, self.now.time_zone().clone())
    }
}

fn zoned(at: Timestamp, zone: TimeZone) -> Zoned {
    Instant::from_millisecond(at.as_millis()).unwrap_or(Instant::UNIX_EPOCH).to_zoned(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokyo() -> LocalTime {
        let now = "2026-11-19T05:00:00.000Z".parse().unwrap();
        LocalTime::at(now, TimeZone::fixed(jiff::tz::offset(9)))
    }

    #[test]
    fn times_are_told_from_here_and_now() {
        for (at, told) in [
            ("2026-11-19T04:59:57.000Z", "now"),
            ("2026-11-19T04:59:18.000Z", "42 s ago"),
            ("2026-11-19T04:57:00.000Z", "3 min ago"),
            ("2026-11-19T01:30:00.000Z", "3 h ago"),
            ("2026-11-18T20:00:00.000Z", "today 05:00"),
            ("2026-11-18T05:02:00.000Z", "yesterday 14:02"),
            ("2026-11-17T05:02:00.000Z", "2026-11-17 14:02"),
            ("2026-11-19T05:10:00.000Z", "in 10 min"),
            ("2026-11-20T05:00:00.000Z", "tomorrow 14:00"),
            ("2027-01-31T12:00:00.000Z", "2027-01-31 21:00"),
        ] {
            assert_eq!(tokyo().relative(at.parse().unwrap()), told, "{at}");
        }
    }

    #[test]
    fn one_time_is_told_to_the_second() {
        let at = "2026-11-19T04:57:00.250Z".parse().unwrap();
        assert_eq!(tokyo().whole(at), "2026-11-19 13:57:00 (3 min ago)");
        assert_eq!(tokyo().time_of_day(at), "13:57:00.250");
    }
}
