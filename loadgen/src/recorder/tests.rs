use coordproto::answer::{Cause, Unknown};
use coordproto::key::Resource;

use super::*;
use crate::histogram::Percentiles;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn recorder() -> (Recorder, Op, Mono) {
    let origin = Env::seeded(1).now();
    let mut recorder = Recorder::new(origin);
    let op = recorder.declare("renew");
    (recorder, op, origin)
}

fn only(recorder: &Recorder) -> Snapshot {
    let mut all = recorder.snapshot();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn within(value: Option<u64>, expected: Duration, percent: u64) {
    let (value, expected) = (value.unwrap(), expected.as_nanos() as u64);
    assert!(value.abs_diff(expected) * 100 <= expected * percent, "{value} is not {expected} ns within {percent} %");
}

/// 1,000 a second for ten seconds, 1 ms each, and one stall of two seconds in which nothing can be sent.
#[test]
fn a_stall_is_in_the_corrected_latency_and_not_in_the_service_latency() {
    let (recorder, op, origin) = recorder();
    recorder.measure_from(origin);
    let (stall_from, stall_to) = (origin + S * 5, origin + S * 7);
    for intended in (0..10_000).map(|i| origin + MS * i) {
        let sent = if intended >= stall_from && intended < stall_to { stall_to } else { intended };
        op.arrival(intended).start(sent).finish(Outcome::Ok, sent + MS, 1);
    }

    let renew = only(&recorder).measured;
    let latency = renew.latency(&[Outcome::Ok, Outcome::Refused]);
    let corrected = Percentiles::from(&latency.corrected);
    assert_eq!(corrected.count, 10_000);
    assert_eq!(corrected.p50_ns, Some(1_000_000));
    within(corrected.p90_ns, S, 1);
    within(corrected.p99_ns, MS * 1900, 1);
    within(corrected.p99_9_ns, MS * 1990, 1);
    assert_eq!(corrected.max_ns, Some(2_001_000_000));
    let service = Percentiles::from(&latency.service);
    assert_eq!(
        service,
        Percentiles {
            count: 10_000,
            p50_ns: Some(1_000_000),
            p90_ns: Some(1_000_000),
            p99_ns: Some(1_000_000),
            p99_9_ns: Some(1_000_000),
            max_ns: Some(1_000_000),
        }
    );
    // The generator was what stood still, and its own lateness says so.
    let lateness = Percentiles::from(&renew.lateness);
    assert_eq!((lateness.count, lateness.p50_ns, lateness.max_ns), (10_000, Some(1_000), Some(2_000_000_000)));
    // From 2 s down to 1 ms, of two thousand.
    assert_eq!(recorder.late(), (MS * 2_001_000, 10_000));
}

#[test]
fn every_arrival_is_accounted_for() {
    let (recorder, op, origin) = recorder();
    recorder.measure_from(origin);
    drop(op.arrival(origin));
    drop(op.arrival(origin).start(origin));
    let in_flight = op.arrival(origin).start(origin);
    for (outcome, times) in Outcome::ALL.into_iter().zip(1..) {
        for _ in 0..times {
            op.arrival(origin).start(origin).finish(outcome, origin + MS, 2);
        }
    }
    let counts = only(&recorder).measured.counts;
    assert_eq!(counts, Counts { scheduled: 13, started: 12, outcomes: [1, 2, 3, 4] });
    assert_eq!((counts.dropped(), counts.in_flight(), counts.ended()), (1, 2, 10));
    assert_eq!(recorder.totals(), counts);
    in_flight.finish(Outcome::Ok, origin + S, 1);
    let measured = only(&recorder).measured;
    assert_eq!((measured.counts.in_flight(), measured.requests), (1, 21));
}

/// Half of all are errors: they are counted and timed apart, and no throughput.
#[test]
fn errors_are_no_throughput_and_hurry_no_percentile() {
    let (recorder, op, origin) = recorder();
    recorder.measure_from(origin);
    for i in 0..2000 {
        let (at, outcome) = (origin + MS * i, if i % 2 == 0 { Outcome::Ok } else { Outcome::Error });
        let took = if outcome == Outcome::Ok { MS * 20 } else { MS / 10 };
        op.arrival(at).start(at).finish(outcome, at + took, 1);
    }
    let measured = only(&recorder).measured;
    assert_eq!(measured.counts.outcomes, [1000, 0, 0, 1000]);
    let definite = Percentiles::from(&measured.latency(&[Outcome::Ok, Outcome::Refused]).corrected);
    assert_eq!((definite.count, definite.p50_ns), (1000, Some(20_000_000)));
    let blocks = measured.blocks(S);
    let answered: u64 = blocks.iter().flat_map(|block| block.ok.values().chain(block.refused.values())).sum();
    assert_eq!((blocks.iter().map(|block| block.ended).sum::<u64>(), answered), (2000, 1000));
    let seconds = measured.over_time(S);
    assert_eq!(seconds.iter().map(|point| point.outcomes[Outcome::Ok as usize]).sum::<u64>(), 1000);
}

/// Instants that go back, which a monotonic clock has none of, would be no negative latency and no panic.
#[test]
fn no_latency_is_negative() {
    let (recorder, op, origin) = recorder();
    recorder.measure_from(origin);
    op.arrival(origin + S).start(origin).finish(Outcome::Ok, origin + MS, 1);
    op.arrival(origin + S).start(origin + S * 2).finish(Outcome::Ok, origin, 1);
    let measured = only(&recorder).measured;
    let latency = measured.latency(&[Outcome::Ok]);
    assert_eq!((latency.corrected.count(), latency.corrected.max()), (2, Some(Duration::ZERO)));
    assert_eq!((latency.service.max(), measured.lateness.max()), (Some(MS), Some(S)));
}

#[test]
fn an_answer_is_counted_as_what_it_is() {
    let of = |answer: Result<u32, Error>| Outcome::of(&answer, |value| *value > 0);
    let unknown = Unknown::settled("get", "seat:a", Cause::Timeout);
    let bad = Resource::parse("no kind").unwrap_err();
    assert_eq!((of(Ok(1)), of(Ok(0))), (Outcome::Ok, Outcome::Refused));
    assert_eq!((of(Err(unknown.into())), of(Err(bad.into()))), (Outcome::Unknown, Outcome::Error));
}

#[test]
fn outcomes_do_not_share_their_latencies() {
    let (recorder, op, origin) = recorder();
    recorder.measure_from(origin);
    for (outcome, wait) in Outcome::ALL.into_iter().zip([MS, MS * 2, S * 5, S * 70]) {
        op.arrival(origin).start(origin).finish(outcome, origin + wait, 1);
    }
    let measured = only(&recorder).measured;
    let of = |outcomes: &[Outcome]| {
        let corrected = measured.latency(outcomes).corrected;
        (corrected.count(), corrected.max().unwrap(), corrected.overflow())
    };
    assert_eq!(of(&[Outcome::Ok, Outcome::Refused]), (2, MS * 2, 0), "an error is no throughput and no latency");
    assert_eq!(of(&[Outcome::Unknown]), (1, S * 5, 0));
    assert_eq!(of(&[Outcome::Error]), (1, S * 70, 1));
    assert_eq!(measured.unknown_between, Some((S * 5, S * 5)));
}

#[test]
fn warm_up_is_counted_apart() {
    let (recorder, op, origin) = recorder();
    let run = |intended: Mono, wait: Duration| {
        op.arrival(intended).start(intended).finish(Outcome::Ok, intended + wait, 1);
    };
    run(origin, S);
    recorder.measure_from(origin + S * 5);
    (1..5000).for_each(|i| run(origin + MS * i, S));
    (5000..10_000).for_each(|i| run(origin + MS * i, MS));
    let all = only(&recorder);
    assert_eq!(all.warmup, Counts { scheduled: 5000, started: 5000, outcomes: [5000, 0, 0, 0] });
    assert_eq!(all.measured.counts, all.warmup);
    let corrected = all.measured.latency(&[Outcome::Ok]).corrected;
    assert_eq!((corrected.count(), corrected.max()), (5000, Some(MS)));
    assert_eq!((all.measured.lateness.count(), recorder.late()), (5000, (Duration::ZERO, 10_000)));
    let over_time = all.measured.over_time(S);
    assert_eq!(over_time[..5], [Point::default(); 5], "operations that ended late in the warm-up are not in it");
}

#[tokio::test(start_paused = true)]
async fn a_paused_generator_is_late_and_the_server_is_not_slow() {
    let env = Env::seeded(1);
    let mut recorder = Recorder::new(env.now());
    let op = recorder.declare("get");
    recorder.measure_from(env.now());
    let watch = engine::tasks::spawn(recorder.watch_for_stalls(env.clone()));
    env.sleep(MS * 105).await;
    let started = op.arrival(env.now()).start(env.now());
    // Time passes without anything of this process running, as between SIGSTOP and SIGCONT.
    tokio::time::advance(S * 10).await;
    started.finish(Outcome::Ok, env.now(), 1);
    env.sleep(MS * 50).await;
    let get = only(&recorder).measured;
    let latency = get.latency(&[Outcome::Ok]);
    assert_eq!(latency.corrected.max(), Some(S * 10));
    assert!(latency.service.max().unwrap() < MS * 30, "{:?}", latency.service.max());
    assert_eq!(get.spanned_stall, 1);
    let stalls = recorder.stalls();
    assert_eq!(stalls.count, 1);
    assert!(stalls.total >= S * 10, "{stalls:?}");
    drop(watch);
}

#[test]
fn shared_between_threads_nothing_is_lost() {
    let (recorder, op, origin) = recorder();
    recorder.measure_from(origin);
    let threads = (0..4).map(|_| {
        let op = op.clone();
        let work = move || {
            for i in 0..10_000 {
                op.arrival(origin + MS * i).start(origin + MS * i).finish(Outcome::Ok, origin + MS * (i + 1), 1);
            }
        };
        engine::tasks::thread("recording", work).unwrap()
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let measured = only(&recorder).measured;
    assert_eq!(measured.counts, Counts { scheduled: 40_000, started: 40_000, outcomes: [40_000, 0, 0, 0] });
    let latency = measured.latency(&[Outcome::Ok]);
    assert_eq!((latency.corrected.count(), latency.service.count()), (40_000, 40_000));
    assert_eq!(measured.over_time(S).iter().map(|point| point.outcomes[0]).sum::<u64>(), 40_000);
}

#[test]
fn a_name_declared_twice_is_one_operation() {
    let (mut recorder, op, origin) = recorder();
    let again = recorder.declare("renew");
    drop(op.arrival(origin));
    drop(again.arrival(origin));
    assert_eq!(only(&recorder).warmup.scheduled, 2);
}
