//! What only a seed or the log shows: many histories of faults on a clock that leaps, and the event of a missing share.

use std::time::Duration;

use coordproto::answer::Landing;
use coordproto::slot::Retention;
use coordproto::window::Zone;
use futures_util::future::join_all;

use super::*;
use crate::env::Env;
use crate::logged::Log;
use crate::store::faulty::{Fault, Faulty, Odds, Verb};
use crate::store::memory::Memory;

const NOON: &str = "2026-09-23T12:00:00Z";

fn settings() -> Settings {
    Settings { prefix: "b".to_owned(), replicas: 1, retention: Retention::default() }
}

fn windows() -> Windows {
    Windows::at(NOON.parse().unwrap(), &Zone::parse("timezone", "UTC").unwrap()).unwrap()
}

async fn charge<S: Store>(budgets: &Budgets<S>, seat: &str, tokens: u64) -> Result<Charge, ChargeError> {
    budgets.charge(seat, tokens, &windows(), &Caps::default(), NOON.parse().unwrap()).await
}

/// Charges of several nodes on one seat through every fault there is, each a digit of base 4 in the sum, which tells how
/// often it was counted. Some callers go away.
async fn history(seed: u64, combined: bool) {
    let env = Env::seeded(seed);
    let memory = Memory::new(env.clone());
    let level = |most| env.below(most);
    let odds = Odds {
        drop_request: level(250),
        drop_reply: level(250),
        late: level(250),
        delay: level(250),
        stale: level(100),
        wait: Duration::from_millis(1 + level(60)),
    };
    let store = Faulty::seeded(memory.clone(), env.clone(), odds);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let node = if combined {
            Budgets::open(&store, &settings()).await
        } else {
            Budgets::open_uncombined(&store, &settings()).await
        };
        nodes.push(node.unwrap());
    }
    let told = join_all((0..30).map(|i| {
        let (node, env) = (&nodes[i % 3], &env);
        let (begin, patience) = (env.jitter(Duration::from_millis(80)), env.jitter(Duration::from_millis(400)));
        async move {
            env.sleep(begin).await;
            env.within(env.now() + patience, charge(node, "a", 1 << (2 * i))).await.ok()
        }
    }))
    .await;
    // What goes on without its caller ends by itself.
    env.sleep(Duration::from_secs(60)).await;
    assert_eq!(store.late_writes(), 0);
    let direct = Budgets::open(&memory, &settings()).await.unwrap();
    let used = direct.used("a", &windows()).await.unwrap();
    for (i, told) in told.iter().enumerate() {
        let times = |usage: &Usage| (usage.month.spent >> (2 * i)) & 3;
        let (org, seat) = (times(&used.org), times(&used.seat));
        let holds = match told {
            Some(Ok(_)) => (org, seat) == (1, 1),
            Some(Err(ChargeError::Unknown(unknown))) if unknown.landing == Landing::Settled => (org, seat) == (0, 0),
            Some(Err(ChargeError::Unknown(_))) => org <= 1 && seat == 0,
            Some(Err(ChargeError::SeatUncounted { unknown, .. })) if unknown.landing == Landing::Settled => {
                (org, seat) == (1, 0)
            }
            Some(Err(ChargeError::SeatUncounted { .. })) => org == 1 && seat <= 1,
            Some(Err(ChargeError::BadArgument(_))) => false,
            // Nobody heard what was unknown about it.
            None => org <= 1 && seat <= org,
        };
        assert!(holds, "seed {seed}, charge {i}: counted {org} and {seat} times: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_history_counts_a_charge_twice_or_loses_one() {
    for seed in 0..300 {
        history(seed, seed % 4 > 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_before_the_write_has_charged_nothing_and_after_it_both() {
    let env = Env::seeded(1);
    let memory = Memory::new(env.clone());
    let slow = Faulty::new(memory.clone(), env.clone(), |_| Fault::Delay(Duration::from_millis(10)));
    let budgets = Budgets::open(&slow, &settings()).await.unwrap();
    // The company is read, written, and the seat is read and written: ten milliseconds each.
    for (gone_after, counted) in [(5, 0), (15, 1), (25, 1), (35, 1)] {
        let seat = format!("s{gone_after}");
        let before = budgets.used(&seat, &windows()).await.unwrap().org.day.spent;
        let until = env.now() + Duration::from_millis(gone_after);
        assert!(env.within(until, charge(&budgets, &seat, 1)).await.is_err());
        env.sleep(Duration::from_secs(1)).await;
        let used = budgets.used(&seat, &windows()).await.unwrap();
        assert_eq!((used.org.day.spent - before, used.seat.day.spent), (counted, counted), "after {gone_after} ms");
    }
    assert!(budgets.counter.is_idle(), "nothing is kept of a record that nobody charges");
}

#[tokio::test(start_paused = true)]
async fn a_missing_share_is_logged_also_where_nobody_waits_for_it() {
    let (log, _logged) = Log::begin();
    let env = Env::seeded(1);
    let memory = Memory::new(env.clone());
    let seat_of = |about: &str| about.starts_with("seat");
    let store = Faulty::new(memory, env.clone(), move |call| match call.verb {
        Verb::Put if seat_of(call.about) => Fault::DropRequest,
        _ => Fault::Delay(Duration::from_millis(10)),
    });
    let budgets = Budgets::open(&store, &settings()).await.unwrap();
    let until = env.now() + Duration::from_millis(25);
    assert!(env.within(until, charge(&budgets, "alpha", 7)).await.is_err(), "the caller has gone away");
    env.sleep(Duration::from_secs(60)).await;
    let used = budgets.used("alpha", &windows()).await.unwrap();
    assert_eq!((used.org.day.spent, used.seat.day.spent), (7, 0));
    let lines = log.take("coord_kv_budget_spend_uncounted");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    for part in ["ERROR", "scope=seat:alpha", "tokens=7", "may still land"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}
