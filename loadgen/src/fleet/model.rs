//! What must be true of the leases, whatever the store says: the load generator's own account of who holds what.
//!
//! It is told of every grant, renewal, loss and release as they are answered, and knows nothing else. A tenure lasts, by
//! this account, from the answer that granted it until its holder sent the release, or until the holder's own bound passed:
//! the interval in which that holder would act on it. What is counted here is wrong whatever the latency was.

use std::collections::HashMap;
use std::sync::Arc;

use engine::env::Mono;
use engine::lease::Lease;
use parking_lot::Mutex;

use crate::report::Anomalies;

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

#[derive(Default)]
struct Account {
    /// The newest epoch ever granted.
    epoch: u64,
    /// The tenures that may still last, at most a few.
    tenures: Vec<Tenure>,
}

struct Tenure {
    owner: Arc<str>,
    epoch: u64,
    granted: Mono,
    /// When its holder stopped acting on it, or will have to.
    until: Mono,
}

impl Tenure {
    fn lasts_at(&self, at: Mono) -> bool {
        self.granted <= at && at < self.until
    }
}

impl Model {
    /// A claim was answered at `now`: held.
    pub fn granted(&self, lease: &Lease, now: Mono) {
        let mut inner = self.inner.lock();
        let Inner { resources, anomalies } = &mut *inner;
        let account = resources.entry(lease.resource().name().into()).or_default();
        let (owner, epoch) = (lease.owner(), lease.epoch());
        account.tenures.retain(|tenure| tenure.lasts_at(now));
        if let Some(own) = account.tenures.iter_mut().find(|t| &*t.owner == owner && t.epoch == epoch) {
            own.until = lease.good_until();
            return;
        }
        if epoch <= account.epoch {
            anomalies.epochs_reused += 1;
        }
        if account.tenures.iter().any(|t| &*t.owner != owner) && now < lease.good_until() {
            anomalies.double_holders += 1;
        }
        account.epoch = account.epoch.max(epoch);
        account.tenures.push(Tenure { owner: owner.into(), epoch, granted: now, until: lease.good_until() });
    }

    /// A renewal was answered: extended.
    pub fn extended(&self, lease: &Lease) {
        let mut inner = self.inner.lock();
        let Inner { resources, anomalies } = &mut *inner;
        let Some(account) = resources.get_mut(lease.resource().name()) else { return };
        let sent = lease.confirmed();
        let rival = account.tenures.iter().any(|t| t.epoch > lease.epoch() && t.lasts_at(sent));
        if rival {
            anomalies.double_holders += 1;
        }
        if let Some(own) = account.tenures.iter_mut().find(|t| &*t.owner == lease.owner() && t.epoch == lease.epoch()) {
            own.until = lease.good_until();
        }
    }

    /// A renewal or a release was answered at `now`: lost, or not held.
    pub fn lost(&self, lease: &Lease, now: Mono) {
        let mut inner = self.inner.lock();
        let Inner { resources, anomalies } = &mut *inner;
        let Some(account) = resources.get_mut(lease.resource().name()) else { return };
        let own = account.tenures.iter_mut().find(|t| &*t.owner == lease.owner() && t.epoch == lease.epoch());
        if let Some(own) = own {
            own.until = own.until.min(now);
        }
        // By the holder's own bound, which no broker's deadline is earlier than, it was still its own.
        if now < lease.good_until() {
            anomalies.live_leases_lost += 1;
        }
    }

    /// The holder stops acting on a lease; its release is about to be sent.
    pub fn releasing(&self, lease: &Lease, now: Mono) {
        let mut inner = self.inner.lock();
        let Some(account) = inner.resources.get_mut(lease.resource().name()) else { return };
        let own = account.tenures.iter_mut().find(|t| &*t.owner == lease.owner() && t.epoch == lease.epoch());
        if let Some(own) = own {
            own.until = own.until.min(now);
        }
    }

    /// What lasted throughout the time from `began` to `ended`, among the names that `select` wants: the names whose holder
    /// was granted before and is good until after.
    pub fn live_throughout(
        &self,
        began: Mono,
        ended: Mono,
        select: impl Fn(&str) -> bool,
    ) -> Vec<(Box<str>, Arc<str>, u64)> {
        let inner = self.inner.lock();
        let lasting = |(name, account): (&Box<str>, &Account)| {
            let tenure = account.tenures.iter().find(|t| t.granted < began && t.until > ended)?;
            Some((name.clone(), tenure.owner.clone(), tenure.epoch))
        };
        inner.resources.iter().filter(|(name, _)| select(name)).filter_map(lasting).collect()
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
