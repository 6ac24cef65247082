//! What must not happen, how often it did, and the verdict that follows.

use serde::{Deserialize, Serialize};

/// How often each thing happened that must never happen. Every kind is in every report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anomalies {
    /// A lease had a holder while it had another. Each holder too many counts once.
    pub double_holders: u64,
    /// An epoch was given out twice, or after a higher one.
    pub epochs_reused: u64,
    /// A claim that won was told that it does not hold, or all that wanted a seat were told so.
    pub winners_told_not_held: u64,
    /// A holder was told that its lease is gone, before its time was over by its own clock.
    pub live_leases_lost: u64,
    /// A listing lacked a member that was there throughout.
    pub memberships_short: u64,
    /// A listing that promises to be whole lacked a key that was live throughout it.
    pub listing_short: u64,
    /// Such a listing had a key more than once.
    pub listing_double: u64,
    /// A listing that a quorum proves had a key at an older revision than had been acknowledged before.
    pub listing_old: u64,
    /// A counter of a budget did not stand at what was acknowledged, with some of the charges that are unknown or none.
    pub budget_miscounted: u64,
    /// A charge had another verdict than the counters that it came with, or a place that another charge had.
    pub budget_misjudged: u64,
    /// More was admitted than a ceiling had room for.
    pub budget_overspent: u64,
    /// A seat of a node had no holder when the run was over.
    pub seats_not_held: u64,
    /// Of several who raced for what only one can have, more than one was told that it has it.
    pub winners_doubled: u64,
    /// All who raced had a definite answer, and none of them was told that it won.
    pub winners_missing: u64,
    /// An answer about a record contradicts what was acknowledged before: it is absent though it was written, earlier than it
    /// was, or something that nobody wrote.
    pub records_wrong: u64,
    /// The notification valve let through more than its limit, or refused below it.
    pub valve_wrong: u64,
    /// A budget counts less than was acknowledged or more than was sent, or admits what it has no room for.
    pub spend_off: u64,
    /// A stream of which two brokers held different copies when all was at rest.
    pub copies_differ: u64,
    /// What became of something could not be found out: an operation never ended, the final listing or a counter had no answer,
    /// or a way of listing or of charging never had one.
    pub ops_unsettled: u64,
}

impl Anomalies {
    /// Every kind with its count, by its name in the report.
    pub fn each(&self) -> [(&'static str, u64); 19] {
        [
            ("double_holders", self.double_holders),
            ("epochs_reused", self.epochs_reused),
            ("winners_told_not_held", self.winners_told_not_held),
            ("live_leases_lost", self.live_leases_lost),
            ("memberships_short", self.memberships_short),
            ("listing_short", self.listing_short),
            ("listing_double", self.listing_double),
            ("listing_old", self.listing_old),
            ("budget_miscounted", self.budget_miscounted),
            ("budget_misjudged", self.budget_misjudged),
            ("budget_overspent", self.budget_overspent),
            ("seats_not_held", self.seats_not_held),
            ("winners_doubled", self.winners_doubled),
            ("winners_missing", self.winners_missing),
            ("records_wrong", self.records_wrong),
            ("valve_wrong", self.valve_wrong),
            ("spend_off", self.spend_off),
            ("copies_differ", self.copies_differ),
            ("ops_unsettled", self.ops_unsettled),
        ]
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.each().iter().map(|(_, count)| count).sum()
    }
}

/// Whether everything held that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No anomaly.
    Ok,
    /// At least one.
    Failed,
}

/// Anomalies and the verdict on them. Made from the anomalies alone, so the two cannot disagree; a file in which they do is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Claimed")]
pub struct Findings {
    verdict: Verdict,
    anomalies: Anomalies,
}

#[derive(Deserialize)]
struct Claimed {
    verdict: Verdict,
    anomalies: Anomalies,
}

impl From<Anomalies> for Findings {
    fn from(anomalies: Anomalies) -> Findings {
        Findings { verdict: if anomalies.total() == 0 { Verdict::Ok } else { Verdict::Failed }, anomalies }
    }
}

impl TryFrom<Claimed> for Findings {
    type Error = &'static str;

    fn try_from(claimed: Claimed) -> Result<Findings, &'static str> {
        let findings = Findings::from(claimed.anomalies);
        if findings.verdict == claimed.verdict { Ok(findings) } else { Err("the verdict contradicts the anomalies") }
    }
}

impl Findings {
    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The anomalies behind it.
    pub fn anomalies(&self) -> &Anomalies {
        &self.anomalies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_single_anomaly_fails_the_run() {
        assert_eq!(Findings::from(Anomalies::default()).verdict(), Verdict::Ok);
        let names = Anomalies::default().each().map(|(name, _)| name);
        for name in names {
            let mut counts = serde_json::to_value(Anomalies::default()).unwrap();
            counts[name] = 1.into();
            let anomalies: Anomalies = serde_json::from_value(counts.clone()).unwrap();
            assert_eq!(Findings::from(anomalies).verdict(), Verdict::Failed, "{name}");
            assert_eq!(anomalies.total(), 1, "{name}");
            assert_eq!(anomalies.each().iter().find(|(_, count)| *count == 1).unwrap().0, name);
            let contradiction = serde_json::json!({ "verdict": "ok", "anomalies": counts });
            assert!(serde_json::from_value::<Findings>(contradiction).is_err(), "{name}");
        }
        let counts = serde_json::to_value(Anomalies::default()).unwrap();
        assert_eq!(counts.as_object().unwrap().len(), names.len(), "a kind is missing from the list");
    }
}
