//! When the local day began.

use jiff::tz::TimeZone;
use shikiri_model::time::Timestamp;

/// Midnight of the day of `now`, where this process is.
pub(super) fn began_at(now: Timestamp) -> Timestamp {
    began_in(now, TimeZone::system())
}

/// The local date.
pub(super) fn date(now: Timestamp) -> String {
    zoned(now, TimeZone::system()).date().to_string()
}

fn began_in(now: Timestamp, zone: TimeZone) -> Timestamp {
    let midnight = zoned(now, zone).start_of_day();
    // Only at the ends of the calendar is there no such day.
    midnight.map_or(now, |day| Timestamp::from_millis(day.timestamp().as_millisecond()))
}

fn zoned(now: Timestamp, zone: TimeZone) -> jiff::Zoned {
    let now = jiff::Timestamp::from_millisecond(now.as_millis());
    now.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_zoned(zone)
}

#[cfg(test)]
mod tests {
    use jiff::tz::offset;

    use super::*;

    #[test]
    fn a_day_begins_at_local_midnight() {
        let now: Timestamp = "2026-11-19T05:00:00.000Z".parse().unwrap();
        let began = |hours| began_in(now, TimeZone::fixed(offset(hours))).to_string();
        assert_eq!(began(0), "2026-11-19T00:00:00.000Z");
        assert_eq!(began(9), "2026-11-18T15:00:00.000Z");
        assert_eq!(began(-8), "2026-11-18T08:00:00.000Z");
    }
}
