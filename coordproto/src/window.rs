//! The calendar windows of a token budget: the day, the ISO week and the month that are current at an instant, cut on a
//! company's clock.
//!
//! The calendar is the caller's. Every charge and every read brings the [`Windows`] that it is about, and a record holds
//! labels and no clock. A [`Zone`] comes from the time zone database that is built into the binary, so that two nodes of one
//! build cut the same windows whatever their machines have installed.
//!
//! What is promised of the windows of one zone and one period: they follow each other without a gap and without an overlap,
//! and a later instant never has an earlier label. A local clock promises neither, so a window begins at the first instant at
//! which the local calendar has reached its first day, and ends where its successor begins:
//! - A midnight that does not exist: the day begins when the clock jumps past it.
//! - A midnight that happens twice, because the clock is put back over it: the day begins the first time, and the minutes
//!   that happen again in the old day belong to the new one.
//! - A day that does not exist has no window, and the one before it ends where the one after it begins.
//!
//! Labels are `2026-09-23`, `2026-W39` and `2026-09`. The year of a week is its ISO year, which around New Year is not the
//! year of its days.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;

use jiff::civil::{Date, ISOWeekDate, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::answer::BadArgument;
use crate::key::shortened;

/// The first year that a label can bear.
pub const YEAR_MIN: i16 = 1970;

/// The last year that a label can bear. Every year has four digits, so that the order of labels as text is their order in
/// the calendar; and one year is left above, so that every window has an end that can be written down.
pub const YEAR_MAX: i16 = 9998;

/// The longest name of a time zone that is looked up. The database has none of half the length.
const NAME_MAX: usize = 64;

/// How long a ceiling holds. In order of length, which decides between two windows that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// From midnight to midnight: 23 to 25 hours as a rule.
    Day,
    /// The ISO week, from Monday.
    Week,
    /// The calendar month.
    Month,
}

impl Period {
    /// Every period, the shortest first.
    pub const ALL: [Period; 3] = [Period::Day, Period::Week, Period::Month];

    /// Its name: `day`, `week` or `month`.
    pub fn name(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Period {
    type Err = BadArgument;

    fn from_str(name: &str) -> Result<Period, BadArgument> {
        Period::ALL
            .into_iter()
            .find(|period| period.name() == name)
            .ok_or_else(|| BadArgument::new("period", shortened(name), "a period is day, week or month"))
    }
}

/// One value for each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByPeriod<T> {
    /// Of the day.
    pub day: T,
    /// Of the week.
    pub week: T,
    /// Of the month.
    pub month: T,
}

impl<T> ByPeriod<T> {
    /// Asks `each` for every period's value.
    pub fn from_fn(mut each: impl FnMut(Period) -> T) -> ByPeriod<T> {
        ByPeriod { day: each(Period::Day), week: each(Period::Week), month: each(Period::Month) }
    }
}

impl<T> Index<Period> for ByPeriod<T> {
    type Output = T;

    fn index(&self, period: Period) -> &T {
        match period {
            Period::Day => &self.day,
            Period::Week => &self.week,
            Period::Month => &self.month,
        }
    }
}

impl<T> IndexMut<Period> for ByPeriod<T> {
    fn index_mut(&mut self, period: Period) -> &mut T {
        match period {
            Period::Day => &mut self.day,
            Period::Week => &mut self.week,
            Period::Month => &mut self.month,
        }
    }
}

/// The name of a window, which tells its period too.
///
/// Labels of one period are ordered as the calendar is, and so are their texts: every field has a fixed width, and
/// [`YEAR_MIN`] and [`YEAR_MAX`] keep the year at four digits. Labels of different periods are ordered by period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    period: Period,
    first: Date,
}

impl Label {
    /// The label of the window of `period` that `date` lies in; nothing where its year is out of bounds.
    pub fn of(period: Period, date: Date) -> Option<Label> {
        let (first, year) = match period {
            Period::Day => (date, date.year()),
            Period::Week => {
                let week = date.iso_week_date();
                (ISOWeekDate::new(week.year(), week.week(), Weekday::Monday).ok()?.date(), week.year())
            }
            Period::Month => (date.first_of_month(), date.year()),
        };
        (YEAR_MIN..=YEAR_MAX).contains(&year).then_some(Label { period, first })
    }

    /// The period.
    pub fn period(self) -> Period {
        self.period
    }

    /// The first day of the window.
    pub fn first(self) -> Date {
        self.first
    }

    /// The first day after the window.
    pub fn after(self) -> Date {
        self.first.saturating_add(match self.period {
            Period::Day => 1.day(),
            Period::Week => 7.days(),
            Period::Month => 1.month(),
        })
    }

    fn read(text: &str) -> Option<Label> {
        let year = text.get(..4)?.parse().ok()?;
        let number = |at: std::ops::Range<usize>| text.get(at)?.parse::<i8>().ok();
        let label = match text.len() {
            10 => Label::of(Period::Day, Date::new(year, number(5..7)?, number(8..10)?).ok()?),
            8 => Label::of(Period::Week, ISOWeekDate::new(year, number(6..8)?, Weekday::Monday).ok()?.date()),
            7 => Label::of(Period::Month, Date::new(year, number(5..7)?, 1).ok()?),
            _ => None,
        }?;
        // Separators, signs and spaces: one text and no other stands for a label.
        (label.to_string() == text).then_some(label)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = (self.first.year(), self.first.month(), self.first.day());
        match self.period {
            Period::Day => write!(f, "{year:04}-{month:02}-{day:02}"),
            Period::Week => {
                let week = self.first.iso_week_date();
                write!(f, "{:04}-W{:02}", week.year(), week.week())
            }
            Period::Month => write!(f, "{year:04}-{month:02}"),
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Label {
    type Err = BadArgument;

    fn from_str(text: &str) -> Result<Label, BadArgument> {
        Label::read(text).ok_or_else(|| {
            let rule = format!(
                "a window is a day (2026-09-23), an ISO week (2026-W39) or a month (2026-09) of the years {YEAR_MIN} to {YEAR_MAX}"
            );
            BadArgument::new("window label", shortened(text), rule)
        })
    }
}

impl Serialize for Label {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Label, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A company's time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Reads a time zone setting; `field` is what an operator knows it by.
    ///
    /// A name is an area and a place as the IANA database spells them, `Europe/Berlin`, or `UTC`, or `Etc/UTC`. An offset
    /// (`UTC+5`, `Etc/GMT+5`) and a POSIX rule (`EST5EDT`) do not say whose clock is meant, and the names without an area
    /// are kept by the database for programs that know no better: some of them have changed their meaning already.
    ///
    /// # Errors
    /// Any other text. The error names the field.
    pub fn parse(field: &'static str, name: &str) -> Result<Zone, BadArgument> {
        let refuse = |rule: String| Err(BadArgument::new(field, shortened(name), rule));
        if name.is_empty() {
            return refuse("empty; a time zone is an IANA name such as Europe/Berlin, or UTC".to_owned());
        }
        let found = (name.len() <= NAME_MAX).then(|| TimeZoneDatabase::bundled().get(name).ok()).flatten();
        let Some(zone) = found else {
            return refuse(
                "not in the IANA time zone database; a time zone is a name such as Europe/Berlin, or UTC".to_owned(),
            );
        };
        let spelled = zone.iana_name().unwrap_or_default();
        if !matches!(spelled, "UTC" | "Etc/UTC") && (!spelled.contains('/') || spelled.starts_with("Etc/")) {
            return refuse(
                "an offset or a legacy abbreviation; a time zone is an area and a place such as Europe/Berlin, or UTC"
                    .to_owned(),
            );
        }
        if spelled != name {
            return refuse(format!("the IANA time zone database spells it {spelled}"));
        }
        Ok(Zone(zone))
    }

    /// Its name, as the database spells it.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or_default()
    }

    /// The window of that label on this zone's clock.
    pub fn window(&self, label: Label) -> Window {
        Window { label, start: self.start_of(label.first()), end: self.start_of(label.after()) }
    }

    /// The first instant at which the local calendar has reached `date`.
    ///
    /// Of a midnight that happens twice that is the first, and of one that does not exist it is the jump over it: no zone
    /// has jumped from before a midnight to after it since [`YEAR_MIN`], which a test holds the database to.
    fn start_of(&self, date: Date) -> Timestamp {
        self.0
            .to_ambiguous_timestamp(date.to_datetime(Time::midnight()))
            .compatible()
            .expect("the days that labels begin and end with lie years within what an instant can be")
    }

    /// The last day that has begun at `now`. Where the local clock was put back over midnight that is the day after the one
    /// it shows.
    fn day_at(&self, now: Timestamp) -> Date {
        let shown = self.0.to_datetime(now).date();
        match shown.tomorrow() {
            Ok(next) if (YEAR_MIN..=YEAR_MAX).contains(&next.year()) && self.start_of(next) <= now => next,
            _ => shown,
        }
    }
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its name.
    pub label: Label,
    /// Its first instant.
    pub start: Timestamp,
    /// The first instant after it, at which its allowance comes back.
    pub end: Timestamp,
}

/// The three windows that are current at an instant, and the clock that cuts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    zone: Zone,
    windows: ByPeriod<Window>,
}

impl Windows {
    /// The windows current at `now` on the clock of `zone`.
    ///
    /// # Errors
    /// An instant outside the years that labels are made of, as a clock that was never set gives.
    pub fn at(now: Timestamp, zone: &Zone) -> Result<Windows, BadArgument> {
        let day = zone.day_at(now);
        let label = |period| {
            Label::of(period, day).ok_or_else(|| {
                let rule = format!("windows are cut in the years {YEAR_MIN} to {YEAR_MAX}");
                BadArgument::new("instant", now.to_string(), rule)
            })
        };
        let labels = ByPeriod { day: label(Period::Day)?, week: label(Period::Week)?, month: label(Period::Month)? };
        Ok(Windows { zone: zone.clone(), windows: ByPeriod::from_fn(|period| zone.window(labels[period])) })
    }

    /// The clock that cuts them.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }
}

impl Index<Period> for Windows {
    type Output = Window;

    fn index(&self, period: Period) -> &Window {
        &self.windows[period]
    }
}

#[cfg(test)]
mod tests;
