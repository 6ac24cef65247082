//! What must be true of the leases, whatever the store says: the load generator's own account of who holds what.
//!
//! It is told of every grant, renewal, loss and release as they are answered, and knows nothing else. A tenure lasts, by
//! this account, from the answer that granted it until its holder stopped acting on it, or until the holder's own bound
//! passed, which no broker's deadline is earlier than. Two owners' tenures of one resource that have a moment in common are
//! two holders, and so on: what is counted here is wrong whatever the latency was.
//!
//! Answers are told in the order in which their tasks come to it, not in that of the store. So nothing is judged by what was
//! told last: tenures are kept, and every answer is held against all of them by the instants that it carries. One that ended
//! longer ago than any answer is on its way is let go, but for the last of each resource.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::env::Mono;
use engine::lease::Lease;
use parking_lot::Mutex;

use crate::report::Anomalies;

/// How long a tenure is kept that is over: many times what a request, a drain or a TTL takes.
const KEPT: Duration = Duration::from_secs(600);

/// The account of every seat and every node's presence.
#[derive(Clone, Default)]
pub struct Model {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    resources: HashMap<Box<str>, Account>,
    anomalies: Anomalies,
}

impl Inner {
    /// The tenures that lasted throughout, among the names with this prefix.
    fn lasting(&self, began: Mono, ended: Mono, prefix: &str) -> impl Iterator<Item = (&Box<str>, &Tenure)> {
        self.resources.iter().filter(move |(name, _)| name.starts_with(prefix)).filter_map(move |(name, account)| {
            Some((name, account.tenures.iter().find(|t| t.granted < began && t.until > ended)?))
        })
    }
}

/// The tenures of a resource so far.
#[derive(Default)]
struct Account {
    tenures: Vec<Tenure>,
}

struct Tenure {
    owner: Arc<str>,
    epoch: u64,
    granted: Mono,
    /// When its holder stopped acting on it, or will have to.
    until: Mono,
    stopped: bool,
    /// The store said that it is over, so it cannot go on.
    over: bool,
    /// Counted as one of two holders.
    shared: bool,
}

impl Tenure {
    fn is_of(&self, lease: &Lease) -> bool {
        self.epoch == lease.epoch() && *self.owner == *lease.owner()
    }

    /// Whether some moment belongs to both.
    fn overlaps(&self, other: &Tenure) -> bool {
        self.granted.max(other.granted) < self.until.min(other.until)
    }
}

impl Account {
    fn of(&self, lease: &Lease) -> Option<usize> {
        self.tenures.iter().position(|tenure| tenure.is_of(lease))
    }

    /// Holds the tenure at `index` against those of all other owners.
    fn check_alone(&mut self, index: usize, anomalies: &mut Anomalies) {
        for other in 0..self.tenures.len() {
            let (own, rival) = (&self.tenures[index], &self.tenures[other]);
            if own.owner != rival.owner && own.overlaps(rival) && !(own.shared && rival.shared) {
                anomalies.double_holders += 1;
                self.tenures[index].shared = true;
                self.tenures[other].shared = true;
            }
        }
    }
}

impl Model {
    /// A claim was answered at `now`: held.
    pub fn granted(&self, lease: &Lease, now: Mono) {
        let mut inner = self.inner.lock();
        let Inner { resources, anomalies } = &mut *inner;
        let account = resources.entry(lease.resource().name().into()).or_default();
        let (epoch, until) = (lease.epoch(), lease.good_until());
        let index = match account.of(lease) {
            // The holder's own claim again goes on with its tenure, unless that was over.
            Some(index) => {
                let own = &mut account.tenures[index];
                anomalies.epochs_reused += u64::from(own.over);
                (own.until, own.stopped, own.over) = (own.until.max(until), false, false);
                index
            }
            None => {
                // A lower epoch than one known may be an answer told late. Asked for after the higher one was there, it is not.
                let taken = |t: &Tenure| t.epoch == epoch || (t.epoch > epoch && t.granted < lease.confirmed());
                anomalies.epochs_reused += u64::from(account.tenures.iter().any(taken));
                let owner = lease.owner().into();
                let fresh = Tenure { owner, epoch, granted: now, until, stopped: false, over: false, shared: false };
                let last = account.tenures.iter().map(|tenure| tenure.epoch).max();
                account.tenures.retain(|tenure| tenure.until + KEPT > now || Some(tenure.epoch) == last);
                account.tenures.push(fresh);
                account.tenures.len() - 1
            }
        };
        account.check_alone(index, anomalies);
    }

    /// A renewal was answered: extended.
    pub fn extended(&self, lease: &Lease) {
        self.tell(lease, |own, _| {
            if !own.stopped {
                own.until = own.until.max(lease.good_until());
            }
        });
    }

    /// A renewal or a release was answered at `now`: lost, or not held.
    pub fn lost(&self, lease: &Lease, now: Mono) {
        self.tell(lease, |own, anomalies| {
            // By the holder's own bound it was still its own.
            anomalies.live_leases_lost += u64::from(now < lease.good_until());
            (own.until, own.stopped, own.over) = (own.until.min(now), true, true);
        });
    }

    /// The holder stops acting on a lease; its release is about to be sent.
    pub fn releasing(&self, lease: &Lease, now: Mono) {
        self.tell(lease, |own, _| (own.until, own.stopped) = (own.until.min(now), true));
    }

    /// A release was answered: released.
    pub fn released(&self, lease: &Lease) {
        self.tell(lease, |own, _| own.over = true);
    }

    fn tell(&self, lease: &Lease, tell: impl FnOnce(&mut Tenure, &mut Anomalies)) {
        let mut inner = self.inner.lock();
        let Inner { resources, anomalies } = &mut *inner;
        let Some(account) = resources.get_mut(lease.resource().name()) else { return };
        let Some(index) = account.of(lease) else { return };
        tell(&mut account.tenures[index], anomalies);
        account.check_alone(index, anomalies);
    }

    /// What lasted throughout the time from `began` to `ended`, among the names with this prefix: the names, owners and
    /// epochs whose holder was granted before and is good until after.
    pub fn live_throughout(&self, began: Mono, ended: Mono, prefix: &str) -> Vec<(Box<str>, Arc<str>, u64)> {
        let inner = self.inner.lock();
        let lasting = inner.lasting(began, ended, prefix);
        lasting.map(|(name, tenure)| (name.clone(), tenure.owner.clone(), tenure.epoch)).collect()
    }

    /// How many of the names with this prefix have a holder at `now`.
    pub fn held(&self, prefix: &str, now: Mono) -> usize {
        self.inner.lock().lasting(now, now, prefix).count()
    }

    /// Until when the last holder of a resource is or was good; none when nobody ever held it.
    pub fn good_until(&self, name: &str) -> Option<Mono> {
        self.inner.lock().resources.get(name)?.tenures.iter().map(|tenure| tenure.until).max()
    }

    /// Counts what a caller found to be wrong.
    pub fn found(&self, count: impl FnOnce(&mut Anomalies)) {
        count(&mut self.inner.lock().anomalies);
    }

    /// What was found so far.
    pub fn anomalies(&self) -> Anomalies {
        self.inner.lock().anomalies
    }
}

#[cfg(test)]
mod tests;
