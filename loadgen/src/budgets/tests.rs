//! Whole runs on the memory twin, on a clock that waits for nobody.

use engine::slots::budgets::Budgets;
use engine::store::faulty::{Call, Fault, Faulty, Odds, Verb};
use engine::store::memory::Memory;

use super::*;
use crate::recorder::Counts;
use crate::report::{Findings, Verdict};
use crate::scenario::{Scenario, Start};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn params() -> Params {
    Params { chargers: vec![8, 40], nodes: 4, ways: Way::ALL.to_vec(), rounds: Some(50), duration: S * 60 }
}

/// A store in which everything takes a millisecond.
fn store(env: &Env) -> Faulty<Memory> {
    Faulty::new(Memory::new(env.clone()), env.clone(), |_: &Call<'_>| Fault::Delay(MS))
}

async fn run<St: Store>(env: &Env, params: Params, store: St, interrupt: impl Future<Output = ()>) -> (Charging, Ran) {
    let start = Start { env: env.clone(), origin: env.now(), prefix: "t".into(), replicas: 1 };
    let charging = Charging::new(params, start);
    let clients = charging.open(async |_| Ok::<_, OpenError>(store.clone())).await.unwrap();
    let ran = charging.run(clients, interrupt).await;
    (charging, ran)
}

fn counts(charging: &Charging, way: Way) -> Counts {
    let name = format!("charge/{}", way.name());
    let all = charging.recorder.snapshot();
    all.into_iter().find(|op| op.name == name).unwrap().measured.counts
}

const WENT: Ran = Ran { interrupted: false, brought_up: true, came_to: () };

#[tokio::test(start_paused = true)]
async fn every_charge_is_counted_and_judged_in_every_way() {
    let env = Env::seeded(42);
    let (charging, ran) = run(&env, params(), store(&env), std::future::pending()).await;
    assert_eq!((ran, charging.anomalies()), (WENT, Anomalies::default()));
    for way in Way::ALL {
        let counts = counts(&charging, way);
        assert_eq!((counts.scheduled, counts.ended()), (50 * 48, 50 * 48), "{way:?}");
        for chargers in [8, 40] {
            let came_to = charging.tally.of(chargers, way);
            assert_eq!((came_to.rounds, came_to.answered() + came_to.unknown), (50, 50 * chargers as u64));
            assert!(came_to.admitted > 0 && came_to.refused > 0, "{way:?}: the ceilings are reached: {came_to:?}");
            assert_eq!(came_to.unknown, came_to.exhausted, "{way:?}");
        }
    }
    let [combined, uncombined, plain] = Way::ALL.map(|way| charging.tally.of(40, way));
    assert_eq!((combined.unknown, uncombined.unknown), (0, 0));
    assert!(combined.requests * 3 < uncombined.requests, "{} of {}", combined.requests, uncombined.requests);
    assert!(combined.busy * 3 < plain.busy, "{:?} of {:?}", combined.busy, plain.busy);
    let reported = charging.tally.reported(&charging.params);
    assert_eq!(reported[1]["ways"]["combined"]["admitted"], combined.admitted);
    let times = &reported[1]["ways"]["combined"]["times"];
    let blocks = |way: &str| times[way].as_array().unwrap().len();
    assert_eq!((blocks("uncombined"), blocks("plain")), (7, 7), "fifty rounds are seven turns of each: {times}");
}

/// Every node charges once a round, all on one record: nobody runs out of attempts, few attempts are lost, and by the clock of
/// the test it takes two thirds of what it takes those who only wait when they lost.
#[tokio::test(start_paused = true)]
async fn nodes_that_meet_write_in_turns() {
    let env = Env::seeded(42);
    let params =
        Params { chargers: vec![32], nodes: 32, ways: vec![Way::Combined, Way::Plain], rounds: Some(40), ..params() };
    let (charging, ran) = run(&env, params, store(&env), std::future::pending()).await;
    assert_eq!((ran, charging.anomalies()), (WENT, Anomalies::default()));
    let [combined, plain] = [Way::Combined, Way::Plain].map(|way| charging.tally.of(32, way));
    let charges = 40 * 32;
    for (way, came_to) in [("turns", &combined), ("plain", &plain)] {
        let Charges { requests, attempts, exhausted, busy, .. } = came_to;
        println!("{way}: {requests} requests, {attempts} attempts, {exhausted} exhausted, {busy:?}");
    }
    assert_eq!(combined.unknown, 0);
    assert!(combined.attempts < charges * 4, "one on the seat, and less than two that are lost");
    assert!(combined.busy * 3 < plain.busy * 2, "{:?} of {:?}", combined.busy, plain.busy);
}

/// Whatever is lost, late, delayed or from the past: what is unknown is counted whole or not at all.
#[tokio::test(start_paused = true)]
async fn what_is_unknown_is_no_anomaly() {
    let mut unknown = 0;
    for seed in 0..10 {
        let env = Env::seeded(seed);
        let odds = Odds {
            drop_request: 100,
            drop_reply: 100,
            late: 100,
            delay: 200,
            stale: 0,
            wait: Duration::from_millis(30),
        };
        let store = Faulty::seeded(Memory::new(env.clone()), env.clone(), odds);
        let params = Params { chargers: vec![12], rounds: Some(20), ..params() };
        let (charging, ran) = run(&env, params, store, std::future::pending()).await;
        assert_eq!((ran, charging.anomalies()), (WENT, Anomalies::default()), "seed {seed}");
        unknown += Way::ALL.map(|way| charging.tally.of(12, way).unknown).iter().sum::<u64>();
    }
    assert!(unknown > 0, "the faults show");
}

/// A charge that no charger made is found, in whichever record it is.
#[tokio::test(start_paused = true)]
async fn a_charge_too_many_fails_the_run() {
    for seat in [None, Some("s0001")] {
        let env = Env::seeded(42);
        let store = store(&env);
        let params = Params { ways: vec![Way::Combined], rounds: None, duration: S * 10, ..params() };
        let stranger = async {
            env.sleep(S).await;
            let settings = Settings { prefix: "t_combined".into(), replicas: 1, retention: Retention::default() };
            let budgets = Budgets::open(&store, &settings).await.unwrap();
            let windows = Windows::at(FIRST_DAY.parse().unwrap(), &Zone::parse("timezone", "UTC").unwrap()).unwrap();
            match seat {
                None => budgets.post_charge_org(1, &windows).await.map(drop).unwrap(),
                Some(seat) => budgets.post_charge_seat(seat, 1, &windows).await.map(drop).unwrap(),
            }
            std::future::pending().await
        };
        let (charging, ran) = run(&env, params, store.clone(), stranger).await;
        assert_eq!(ran, WENT);
        let found = charging.anomalies();
        assert_eq!(found, Anomalies { budget_miscounted: 1, ..Anomalies::default() }, "{seat:?}");
        assert_eq!(Findings::from(found).verdict(), Verdict::Failed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interruption_ends_it_with_what_was_counted() {
    let env = Env::seeded(42);
    let params = Params { rounds: None, duration: S * 3600, ..params() };
    let (charging, ran) = run(&env, params, store(&env), env.sleep(S * 5)).await;
    assert_eq!((ran, charging.anomalies()), (Ran { interrupted: true, ..WENT }, Anomalies::default()));
    assert!(charging.tally.of(8, Way::Combined).answered() > 0);
    assert_eq!(charging.recorder.totals().in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_is_shared_by_the_numbers_of_chargers() {
    let env = Env::seeded(42);
    let params = Params { rounds: None, duration: S * 20, ..params() };
    let began = env.now();
    let (charging, ran) = run(&env, params, store(&env), std::future::pending()).await;
    assert_eq!((ran, charging.anomalies()), (WENT, Anomalies::default()));
    assert!((20..30).contains(&env.now().since(began).as_secs()));
    assert!([8, 40].iter().all(|chargers| charging.tally.of(*chargers, Way::Plain).answered() > 0));
}

/// A run of which nothing in one way could be verified does not end well.
#[tokio::test(start_paused = true)]
async fn a_way_that_is_never_answered_fails_the_run() {
    let env = Env::seeded(42);
    let silent = |call: &Call<'_>| match call.verb {
        Verb::Put if call.about != coordproto::key::Key::barrier().as_str() => Fault::DropRequest,
        _ => Fault::None,
    };
    let store = Faulty::new(Memory::new(env.clone()), env.clone(), silent);
    let params = Params { chargers: vec![8], ways: vec![Way::Plain], rounds: Some(2), ..params() };
    let (charging, ran) = run(&env, params, store, std::future::pending()).await;
    assert_eq!(ran, WENT);
    assert_eq!(charging.tally.of(8, Way::Plain).unknown, 16);
    assert_eq!(charging.anomalies(), Anomalies { ops_unsettled: 1, ..Anomalies::default() });
}
