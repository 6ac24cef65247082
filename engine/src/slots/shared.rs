//! Boot: every bucket of the table, opened at once.
//!
//! A node opens all of them before it does anything, and starts only with all of them. Each is looked for, made where there is
//! none and adopted as it is where there is one; the looking is done side by side, and the making in the store's own small
//! number. What is opened is a [`Store`] itself: a family, or the leases, opened from it stand on the very bucket, and nothing
//! is asked or told a second time.
//!
//! **A bucket that cannot be opened** fails the boot, and the error names every such bucket, since an operator who has to
//! resize one has to resize the others too. The rest are opened to their end first, so that nothing is under way when the boot
//! has failed. What was made stays and is adopted by the next attempt, which asks for the same; nothing of it has to be undone.
//!
//! This starts no duty and reads no record.

use std::fmt;
use std::sync::Arc;

use coordproto::slot::{SLOTS, Slot};
use futures_util::future::join_all;

use crate::env::Env;
use crate::slots::Settings;
use crate::store::{BucketSpec, OpenError, Store};

/// Every bucket of the table, opened in a store. Clones are handles to the same.
pub struct Shared<S: Store> {
    below: S,
    settings: Settings,
    opened: Arc<[(&'static Slot, S::Bucket)]>,
}

impl<S: Store> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Shared { below: self.below.clone(), settings: self.settings.clone(), opened: self.opened.clone() }
    }
}

impl<S: Store> Shared<S> {
    /// Opens every bucket of the table in `store`. Two requests for each that stands, all side by side.
    ///
    /// # Errors
    /// Which buckets cannot be used, and why; see [`BootError::is_retriable`].
    pub async fn open(env: &Env, store: &S, settings: &Settings) -> Result<Shared<S>, BootError> {
        settings.check().map_err(|error| BootError { failed: vec![error.into()] })?;
        let began = env.now();
        let answers = join_all(SLOTS.map(|slot| settings.open(store, slot))).await;
        let (mut opened, mut failed) = (Vec::with_capacity(SLOTS.len()), Vec::new());
        for (slot, answer) in SLOTS.into_iter().zip(answers) {
            match answer {
                Ok(bucket) => opened.push((slot, bucket)),
                Err(error) => failed.push(error),
            }
        }
        if !failed.is_empty() {
            // What time does not mend comes first.
            failed.sort_by_key(OpenError::is_retriable);
            return Err(BootError { failed });
        }
        tracing::info!(buckets = opened.len(), took = ?env.now().since(began), "coordination_buckets_opened");
        Ok(Shared { below: store.clone(), settings: settings.clone(), opened: opened.into() })
    }

    /// Every slot with its bucket, in the order of the table. The sweep of the markers takes it as it is.
    pub fn opened(&self) -> &[(&'static Slot, S::Bucket)] {
        &self.opened
    }
}

impl<S: Store> Store for Shared<S> {
    type Bucket = S::Bucket;

    async fn open(&self, spec: &BucketSpec) -> Result<S::Bucket, OpenError> {
        self.below.open(spec).await
    }

    /// The bucket that was opened at boot, if it was opened for the same; else what the store below answers.
    async fn adopt(&self, slot: &Slot, spec: &BucketSpec) -> Result<S::Bucket, OpenError> {
        match self.opened.iter().find(|(opened, _)| self.settings.spec(opened) == *spec) {
            Some((_, bucket)) => Ok(bucket.clone()),
            None => self.below.adopt(slot, spec).await,
        }
    }
}

/// Why a node does not start: the buckets that it cannot use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BootError {
    /// Why, one for each of them; what time does not mend comes first. Each names its bucket. A setting that breaks a rule is
    /// alone, and nothing was asked then.
    pub failed: Vec<OpenError>,
}

impl BootError {
    /// Whether the same call may end otherwise with nothing changed but the time: everything that failed did so because the
    /// store could not be asked.
    pub fn is_retriable(&self) -> bool {
        self.failed.iter().all(OpenError::is_retriable)
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [OpenError::BadArgument(error)] = &self.failed[..] {
            return write!(f, "{error}");
        }
        write!(f, "{} of {} buckets cannot be used", self.failed.len(), SLOTS.len())?;
        self.failed.iter().try_for_each(|error| write!(f, "; {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use coordproto::answer::{Cause, Unknown};
    use coordproto::slot::{BUDGETS, DUTIES, EPOCHS, LEASES, LEDGER, Retention};
    use jiff::Timestamp;
    use parking_lot::Mutex;

    use super::*;
    use crate::lease::{Config, Leases};
    use crate::logged::Log;
    use crate::slots::ledger::Ledger;
    use crate::store::Bucket;
    use crate::store::memory::{Memory, MemoryBucket};

    /// A store that answers after a while, counts how often each bucket is opened, and opens none of those named `dark`.
    #[derive(Clone)]
    struct Slow {
        below: Memory,
        env: Env,
        dark: Arc<Mutex<Vec<&'static str>>>,
        asked: Arc<Mutex<BTreeMap<String, u32>>>,
        under_way: Arc<AtomicUsize>,
    }

    impl Slow {
        fn new(env: &Env) -> Slow {
            let below = Memory::new(env.clone());
            Slow { below, env: env.clone(), dark: Arc::default(), asked: Arc::default(), under_way: Arc::default() }
        }

        fn opens(&self) -> u32 {
            std::mem::take(&mut *self.asked.lock()).into_values().sum()
        }
    }

    impl Store for Slow {
        type Bucket = MemoryBucket;

        async fn open(&self, spec: &BucketSpec) -> Result<MemoryBucket, OpenError> {
            *self.asked.lock().entry(spec.name.clone()).or_default() += 1;
            self.under_way.fetch_add(1, Ordering::Relaxed);
            self.env.sleep(Duration::from_secs(1)).await;
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            let dark = self.dark.lock().iter().any(|name| spec.name.ends_with(name));
            if dark {
                return Err(Unknown::settled("open", spec.name.as_str(), Cause::Timeout).into());
            }
            self.below.open(spec).await
        }
    }

    fn settings() -> Settings {
        Settings { prefix: "b".to_owned(), replicas: 1, retention: Retention::default() }
    }

    fn lease_config() -> Config {
        Config { prefix: "b".to_owned(), ..Config::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn every_bucket_is_opened_once_and_side_by_side() {
        let env = Env::seeded(1);
        let store = Slow::new(&env);
        let began = env.now();
        let shared = Shared::open(&env, &store, &settings()).await.unwrap();
        assert_eq!(env.now().since(began), Duration::from_secs(1), "none waited for another");
        assert!(shared.opened().iter().map(|(slot, _)| *slot).eq(SLOTS));
        for (slot, bucket) in shared.opened() {
            assert_eq!(bucket.name(), format!("b_{}", slot.name));
            assert_eq!(bucket.age(), slot.age.of(&Retention::default()), "{}", slot.name);
        }
        assert_eq!(store.opens(), 21);

        // What is opened from it stands on the same buckets, and nothing is opened for it.
        let ledger = Ledger::open(&shared, &settings()).await.unwrap();
        Leases::open(env.clone(), &shared, &lease_config()).await.unwrap();
        assert_eq!(store.opens(), 0);
        let told = ledger.record("alpha", "t1", "done", Timestamp::UNIX_EPOCH).await;
        assert!(told.is_ok());
        assert_eq!(shared.opened()[5].0, &LEDGER);
        assert_eq!(
            shared.opened()[5].1.index(&coordproto::key::Filter::every(), env.now()).await.unwrap().names().count(),
            1
        );

        // What was opened for something else is not what is asked for.
        let copies = Settings { replicas: 3, ..settings() };
        assert!(matches!(
            Ledger::open(&shared, &copies).await.map(drop),
            Err(OpenError::Replicas { have: 1, want: 3, .. })
        ));
        assert_eq!(store.opens(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_cannot_be_opened_fails_the_boot_and_loses_nothing() {
        let env = Env::seeded(1);
        let store = Slow::new(&env);
        let open = async || Shared::open(&env, &store, &settings()).await.map(drop);
        *store.dark.lock() = vec!["_budgets", "_leases"];
        let dark = open().await.unwrap_err();
        assert!(dark.is_retriable(), "{dark}");
        assert_eq!(
            dark.to_string(),
            "2 of 21 buckets cannot be used; open b_leases: unknown: no answer in time; open b_budgets: unknown: no answer in time"
        );
        assert_eq!(store.under_way.load(Ordering::Relaxed), 0, "nothing is under way any more");
        for slot in SLOTS {
            let made =
                store.below.open(&BucketSpec { age: Some(Duration::from_secs(1)), ..settings().spec(slot) }).await;
            let stands = made.unwrap().age() == slot.age.of(&Retention::default());
            assert_eq!(stands, ![LEASES.name, BUDGETS.name].contains(&slot.name), "{}", slot.name);
        }

        // What stands short of copies is not mended by waiting, and is named before what may be.
        let (copies, store) = (Settings { replicas: 3, ..settings() }, Slow::new(&env));
        store.below.open(&settings().spec(&DUTIES)).await.unwrap();
        *store.dark.lock() = vec!["_budgets", "_leases"];
        let error = Shared::open(&env, &store, &copies).await.map(drop).unwrap_err();
        assert!(!error.is_retriable(), "{error}");
        let short = OpenError::Replicas { bucket: "b_duties".to_owned(), have: 1, want: 3 };
        assert_eq!((error.failed.len(), &error.failed[0]), (3, &short), "{error}");
        for named in ["3 of 21 buckets", "b_duties has 1 replica(s)", "configured for 3", "b_leases", "b_budgets"] {
            assert!(error.to_string().contains(named), "{error}");
        }
        store.dark.lock().clear();
        let error = Shared::open(&env, &store, &copies).await.map(drop).unwrap_err();
        assert_eq!(error.failed, [short]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_broker_keeps_is_refused_before_anything_is_asked() {
        let env = Env::seeded(1);
        let store = Slow::new(&env);
        let (retention, short) = (Retention::default(), Duration::from_millis(20));
        for (bad, told) in [
            (
                Retention { rate_window: short, ..retention },
                "\"60ms for slot rate, 3 rate windows\": the broker keeps records for at least 100ms",
            ),
            (Retention { reconcile_interval: short, ..retention }, "\"80ms for slot status, 4 reconcile intervals\""),
            (Retention { lease_ttl: short, ..retention }, "\"20ms for slot leases, the lease TTL\""),
        ] {
            let error =
                Shared::open(&env, &store, &Settings { retention: bad, ..settings() }).await.map(drop).unwrap_err();
            assert!(!error.is_retriable() && error.to_string().contains(told), "{error}");
        }
        let copies = Settings { replicas: 2, ..settings() };
        let error = Shared::open(&env, &store, &copies).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("replicas") && error.contains("1, 3 or 5"), "{error}");
        assert_eq!(store.opens(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn every_difference_is_told_once_and_for_every_slot() {
        let (log, _logged) = Log::begin();
        let env = Env::seeded(1);
        let found = Duration::from_secs(4 * 60 * 60);
        for slot in SLOTS {
            let store = Memory::new(env.clone());
            store.open(&BucketSpec { age: Some(found), raise_age: false, ..settings().spec(slot) }).await.unwrap();
            let shared = Shared::open(&env, &store, &settings()).await.unwrap();
            let (event, level) = match slot.age.of(&Retention::default()) {
                None => ("coord_kv_bucket_has_an_age", "ERROR"),
                Some(_) if slot.name == LEASES.name => ("coord_kv_lease_ttl_differs", "WARN"),
                Some(_) => ("coord_kv_retention_differs", "WARN"),
            };
            let lines = log.take("coord_kv_");
            let [line] = &lines[..] else { panic!("{}: {lines:?}", slot.name) };
            let bucket = format!("bucket=\"b_{}\"", slot.name);
            for part in [event, level, &bucket, "14400s"] {
                assert!(line.contains(part), "{part}: {line}");
            }
            let (_, bucket) = shared.opened().iter().find(|(opened, _)| *opened == slot).unwrap();
            assert_eq!(bucket.age(), Some(found), "{}: what is found is in force", slot.name);
            let leases = Leases::open(env.clone(), &shared, &lease_config()).await.unwrap();
            assert_eq!(leases.lease_ttl() == found, slot.name == LEASES.name);
            assert_eq!(log.take("coord_kv_"), [] as [String; 0], "{}: it is told once", slot.name);
        }
        // What is raised differs no more, and an age that is as configured is no difference.
        let store = Memory::new(env.clone());
        let hour = Some(Duration::from_secs(60 * 60));
        store.open(&BucketSpec { age: hour, raise_age: false, ..settings().spec(&DUTIES) }).await.unwrap();
        Shared::open(&env, &store, &settings()).await.unwrap();
        assert_eq!(log.take("coord_kv_"), [] as [String; 0]);
        // Leases that would never end are none.
        let store = Memory::new(env.clone());
        store.open(&BucketSpec { age: None, ..settings().spec(&LEASES) }).await.unwrap();
        let error = Shared::open(&env, &store, &settings()).await.map(drop).unwrap_err();
        assert_eq!(error.failed, [OpenError::Endless { bucket: "b_leases".to_owned() }]);
        assert_eq!(settings().spec(&EPOCHS).age, None);
    }
}
