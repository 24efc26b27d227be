//! The time that a usage report covers, and how it is put together: whole months and days from
//! their totals, and parts of a day from the bills.

use std::time::Duration;

use shikiri_model::execution::UsageSpan;
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;

/// The time that a report covers: from `from` on, up to but without `to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportPeriod {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

/// One part of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeriodPart {
    /// Less than a day.
    Bills(ReportPeriod),
    /// The totals from this day or month on, up to but without another one.
    Totals(UsageSpan, String, Option<String>),
}

const DAY: Duration = Duration::from_secs(24 * 3_600);
const DAY_MS: i64 = 24 * 3_600 * 1_000;

impl ReportPeriod {
    /// Reads what people write: an RFC 3339 time, or a date, which is a whole day in UTC.
    pub fn read(from: Option<&str>, to: Option<&str>) -> Result<Self, AppError> {
        let read = |field, text: Option<&str>, whole_day| {
            let moment = text.map(|text| parse_moment(text, whole_day)).transpose();
            moment.map_err(|reason| AppError::invalid(field, reason))
        };
        let period = Self { from: read("from", from, Duration::ZERO)?, to: read("to", to, DAY)? };
        if period.from.zip(period.to).is_some_and(|(from, to)| to < from) {
            return Err(AppError::invalid("to", "is before `from`"));
        }
        Ok(period)
    }

    pub(crate) fn holds(self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at < to)
    }

    /// Its parts in order of time. Days are not put together to months if each is asked for.
    pub(crate) fn parts(self, by_day: bool) -> Vec<PeriodPart> {
        let first_day = self.from.map(|from| {
            day_start(Timestamp::from_millis(from.as_millis().saturating_add(DAY_MS - 1)))
        });
        let end_day = self.to.map(day_start);
        if first_day.zip(end_day).is_some_and(|(first, end)| end < first) {
            return vec![PeriodPart::Bills(self)];
        }
        let mut parts = Vec::new();
        if self.from != first_day {
            parts.push(PeriodPart::Bills(Self { from: self.from, to: first_day }));
        }
        parts.extend(whole_days(first_day, end_day, by_day));
        if self.to != end_day {
            parts.push(PeriodPart::Bills(Self { from: end_day, to: self.to }));
        }
        parts
    }
}

/// Both bounds are starts of days.
fn whole_days(first: Option<Timestamp>, end: Option<Timestamp>, by_day: bool) -> Vec<PeriodPart> {
    let days = |from, to| PeriodPart::Totals(UsageSpan::Day, from, to);
    let months = |from, to| PeriodPart::Totals(UsageSpan::Month, from, to);
    let day = |at| UsageSpan::Day.period(at);
    let month = |at| UsageSpan::Month.period(at);
    let is_month_start = |at| day(at).ends_with("-01");
    if first.is_some() && first == end {
        return Vec::new();
    }
    if by_day {
        return vec![days(first.map(day).unwrap_or_default(), end.map(day))];
    }
    // The days before the first whole month.
    let mut parts = Vec::new();
    let mut from_month = first.map(month).unwrap_or_default();
    if let Some(first) = first.filter(|first| !is_month_start(*first)) {
        // Sorts after all days of the month and before the next month.
        let month_end = format!("{from_month}~");
        if let Some(end) = end.filter(|end| month(*end) == from_month) {
            return vec![days(day(first), Some(day(end)))];
        }
        parts.push(days(day(first), Some(month_end.clone())));
        from_month = month_end;
    }
    parts.push(months(from_month, end.map(month)));
    if let Some(end) = end.filter(|end| !is_month_start(*end)) {
        parts.push(days(format!("{}-01", month(end)), Some(day(end))));
    }
    parts
}

fn day_start(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.as_millis().div_euclid(DAY_MS) * DAY_MS)
}

/// Reads a time, or a date plus `into_day`.
fn parse_moment(text: &str, into_day: Duration) -> Result<Timestamp, &'static str> {
    // A text as long as a date cannot be a time.
    let read = match text.len() {
        10 => format!("{text}T00:00:00Z").parse().map(|day: Timestamp| day + into_day),
        _ => text.parse(),
    };
    read.map_err(|_| "is neither a time like 2026-11-15T20:00:00Z nor a date like 2026-11-15")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &str, to: &str) -> Result<(i64, i64), String> {
        let period = ReportPeriod::read(Some(from), Some(to)).map_err(|error| error.to_string())?;
        Ok((period.from.unwrap().as_millis(), period.to.unwrap().as_millis()))
    }

    #[test]
    fn a_date_is_a_whole_day_and_a_time_is_a_moment() {
        assert_eq!(read("1970-01-01", "1970-01-01"), Ok((0, 86_400_000)));
        assert_eq!(read("1970-01-01T00:00:01Z", "1970-01-01T09:00:01+09:00"), Ok((1_000, 1_000)));
        assert_eq!(ReportPeriod::read(None, None).unwrap(), ReportPeriod::default());
        for (from, to, field) in [
            ("yesterday!", "1970-01-01", "from: "),
            ("1970-02-30", "1971-01-01", "from: "),
            ("1970-01-01", "1970", "to: "),
            ("1970-01-02", "1970-01-01T23:00:00Z", "to: is before"),
        ] {
            let error = read(from, to).unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
    }

    fn told(from: Option<&str>, to: Option<&str>, by_day: bool) -> Vec<String> {
        let parts = ReportPeriod::read(from, to).unwrap().parts(by_day).into_iter();
        let time = |at: Option<Timestamp>| at.map_or("…".to_owned(), |at| at.to_string());
        let text = |part| match part {
            PeriodPart::Bills(period) => format!("{} {}", time(period.from), time(period.to)),
            PeriodPart::Totals(span, from, to) => format!("{span:?} {from} {to:?}"),
        };
        parts.map(text).collect()
    }

    #[test]
    fn whole_months_and_days_are_read_from_totals_and_the_rest_from_bills() {
        assert_eq!(told(None, None, false), ["Month  None"]);
        assert_eq!(told(None, None, true), ["Day  None"]);
        assert_eq!(told(Some("2026-11-01"), None, false), ["Month 2026-11 None"]);
        assert_eq!(
            told(Some("2026-10-30T12:00:00Z"), Some("2027-01-02T00:00:00.001Z"), false),
            [
                "2026-10-30T12:00:00.000Z 2026-10-31T00:00:00.000Z",
                "Day 2026-10-31 Some(\"2026-10~\")",
                "Month 2026-10~ Some(\"2027-01\")",
                "Day 2027-01-01 Some(\"2027-01-02\")",
                "2027-01-02T00:00:00.000Z 2027-01-02T00:00:00.001Z",
            ]
        );
        let november = ["Day 2026-11-05 Some(\"2026-11-08\")"];
        assert_eq!(told(Some("2026-11-05"), Some("2026-11-07"), false), november);
        assert_eq!(told(Some("2026-11-05"), Some("2026-11-07"), true), november);
        let within = told(Some("2026-11-05T01:00:00Z"), Some("2026-11-05T02:00:00Z"), false);
        assert_eq!(within, ["2026-11-05T01:00:00.000Z 2026-11-05T02:00:00.000Z"]);
        assert!(told(Some("2026-11-05T00:00:00Z"), Some("2026-11-05T00:00:00Z"), false).is_empty());
    }
}
