//! The one table of buckets: what each is called, how long it remembers and why, who removes from it, and what is safe to do
//! where its question has no answer.
//!
//! A retention is the age of a bucket, fixed when the bucket is created, never a property of a write; records that want
//! opposite retentions live in different buckets for that reason. `docs/slots.md` is written from this table.

use std::fmt;
use std::time::Duration;

use crate::answer::BadArgument;

/// The longest time to live that a lease other than a seat's or a presence may ask for.
pub const DUTY_TTL_MAX: Duration = hours(3);

/// The shortest age that the broker gives a bucket.
pub const AGE_MIN: Duration = Duration::from_millis(100);

/// The longest age that the broker can be told: it counts nanoseconds in 63 bits, which is 292 years.
pub const AGE_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// One bucket of the coordination store.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name; the bucket is `crewlet_<name>` unless a prefix is configured.
    pub name: &'static str,
    /// What its records answer.
    pub about: &'static str,
    /// How long a record is kept after it was written.
    pub age: Age,
    /// Why that long.
    pub because: &'static str,
    /// What takes a record out again.
    pub removed_by: Remover,
    /// What is safe to do where there is no answer.
    pub on_unknown: OnUnknown,
}

impl Slot {
    /// Whether its removal markers have to be swept. A removal leaves a marker in place of the record; the age takes markers
    /// with everything else, and what is never removed leaves none. Only where both fail does each stay for ever.
    pub fn is_swept(&self) -> bool {
        self.age == Age::None && matches!(self.removed_by, Remover::Operations(_))
    }

    /// The age that its bucket is created with.
    ///
    /// # Errors
    /// One that no broker keeps, which names the slot and where the age comes from.
    pub fn asks_for(&self, retention: &Retention) -> Result<Option<Duration>, BadArgument> {
        let age = self.age.of(retention);
        match age.and_then(broken_rule) {
            None => Ok(age),
            Some(rule) => {
                let given = format!("{:?} for slot {}, {}", age.unwrap_or_default(), self.name, self.age);
                Err(BadArgument::new("retention", given, rule))
            }
        }
    }

    /// What a bucket of this slot that was made with the age `found` is to a node that would have made it with `asked`.
    pub fn judge(&self, asked: Option<Duration>, found: Option<Duration>) -> Difference {
        match (asked, found) {
            _ if asked == found => Difference::Nothing,
            (Some(_), None) if self.age == Age::LeaseTtl => Difference::Endless,
            (None, Some(age)) => Difference::Forgets(age),
            _ => Difference::Retention,
        }
    }
}

/// How the age of a bucket that stands differs from the one asked for. It is in force all the same, but for
/// [`Difference::Endless`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It does not.
    Nothing,
    /// It is another.
    Retention,
    /// There is one, where records must not be forgotten.
    Forgets(Duration),
    /// There is none, where the age alone ends what is recorded: nothing in the bucket would ever end.
    Endless,
}

/// The rule that an age breaks, if it breaks one.
pub fn broken_rule(age: Duration) -> Option<String> {
    if age < AGE_MIN {
        Some(format!("the broker keeps records for at least {AGE_MIN:?}"))
    } else if age > AGE_MAX {
        Some(format!("the broker keeps records for at most {} days", AGE_MAX.as_secs() / days(1).as_secs()))
    } else {
        None
    }
}

/// How long a bucket keeps a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Age {
    /// The configured lease TTL: the expiry is the mechanism that ends a lease.
    LeaseTtl,
    /// So many configured rate windows.
    RateWindows(u32),
    /// So many configured reconcile intervals.
    ReconcileIntervals(u32),
    /// A fixed age.
    Fixed(Duration),
    /// A fixed age that an existing bucket is raised to and never lowered from.
    AtLeast(Duration),
    /// For ever.
    None,
}

/// Where the age comes from, for people.
impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Age::LeaseTtl => f.write_str("the lease TTL"),
            Age::RateWindows(windows) => write!(f, "{windows} rate windows"),
            Age::ReconcileIntervals(intervals) => write!(f, "{intervals} reconcile intervals"),
            Age::Fixed(age) => f.write_str(&spoken(age)),
            Age::AtLeast(age) => write!(f, "{}, or longer where it stands so", spoken(age)),
            Age::None => f.write_str("none"),
        }
    }
}

/// A whole number of the largest unit that one fits.
pub fn spoken(age: Duration) -> String {
    let units = [(days(2), days(1), "days"), (hours(1), hours(1), "h"), (minutes(1), minutes(1), "min")];
    let fits =
        units.into_iter().find(|(least, unit, _)| age >= *least && age.as_nanos().is_multiple_of(unit.as_nanos()));
    match fits {
        Some((_, unit, name)) => format!("{} {name}", age.as_nanos() / unit.as_nanos()),
        None => format!("{} s", age.as_secs_f64()),
    }
}

/// The settings of a node that retentions are sized from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The TTL of seats and presence.
    pub lease_ttl: Duration,
    /// The longest window of the notification valve.
    pub rate_window: Duration,
    /// From one look at the activation pointer to the next.
    pub reconcile_interval: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        let seconds = Duration::from_secs;
        Retention { lease_ttl: seconds(45), rate_window: seconds(1), reconcile_interval: seconds(15) }
    }
}

/// A lease TTL, and the usual rest.
impl From<Duration> for Retention {
    fn from(lease_ttl: Duration) -> Retention {
        Retention { lease_ttl, ..Retention::default() }
    }
}

impl Age {
    /// The age that a bucket is created with.
    pub fn of(&self, retention: &Retention) -> Option<Duration> {
        match *self {
            Age::LeaseTtl => Some(retention.lease_ttl),
            Age::RateWindows(windows) => Some(retention.rate_window.saturating_mul(windows)),
            Age::ReconcileIntervals(intervals) => Some(retention.reconcile_interval.saturating_mul(intervals)),
            Age::Fixed(age) | Age::AtLeast(age) => Some(age),
            Age::None => None,
        }
    }
}

/// What takes a record out of a bucket again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remover {
    /// The bucket's age, and nothing else.
    Age,
    /// Operations on its records, before the age if there is one; and whose.
    Operations(&'static str),
    /// Nothing: a record stays as long as the deployment.
    Nobody,
}

/// What is safe to do where a slot's question has no answer, and what that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// As if the answer were no: what it would allow does not happen.
    Closed(&'static str),
    /// As if the answer were nothing: what it would prevent happens.
    Open(&'static str),
    /// As it was when there last was an answer.
    Holds(&'static str),
    /// There is none: whoever asks has no answer either, never a shorter one, and asks again.
    Unknown(&'static str),
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

const fn hours(n: u64) -> Duration {
    minutes(60 * n)
}

/// So many days.
pub const fn days(n: u64) -> Duration {
    hours(24 * n)
}

/// Makes the constants and the table of the rows.
macro_rules! table {
    ($($slot:ident: $about:literal { $($field:ident: $value:expr,)* })*) => {
        $(
            #[doc = concat!($about, ".")]
            pub const $slot: Slot = Slot { about: $about, $($field: $value,)* };
        )*

        /// Every slot.
        pub const SLOTS: [&Slot; [$($slot.name),*].len()] = [$(&$slot),*];
    };
}

table! {
    LEASES: "Which node runs which seat, and which nodes are there at all" {
        name: "leases",
        age: Age::LeaseTtl,
        because: "the expiry is what ends a lease: a renewal begins it anew, and a node that stops renewing stops holding",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Holds("a holder goes on until its last good renewal was sent plus the TTL; a claim is not held"),
    }
    DUTIES: "Every other lease: singleton duties, and claims on work under way" {
        name: "duties",
        age: Age::AtLeast(DUTY_TTL_MAX),
        because: "each record ends at its own deadline; the age only outlives the longest, and a shorter one would reap what a peer holds",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Holds("as a seat does; a duty whose claim has no answer is not run this time"),
    }
    EPOCHS: "The fencing counters, one for every resource ever leased, and placement hints" {
        name: "epochs",
        age: Age::None,
        because: "a fence that starts again is no fence",
        removed_by: Remover::Nobody,
        on_unknown: OnUnknown::Closed("an epoch that was not acknowledged is handed to nobody, and its claim is not held"),
    }
    CONFIG: "Which revision of the company is current: the pointer, whose revision is the fence, and the body" {
        name: "config",
        age: Age::None,
        because: "the pointer is a fence too, and a company is current until another is",
        removed_by: Remover::Operations("each activation, the bodies of those before it"),
        on_unknown: OnUnknown::Unknown("a node goes on with what it has applied, and looks again at the next interval"),
    }
    STATUS: "What each node managed to apply, and when it last said so" {
        name: "status",
        age: Age::ReconcileIntervals(4),
        because: "a node that stops reporting is not seen any more",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Unknown("nothing is concluded about any node"),
    }
    LEDGER: "Which triggers were worked already" {
        name: "ledger",
        age: Age::Fixed(days(7)),
        because: "it outlasts every redelivery and the scheduler's catching up",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Open("the work is done, once more perhaps"),
    }
    CLAIMS: "Which deliveries were seen" {
        name: "claims",
        age: Age::Fixed(minutes(30)),
        because: "each record ends at its own deadline; the age is the longest that a claim may ask for",
        removed_by: Remover::Operations("an attempt that gives back its claim"),
        on_unknown: OnUnknown::Open("the delivery is handled; nobody would deliver it again"),
    }
    RATE: "The notification valve: what each window has let through" {
        name: "rate",
        age: Age::RateWindows(3),
        because: "a window is counted to its end, and is gone before its successors are",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Closed("the notification is refused, and comes later"),
    }
    COOLDOWNS: "Which credentials cool down, and until when" {
        name: "cooldowns",
        age: Age::Fixed(hours(24)),
        because: "a record carries its own end; the age is the longest that anything sets",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Holds("what a node knows to cool goes on cooling"),
    }
    BUDGETS: "What was spent in the current calendar windows, and when a call was last turned away" {
        name: "budgets",
        age: Age::Fixed(days(32)),
        because: "the longest window is a month, 31 days and an hour of clock change; every charge writes its record again",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Closed("the round stops as in an outage, and nobody is told that a budget is spent"),
    }
    CHANNELS: "Who asks whom, and whether the ask is open" {
        name: "channels",
        age: Age::None,
        because: "an age cannot tell an open one from a closed one",
        removed_by: Remover::Operations("the maintenance duty, what is closed and old"),
        on_unknown: OnUnknown::Closed("no message goes through, and nobody is told that the ask is closed"),
    }
    FIRES: "Which scheduled dispatches were claimed" {
        name: "fires",
        age: Age::Fixed(days(7)),
        because: "it outlasts the scheduler's catching up, which would fire again what was forgotten",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Closed("it is not fired"),
    }
    REBASES: "The instants that late work is done at, for every attempt at the same work" {
        name: "rebases",
        age: Age::Fixed(days(30)),
        because: "that is as long as an attempt may inherit an instant, counted from its writing",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Unknown("the attempt ends: one that minted anew would write everything a second time"),
    }
    SANDBOX_RUNS: "Every detached coding run: its box, its owner, whether it is charged" {
        name: "sandbox_runs",
        age: Age::None,
        because: "a run waits for days for a person, and its record is all that knows of a box that is paid for",
        removed_by: Remover::Operations("whoever settles the run, once its box is reclaimed"),
        on_unknown: OnUnknown::Unknown("no run is taken for gone, and none is started"),
    }
    SECRETS: "The company's credentials, sealed" {
        name: "secrets",
        age: Age::None,
        because: "a credential that expired would be an outage on a timer",
        removed_by: Remover::Operations("an operator's unset"),
        on_unknown: OnUnknown::Unknown("nobody resolves a company on a part of its secrets"),
    }
    INTEGRATIONS: "Where each outside surface's reconcile pass got to" {
        name: "integrations",
        age: Age::None,
        because: "what the last pass found is true until the next one",
        removed_by: Remover::Operations("the reconcile loop, once the surface has left the company's document"),
        on_unknown: OnUnknown::Unknown("the pass is not begun: it would set up what is there already"),
    }
    MAILBOXES: "Which mailboxes may exist, and since when a seat is missing" {
        name: "mailboxes",
        age: Age::None,
        because: "an age cannot tell a seat that left from one that is still there",
        removed_by: Remover::Operations("the maintenance duty, once the mailbox is retired"),
        on_unknown: OnUnknown::Unknown("no mailbox is created, and none is retired"),
    }
    FOLLOWS: "Which chat threads a seat follows" {
        name: "follows",
        age: Age::Fixed(days(90)),
        because: "every activity writes it again, so that it ends with its conversation",
        removed_by: Remover::Operations("an unfollow"),
        on_unknown: OnUnknown::Closed("the seat is not woken, which costs one reply until the next mention"),
    }
    CUSTODY: "Which data node keeps a batch of events" {
        name: "custody",
        age: Age::Fixed(days(32)),
        because: "a keeper may ask at its next boot, and the events are kept a day shorter than that",
        removed_by: Remover::Age,
        on_unknown: OnUnknown::Holds("a node that wrote the batch keeps its copy, and asks again"),
    }
    OBJECTS: "Which store the company's files are in, and what the collector found last" {
        name: "objects",
        age: Age::None,
        because: "a store that was forgotten would let the next node record another, and split the files",
        removed_by: Remover::Operations("an operator who moves the files, with no node running"),
        on_unknown: OnUnknown::Closed("a node that cannot ask does not boot"),
    }
    POSITIONS: "What has to outlive any clock, by class: what the state log may delete, and the paused seats" {
        name: "positions",
        age: Age::None,
        because: "a position that expired would delete what a node still needs, and a pause that expired would be a resume that nobody chose",
        removed_by: Remover::Operations("whoever resumes the seat, releases the hold, closes the operation; a node's position nobody"),
        on_unknown: OnUnknown::Holds("nothing is trimmed, and a seat counts as paused where nobody can say that it is not"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The retentions as they are written down elsewhere, in seconds: a change here is a change for every fleet.
    #[test]
    fn every_slot_remembers_as_long_as_it_has_to() {
        let retention = Retention {
            lease_ttl: Duration::from_secs(45),
            rate_window: Duration::from_secs(1),
            reconcile_interval: Duration::from_secs(15),
        };
        let (hour, day) = (3_600, 86_400);
        let want = [
            ("leases", Some(45)),
            ("duties", Some(3 * hour)),
            ("epochs", None),
            ("config", None),
            ("status", Some(60)),
            ("ledger", Some(7 * day)),
            ("claims", Some(1_800)),
            ("rate", Some(3)),
            ("cooldowns", Some(day)),
            ("budgets", Some(32 * day)),
            ("channels", None),
            ("fires", Some(7 * day)),
            ("rebases", Some(30 * day)),
            ("sandbox_runs", None),
            ("secrets", None),
            ("integrations", None),
            ("mailboxes", None),
            ("follows", Some(90 * day)),
            ("custody", Some(32 * day)),
            ("objects", None),
            ("positions", None),
        ];
        let found = SLOTS.map(|slot| (slot.name, slot.age.of(&retention).map(|age| age.as_secs())));
        assert_eq!(found, want);
        let raised: Vec<&str> = SLOTS.iter().filter(|s| matches!(s.age, Age::AtLeast(_))).map(|s| s.name).collect();
        assert_eq!(raised, ["duties"], "any other age is what the first node asked for");
        let swept: Vec<&str> = SLOTS.iter().filter(|slot| slot.is_swept()).map(|slot| slot.name).collect();
        let ageless = want.iter().filter(|(name, age)| age.is_none() && *name != "epochs").map(|(name, _)| *name);
        assert_eq!(swept, ageless.collect::<Vec<_>>());
    }

    #[test]
    fn what_is_swept_follows_from_the_table() {
        for slot in SLOTS {
            let aged = slot.age != Age::None;
            assert!(aged || slot.removed_by != Remover::Age, "{}: an age that is not there removes nothing", slot.name);
            assert!(!(aged && slot.is_swept()), "{}: the age takes its markers", slot.name);
        }
        assert!(!EPOCHS.is_swept(), "a counter is never removed");
        assert!(POSITIONS.is_swept(), "a pause is");
        let removed_by = |removed_by| Slot { name: "local", removed_by, ..SECRETS };
        assert!(removed_by(Remover::Operations("anybody")).is_swept());
        assert!(!removed_by(Remover::Nobody).is_swept());
        assert!(!Slot { age: Age::LeaseTtl, ..removed_by(Remover::Operations("anybody")) }.is_swept());
    }

    #[test]
    fn a_row_says_everything_once() {
        for (row, slot) in SLOTS.iter().enumerate() {
            let (OnUnknown::Closed(then) | OnUnknown::Open(then) | OnUnknown::Holds(then) | OnUnknown::Unknown(then)) =
                slot.on_unknown;
            for text in [slot.about, slot.because, then] {
                assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('|'), "{}: {text:?}", slot.name);
            }
            assert!(SLOTS[..row].iter().all(|other| other.name != slot.name), "{} is there twice", slot.name);
        }
    }

    #[test]
    fn an_age_that_no_broker_keeps_names_its_slot() {
        let seconds = Duration::from_secs;
        for slot in SLOTS {
            assert_eq!(slot.asks_for(&Retention::default()), Ok(slot.age.of(&Retention::default())), "{}", slot.name);
        }
        let asked = |slot: &Slot, retention| slot.asks_for(&retention).map_err(|error| error.to_string());
        let window = |rate_window| Retention { rate_window, ..Retention::default() };
        assert_eq!(asked(&RATE, window(Duration::from_micros(33_334))), Ok(Some(Duration::from_micros(100_002))));
        assert_eq!(
            asked(&RATE, window(Duration::from_millis(33))).unwrap_err(),
            "invalid retention \"99ms for slot rate, 3 rate windows\": the broker keeps records for at least 100ms"
        );
        let intervals = Retention { reconcile_interval: Duration::ZERO, ..Retention::default() };
        assert!(asked(&STATUS, intervals).unwrap_err().contains("\"0ns for slot status, 4 reconcile intervals\""));
        assert_eq!(asked(&LEASES, Retention::from(AGE_MAX)), Ok(Some(AGE_MAX)));
        let longer = asked(&LEASES, Retention::from(AGE_MAX + Duration::from_nanos(1))).unwrap_err();
        assert!(longer.contains("slot leases, the lease TTL") && longer.contains("at most 106751 days"), "{longer}");
        assert!(asked(&RATE, window(Duration::MAX)).is_err(), "three of those are no less");
        assert_eq!(asked(&LEDGER, Retention::from(seconds(0))), Ok(Some(days(7))), "what is fixed depends on nothing");
    }

    #[test]
    fn every_difference_is_told_by_what_it_does() {
        let (short, long) = (Some(minutes(1)), Some(hours(1)));
        for slot in SLOTS {
            assert_eq!(slot.judge(short, short), Difference::Nothing);
            assert_eq!(slot.judge(None, None), Difference::Nothing);
            assert_eq!(slot.judge(long, short), Difference::Retention);
            assert_eq!(slot.judge(short, long), Difference::Retention);
            assert_eq!(slot.judge(None, short), Difference::Forgets(minutes(1)));
            let endless = if slot.name == "leases" { Difference::Endless } else { Difference::Retention };
            assert_eq!(slot.judge(short, None), endless, "{}", slot.name);
        }
    }

    #[test]
    fn an_age_is_told_in_its_largest_unit() {
        let told = |age: Duration| Age::Fixed(age).to_string();
        assert_eq!([told(days(7)), told(hours(24)), told(minutes(30))], ["7 days", "24 h", "30 min"]);
        assert_eq!([told(minutes(90)), told(Duration::from_millis(1500))], ["90 min", "1.5 s"]);
        assert_eq!(DUTIES.age.to_string(), "3 h, or longer where it stands so");
    }
}
