//! Charges while the leader of the budgets is killed: what was acknowledged is counted, nothing is counted twice, and the share
//! that a seat's record is short of is named in the log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::Unknown;
use coordproto::tally::Ceilings;
use coordproto::window::{Windows, Zone};
use engine::env::Env;
use engine::slots::budgets::{Budgets, Caps, ChargeError, Counters};
use engine::store::nats::Nats;
use engine::tasks;
use futures_util::future::join_all;
use jiff::Timestamp;
use loadgen::budgets::Account;
use loadgen::report::Anomalies;
use parking_lot::Mutex;
use tests::Brokers;

use crate::{alone, definite};

const PREFIX: &str = "spent";
const STREAM: &str = "KV_spent_budgets";
const NODES: usize = 8;
const CHARGERS: usize = 24;
/// How often the leader is killed.
const KILLS: usize = 3;
/// Charges that are answered before each kill, and after the last.
const CALM: u64 = 400;
/// How long those may take, an election and a slow disk among it.
const CALM_WITHIN: Duration = Duration::from_secs(120);

const NOON: &str = "2026-09-23T12:00:00Z";

/// The log of the whole process, as far as it tells of missing shares.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Listens to everything that this process says from now on.
    fn listen() -> Log {
        let log = Log::default();
        let writer = log.clone();
        let errors = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::ERROR);
        errors.with_writer(move || writer.clone()).init();
        log
    }

    /// The shares that were said to be missing on seats of ours: the seat and the tokens.
    fn missing(&self) -> Vec<(String, u64)> {
        let text = String::from_utf8(self.0.lock().clone()).expect("UTF-8");
        let lines = text.lines().filter(|line| line.contains("coord_kv_budget_spend_uncounted"));
        let field = |line: &str, name: &str| {
            let rest = line.split(name).nth(1).unwrap_or_else(|| panic!("{name} is not in {line}"));
            rest.split_whitespace().next().expect("a value").to_owned()
        };
        lines.map(|line| (field(line, "scope=seat:"), field(line, "tokens=").parse().expect("a number"))).collect()
    }
}

fn windows() -> Windows {
    let zone = Zone::parse("timezone", "UTC").expect("a zone");
    Windows::at(NOON.parse().expect("an instant"), &zone).expect("windows")
}

fn seat(node: usize) -> String {
    format!("s{node}")
}

/// The run of all chargers.
struct Spending {
    env: Env,
    account: Mutex<Account>,
    answered: AtomicU64,
    unknown: AtomicU64,
    /// Shares that callers were told are missing.
    missing: Mutex<Vec<(String, u64)>>,
    over: AtomicBool,
}

impl Spending {
    /// Charges again and again, each time another number of tokens, until it is over.
    async fn charge(&self, charger: usize, budgets: &Budgets<Nats>, caps: Caps) {
        let (node, now): (usize, Timestamp) = (charger % NODES, NOON.parse().expect("an instant"));
        for number in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let tokens = 1 + (number * 7_919 + charger as u64 * 104_729) % 9_973;
            let answer = budgets.charge(&seat(node), tokens, &windows(), &caps, now).await;
            self.account.lock().told(node, tokens, &answer);
            match &answer {
                Ok(_) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(ChargeError::BadArgument(error)) => panic!("{error}"),
                Err(ChargeError::SeatUncounted { seat, tokens, .. }) => {
                    self.missing.lock().push((seat.to_string(), *tokens));
                }
                Err(ChargeError::Unknown(_)) => {}
            }
            if answer.is_err() {
                self.unknown.fetch_add(1, Ordering::Relaxed);
                // Without a leader it is said at once that there is none.
                self.env.sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn calm(&self, brokers: &Brokers) {
        let want = self.answered.load(Ordering::Relaxed) + CALM;
        let until = brokers.env.now() + CALM_WITHIN;
        while self.answered.load(Ordering::Relaxed) < want {
            assert!(brokers.env.now() < until, "not within {CALM_WITHIN:?}: {CALM} charges are answered");
            brokers.env.sleep(Duration::from_millis(20)).await;
        }
    }
}

#[test]
fn a_killed_leader_costs_no_acknowledged_charge_and_counts_none_twice() {
    alone(3, async |brokers| {
        let log = Log::listen();
        let settings = brokers.settings(PREFIX);
        let nodes = join_all(
            (0..NODES).map(async |_| Budgets::open(&brokers.store().await, &settings).await.expect("the bucket opens")),
        )
        .await;
        // A ceiling that is reached on the way, so that both verdicts are held against the account.
        let caps = Caps { org: Ceilings::parse([("day", 4_000_000)]).expect("a ceiling"), seat: Ceilings::default() };
        let spending = Arc::new(Spending {
            env: brokers.env.clone(),
            account: Mutex::new(Account::new(vec![caps; NODES])),
            answered: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            missing: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let chargers: Vec<_> = (0..CHARGERS)
            .map(|charger| {
                let (spending, budgets) = (spending.clone(), nodes[charger % NODES].clone());
                tasks::spawn(async move { spending.charge(charger, &budgets, caps).await })
            })
            .collect();
        for _ in 0..KILLS {
            spending.calm(brokers).await;
            brokers.leader(STREAM).await.kill().await.expect("killed");
            spending.calm(brokers).await;
            brokers.start_the_rest().await;
        }
        spending.calm(brokers).await;
        spending.over.store(true, Ordering::Relaxed);
        join_all(chargers.into_iter().map(tasks::Task::join)).await;

        let mut counters: Vec<Counters> = Vec::new();
        for node in 0..NODES {
            counters.push(definite(brokers, async || used(&nodes[0], node).await).await);
        }
        let spending = Arc::into_inner(spending).expect("everybody has ended");
        let (answered, unknown) = (spending.answered.into_inner(), spending.unknown.into_inner());
        let mut missing = spending.missing.into_inner();
        println!("{answered} charges answered, {unknown} unknown, {} of them missing on a seat", missing.len());
        let own: Vec<u64> = counters.iter().map(|counters| counters.seat.day.spent).collect();
        let found = spending.account.into_inner().settle(counters[0].org.day.spent, &own);
        assert_eq!(found, Anomalies::default());
        let mut logged = log.missing();
        logged.sort();
        missing.sort();
        assert_eq!(logged, missing, "every share that is missing is in the log, and nothing else");
    });
}

async fn used(budgets: &Budgets<Nats>, node: usize) -> Result<Counters, Unknown> {
    match budgets.used(&seat(node), &windows()).await {
        Ok(counters) => Ok(counters),
        Err(error) => Err(error.unknown().cloned().expect("a good handle")),
    }
}
