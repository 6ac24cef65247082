//! The activation pointer and the body that travels with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coordproto::answer::{BadArgument, Cause, Error, Landing, Unknown};
use coordproto::key::Key;
use coordproto::record::config::{Origin, PointerRecord, Proposal, bodies, body_key, pointer_key};
use coordproto::slot::CONFIG;
use engine::lease::Renew;
use engine::slots::config::{Activation, Activations, Payload, Target};
use engine::store::faulty::{Call, Fault, Faulty, Verb};
use engine::store::{Bucket, Expect, Put, Store, VALUE_BYTES_MAX, Write};
use engine::tasks;
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::{Fixture, before_it_goes_on, eventually, held, terms};

const FIRST: &str = "2026-01-02T03:04:06Z";

async fn activations<S: Store>(t: &Fixture<S>) -> Activations<S> {
    on(t, &t.store).await
}

async fn on<S: Store, T: Store>(t: &Fixture<S>, store: &T) -> Activations<T> {
    Activations::open(store, &t.settings()).await.expect("the bucket opens")
}

/// Activations whose every step is held back for a while of its own, so that they overtake each other on every store.
async fn jostled<S: Store>(t: &Fixture<S>) -> Activations<Faulty<S>> {
    let env = t.env.clone();
    on(t, &Faulty::new(t.store.clone(), t.env.clone(), move |_| Fault::Delay(env.jitter(Duration::from_millis(5)))))
        .await
}

/// The bucket below, to see and to write what this family does not.
async fn bucket<S: Store>(t: &Fixture<S>) -> S::Bucket {
    t.settings().open(&t.store, &CONFIG).await.expect("the bucket opens")
}

/// The keys of the bodies that are kept.
async fn kept<B: Bucket>(bucket: &B) -> Vec<Key> {
    bucket.index(&bodies(), bucket.deadline()).await.expect("an index").keys().collect()
}

async fn stored<B: Bucket>(bucket: &B, key: &Key, write: Write) -> u64 {
    match bucket.put(key, write, Expect::Any).await.expect("a definite answer") {
        Put::Stored(revision) => revision,
        Put::Lost(race) => panic!("{race:?}"),
    }
}

fn origin(author: &str) -> Origin {
    let created_at = "2026-01-02T03:04:05Z".parse().expect("an instant");
    Origin { author: author.to_owned(), author_kind: "operator".to_owned(), source: "api".to_owned(), created_at }
}

fn proposal(revision: &str) -> Proposal {
    Proposal::new(revision, origin("ada"))
}

fn expecting(revision: &str, expect: &str) -> Proposal {
    Proposal { expect: Some(expect.to_owned()), ..proposal(revision) }
}

fn only_first(revision: &str) -> Proposal {
    Proposal { expect_absent: true, ..proposal(revision) }
}

/// What a revision's body is, for a test that has one for each.
fn body(revision: &str) -> Bytes {
    format!("sealed {revision}").into()
}

async fn activate<S: Store>(a: &Activations<S>, proposal: &Proposal) -> Result<Activation, Error> {
    a.activate(proposal, body(&proposal.revision), FIRST.parse().expect("an instant")).await
}

/// Activates, and expects to.
async fn activated<S: Store>(a: &Activations<S>, proposal: &Proposal) -> Target {
    match activate(a, proposal).await.expect("a definite answer") {
        Activation::Activated(target) => target,
        Activation::Lost(target) => panic!("{} stands", target.revision),
    }
}

/// What stands is this, with its body, and no other body is kept.
async fn stands<S: Store>(t: &Fixture<S>, want: &Target, bytes: &Bytes) {
    let a = activations(t).await;
    assert_eq!(a.target().await.unwrap().as_ref(), Some(want));
    assert_eq!(a.payload(&want.revision).await.unwrap(), Payload::Body(bytes.clone()));
    keeps(t, &bucket(t).await, 1).await;
}

/// So many bodies are kept: only the current revision's, when nothing is under way. What is erased has its time, and a purge
/// may be carried out after that.
async fn keeps<S: Store>(t: &Fixture<S>, bucket: &S::Bucket, want: usize) {
    eventually(&t.env, "so many bodies are kept", || async { (kept(bucket).await.len() == want).then_some(()) }).await;
}

/// Nothing is current at first; an activation makes a revision current, with its body, and the one before is not kept.
pub async fn an_activation_moves_the_pointer_and_brings_its_body<S: Store>(t: Fixture<S>) {
    let a = activations(&t).await;
    assert_eq!(a.target().await.unwrap(), None);
    assert_eq!(a.payload("cfg-1").await.unwrap(), Payload::NotCurrent(None));
    assert_eq!(a.payload("").await.unwrap(), Payload::NotCurrent(None));
    let first = activated(&a, &proposal("cfg-1")).await;
    let (origin, activated_at) = (origin("ada"), FIRST.parse().unwrap());
    assert_eq!(first, Target { revision: "cfg-1".to_owned(), epoch: first.epoch, origin, activated_at });
    stands(&t, &first, &body("cfg-1")).await;
    assert_eq!(a.payload("cfg-2").await.unwrap(), Payload::NotCurrent(Some(first.clone())));
    let second = activated(&a, &proposal("cfg 2/é.x")).await;
    assert!(second.epoch > first.epoch);
    stands(&t, &second, &body("cfg 2/é.x")).await;
    assert_eq!(a.payload("cfg-1").await.unwrap(), Payload::NotCurrent(Some(second)));
    assert_eq!(
        bucket(&t).await.get(&pointer_key()).await.unwrap().unwrap().value.map(|value| value.len() < 400),
        Some(true)
    );
}

/// An activation that breaks a rule is told the first, and nothing is asked for it. The author's label is no rule.
pub async fn an_activation_is_judged_before_anything_is_asked<S: Store>(t: Fixture<S>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Fault::None
    });
    let a = on(&t, &store).await;
    let nobody = Origin { author: String::new(), author_kind: String::new(), source: String::new(), ..origin("") };
    let both =
        Proposal { revision: String::new(), origin: nobody, expect: Some("cfg-0".to_owned()), expect_absent: true };
    let too_large = Bytes::from(vec![b'x'; VALUE_BYTES_MAX + 1]);
    let mut broken = vec![("revision", both.clone())];
    let mut next = |what, change: fn(&mut Proposal)| {
        let mut proposal = broken.last().expect("one").1.clone();
        change(&mut proposal);
        broken.push((what, proposal));
    };
    next("revision", |p| p.revision = "r".repeat(1020));
    next("author kind", |p| p.revision = "cfg-1".to_owned());
    next("source", |p| p.origin.author_kind = "node".to_owned());
    next("expectation", |p| p.origin.source = "seed".to_owned());
    next("expectation", |p| (p.expect, p.expect_absent) = (Some(String::new()), false));
    next("body", |p| p.expect = None);
    for (what, proposal) in &broken {
        let refused = a.activate(proposal, too_large.clone(), FIRST.parse().unwrap()).await;
        let Err(Error::BadArgument(refused)) = refused else { panic!("{proposal:?}: {refused:?}") };
        assert_eq!(refused.what, *what, "{refused}");
    }
    let chatty = Proposal::new("cfg-1", origin(&"a".repeat(VALUE_BYTES_MAX)));
    let refused = activate(&a, &chatty).await.unwrap_err();
    assert!(matches!(&refused, Error::BadArgument(BadArgument { what: "origin", .. })), "{refused}");
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nothing was asked");
    let (_, good) = broken.last().unwrap();
    let target = activated(&a, good).await;
    assert_eq!((&*target.origin.author, &*target.origin.author_kind), ("", "node"));
    stands(&t, &target, &body("cfg-1")).await;
}

/// The largest body that can be kept is, and a larger one is refused by size and limit. Neither costs anybody else on the
/// connection an answer.
pub async fn a_body_too_large_is_refused_and_disturbs_nobody<S: Store>(t: Fixture<S>) {
    let (a, leases) = (activations(&t).await, t.leases().await);
    let mut lease = held(&leases, &terms(&leases, "seat:alpha", "n1:1")).await;
    let renewals = tasks::spawn({
        let env = t.env.clone();
        async move {
            for _ in 0..50 {
                assert_eq!(leases.renew(&mut lease).await, Ok(Renew::Extended));
                env.sleep(Duration::from_millis(2)).await;
            }
        }
    });
    let sized = async |size: usize| a.activate(&proposal("cfg-1"), vec![7; size].into(), FIRST.parse().unwrap()).await;
    for size in [VALUE_BYTES_MAX + 1, 1_048_575, 1_048_576, 1_048_577, 8 << 20] {
        let Err(Error::BadArgument(refused)) = sized(size).await else { panic!("{size} bytes are too many") };
        assert_eq!(refused.what, "body");
        assert!(refused.given.starts_with(&format!("{size} bytes")), "{refused}");
        assert!(refused.rule.contains(&VALUE_BYTES_MAX.to_string()), "{refused}");
    }
    assert_eq!(a.target().await.unwrap(), None, "nothing of them stays");
    assert_eq!(kept(&bucket(&t).await).await, []);
    for size in [0, 1, VALUE_BYTES_MAX] {
        let Activation::Activated(target) = sized(size).await.unwrap() else { panic!("{size} bytes fit") };
        stands(&t, &target, &vec![7; size].into()).await;
    }
    renewals.join().await;
}

/// An expected revision is missed only by another one, and expected absence by any pointer. Who misses is told what stands,
/// and changes nothing.
pub async fn an_expectation_fails_against_another_pointer_only<S: Store>(t: Fixture<S>) {
    let a = activations(&t).await;
    let first = activated(&a, &expecting("cfg-1", "cfg-0")).await;
    assert_eq!(activate(&a, &only_first("cfg-2")).await.unwrap(), Activation::Lost(first.clone()));
    assert_eq!(activate(&a, &only_first("cfg-1")).await.unwrap(), Activation::Lost(first.clone()));
    assert_eq!(activate(&a, &expecting("cfg-2", "cfg-0")).await.unwrap(), Activation::Lost(first.clone()));
    assert_eq!(activate(&a, &expecting("cfg-1", "cfg-0")).await.unwrap(), Activation::Lost(first.clone()));
    stands(&t, &first, &body("cfg-1")).await;
    let again = activated(&a, &expecting("cfg-1", "cfg-1")).await;
    let second = activated(&a, &expecting("cfg-2", "cfg-1")).await;
    assert!(first.epoch < again.epoch && again.epoch < second.epoch);
    stands(&t, &second, &body("cfg-2")).await;
    // A pointer that somebody removed is none, and the epochs go on where they were.
    stored(&bucket(&t).await, &pointer_key(), Write::Removal).await;
    assert_eq!(a.target().await.unwrap(), None);
    let third = activated(&a, &only_first("cfg-3")).await;
    assert!(third.epoch > second.epoch);
    stands(&t, &third, &body("cfg-3")).await;
}

/// The same revision with the same bytes again is a new epoch, and a later instant.
pub async fn identical_bytes_again_are_a_new_epoch<S: Store>(t: Fixture<S>) {
    let a = activations(&t).await;
    let mut before = activated(&a, &proposal("cfg-1")).await;
    for _ in 0..5 {
        let again = activated(&a, &proposal("cfg-1")).await;
        assert!(again.epoch > before.epoch && again.activated_at > before.activated_at);
        stands(&t, &again, &body("cfg-1")).await;
        before = again;
    }
    // Sealed anew, the revision has other bytes, and they are what is handed out from then on.
    let sealed = Bytes::from("sealed with the new key");
    let Activation::Activated(anew) =
        a.activate(&proposal("cfg-1"), sealed.clone(), FIRST.parse().unwrap()).await.unwrap()
    else {
        panic!("it expects nothing")
    };
    stands(&t, &anew, &sealed).await;
}

/// Whatever the activating node's clock says, an activation is later than the one that it replaces, to the millisecond.
pub async fn every_activation_is_later_than_the_one_it_replaces<S: Store>(t: Fixture<S>) {
    let a = activations(&t).await;
    for (now, published) in [
        ("2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.5Z"),
        ("2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.501Z"),
        ("2026-01-02T03:04:05.5019Z", "2026-01-02T03:04:05.502Z"),
        ("2026-01-02T03:04:05.5034Z", "2026-01-02T03:04:05.5034Z"),
        ("2026-01-02T03:04:05.5039999Z", "2026-01-02T03:04:05.5044Z"),
        ("2020-01-01T00:00:00Z", "2026-01-02T03:04:05.5054Z"),
        ("2026-01-02T03:04:05.506Z", "2026-01-02T03:04:05.506Z"),
    ] {
        let told = a.activate(&proposal("cfg-1"), body("cfg-1"), now.parse().unwrap()).await.unwrap();
        let Activation::Activated(target) = told else { panic!("it expects nothing") };
        assert_eq!(target.activated_at, published.parse().unwrap(), "at {now}");
        assert_eq!(a.target().await.unwrap(), Some(target), "what is told is what is published");
    }
}

/// Of many who are to be the first, one is, and its bytes are what everybody reads, although all activate one revision.
pub async fn of_many_first_activations_one_is_and_its_body_stands<S: Store>(t: Fixture<S>) {
    let a = jostled(&t).await;
    let sealed: Vec<Bytes> = (0..16).map(|node| Bytes::from(format!("sealed by {node}"))).collect();
    let told = join_all(sealed.iter().enumerate().map(async |(node, sealed)| {
        let proposal = Proposal { origin: origin(&format!("n{node}")), ..only_first("cfg-1") };
        a.activate(&proposal, sealed.clone(), FIRST.parse().unwrap()).await.expect("a definite answer")
    }))
    .await;
    let won: Vec<usize> = (0..16).filter(|node| matches!(&told[*node], Activation::Activated(_))).collect();
    let [won] = won[..] else { panic!("{won:?} won") };
    let Activation::Activated(target) = &told[won] else { unreachable!("it won") };
    assert_eq!(target.origin.author, format!("n{won}"));
    for (node, told) in told.iter().enumerate() {
        assert!(node == won || *told == Activation::Lost(target.clone()), "{node}: {told:?}");
    }
    stands(&t, target, &sealed[won]).await;
}

/// Of many who expect the revision that is current, one replaces it; of many who expect nothing, each is current at an epoch
/// and an instant of its own, in one order.
pub async fn of_many_at_once_each_has_an_epoch_of_its_own<S: Store>(t: Fixture<S>) {
    let a = jostled(&t).await;
    activated(&a, &proposal("cfg-0")).await;
    let names: Vec<String> = (1..13).map(|i| format!("cfg-{i}")).collect();
    let told = join_all(names.iter().map(async |name| activate(&a, &expecting(name, "cfg-0")).await.unwrap())).await;
    let mut won: Vec<Target> = Vec::new();
    for told in &told {
        match told {
            Activation::Activated(target) => won.push(target.clone()),
            Activation::Lost(target) => assert_ne!(target.revision, "cfg-0"),
        }
    }
    let [first] = &won[..] else { panic!("{won:?}") };
    stands(&t, first, &body(&first.revision)).await;
    let mut told: Vec<Target> = join_all(names.iter().map(async |name| activated(&a, &proposal(name)).await)).await;
    told.sort_by_key(|target| target.epoch);
    for pair in told.windows(2) {
        assert!(pair[0].epoch < pair[1].epoch, "{pair:?}");
        assert!(pair[0].activated_at.as_millisecond() < pair[1].activated_at.as_millisecond(), "{pair:?}");
    }
    let last = told.last().unwrap();
    stands(&t, last, &body(&last.revision)).await;
}

/// While a hundred activations go by, whoever reads the pointer reads its body, whatever else goes on; and after them all, what
/// was activated last is what stands.
pub async fn a_pointer_is_never_read_without_its_body<S: Store>(t: Fixture<S>) {
    let a = jostled(&t).await;
    let mut last = activated(&a, &proposal("cfg-0")).await;
    let done = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (a, done) = (a.clone(), done.clone());
            tasks::spawn(async move {
                let (mut epoch, mut read) = (0, 0_u32);
                while done.load(Ordering::Relaxed) == 0 {
                    let target = a.target().await.expect("a definite answer").expect("a pointer");
                    assert!(target.epoch >= epoch, "{} after {epoch}", target.epoch);
                    epoch = target.epoch;
                    match a.payload(&target.revision).await.expect("a definite answer") {
                        Payload::Body(bytes) => {
                            assert_eq!(bytes, body(&target.revision));
                            read += 1;
                        }
                        Payload::NotCurrent(other) => assert!(other.expect("a pointer").epoch > epoch),
                    }
                }
                read
            })
        })
        .collect();
    for round in 1..=50 {
        let names = [format!("cfg-{round}"), "cfg-again".to_owned()];
        let told = join_all(names.iter().map(async |name| activated(&a, &proposal(name)).await)).await;
        last = told.into_iter().max_by_key(|target| target.epoch).unwrap();
    }
    done.store(1, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().await > 0);
    }
    stands(&t, &last, &body(&last.revision)).await;
}

/// The fault of the calls of this verb about a key that begins so; none of any other.
fn befalls(verb: Verb, about: &'static str, fault: Fault) -> impl FnMut(&Call<'_>) -> Fault + Send + 'static {
    move |call| if call.verb == verb && call.about.starts_with(about) { fault } else { Fault::None }
}

fn unknown(told: Result<Activation, Error>) -> Unknown {
    let unknown = told.unwrap_err().unknown().cloned().expect("unknown");
    assert_eq!((unknown.op, &*unknown.resource), ("activate", "cfg-2"), "{unknown}");
    unknown
}

/// An activation that cannot read the pointer or write its body does not happen. One whose pointer has no answer may, and says
/// so; and then it has its body. What stays of either is gone with the next.
pub async fn an_activation_without_an_answer_may_land_and_has_its_body<S: Store>(t: Fixture<S>) {
    let (faulty, b) = (Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None), bucket(&t).await);
    let f = on(&t, &faulty).await;
    for (verb, about, fault, landing, lands) in [
        (Verb::Read, "pointer", Fault::DropRequest, Landing::Settled, false),
        (Verb::Put, "body.", Fault::DropRequest, Landing::Settled, false),
        (Verb::Put, "body.", Fault::DropReply, Landing::Settled, false),
        (Verb::Put, "pointer", Fault::DropRequest, Landing::InFlight, false),
        (Verb::Put, "pointer", Fault::DropReply, Landing::InFlight, true),
    ] {
        let first = activated(&f, &proposal("cfg-1")).await;
        stands(&t, &first, &body("cfg-1")).await;
        faulty.choose(befalls(verb, about, fault));
        assert_eq!(unknown(activate(&f, &proposal("cfg-2")).await).landing, landing, "{verb:?} {about} {fault:?}");
        faulty.choose(|_| Fault::None);
        let target = f.target().await.unwrap().expect("a pointer");
        assert_eq!(target.revision, if lands { "cfg-2" } else { "cfg-1" }, "{verb:?} {about} {fault:?}");
        assert_eq!(target.epoch > first.epoch, lands);
        assert_eq!(f.payload(&target.revision).await.unwrap(), Payload::Body(body(&target.revision)));
        if lands {
            // Asked again on the same condition, it is told that its own stands.
            assert_eq!(activate(&f, &expecting("cfg-2", "cfg-1")).await.unwrap(), Activation::Lost(target));
        }
    }
    assert!(kept(&b).await.len() > 1, "the last leaves what it replaced");
    let last = activated(&f, &proposal("cfg-1")).await;
    stands(&t, &last, &body("cfg-1")).await;
}

/// A pointer that lands late finds its body there; and one that was overtaken does not land, and leaves nothing.
pub async fn a_late_pointer_has_its_body_or_does_not_land<S: Store>(t: Fixture<S>) {
    let faulty = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let (f, a) = (on(&t, &faulty).await, Arc::new(activations(&t).await));
    for overtaken in [false, true] {
        let first = activated(&f, &proposal("cfg-1")).await;
        let third = Arc::new(Mutex::new(None));
        let (meanwhile, over, stands_yet) = (a.clone(), third.clone(), first.clone());
        faulty.choose(move |call| {
            if call.verb != Verb::Put || !call.about.starts_with("pointer") {
                return Fault::None;
            }
            before_it_goes_on(async {
                assert_eq!(meanwhile.target().await.unwrap().as_ref(), Some(&stands_yet), "not yet");
                assert_eq!(meanwhile.payload("cfg-1").await.unwrap(), Payload::Body(body("cfg-1")));
                if overtaken {
                    *over.lock() = Some(activated(&meanwhile, &expecting("cfg-3", "cfg-1")).await);
                }
            });
            Fault::Late(Duration::ZERO)
        });
        assert_eq!(unknown(activate(&f, &proposal("cfg-2")).await).landing, Landing::InFlight);
        faulty.choose(|_| Fault::None);
        eventually(&t.env, "the late write arrives", || async { (faulty.late_writes() == 0).then_some(()) }).await;
        let third = third.lock().take();
        if let Some(third) = third {
            stands(&t, &third, &body("cfg-3")).await;
        } else {
            let target = f.target().await.unwrap().expect("a pointer");
            assert!(target.revision == "cfg-2" && target.epoch > first.epoch, "{target:?}");
            assert_eq!(f.payload("cfg-2").await.unwrap(), Payload::Body(body("cfg-2")));
        }
    }
}

/// Erasing what is not current costs no answer when it fails, and the next activation makes up for it.
pub async fn what_is_not_erased_is_left_to_the_next<S: Store>(t: Fixture<S>) {
    let (faulty, b) = (Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None), bucket(&t).await);
    let f = on(&t, &faulty).await;
    activated(&f, &proposal("cfg-0")).await;
    for (verb, fault) in [
        (Verb::Index, Fault::DropRequest),
        (Verb::Index, Fault::Delay(Duration::from_secs(60))),
        (Verb::Purge, Fault::DropRequest),
        (Verb::Purge, Fault::Delay(Duration::from_secs(60))),
    ] {
        faulty.choose(befalls(verb, "", fault));
        let before = kept(&b).await.len();
        let target = activated(&f, &proposal("cfg-1")).await;
        assert_eq!(kept(&b).await.len(), before + 1, "{verb:?} {fault:?}");
        assert_eq!(f.target().await.unwrap(), Some(target));
        assert_eq!(f.payload("cfg-1").await.unwrap(), Payload::Body(body("cfg-1")));
    }
    // An attempt under way has written its body after the pointer that it is going to replace, and keeps it, although the
    // erasing comes after that.
    let before = f.target().await.unwrap().expect("a pointer").epoch;
    let below = b.clone();
    faulty.choose(move |call| {
        if call.verb == Verb::Index {
            before_it_goes_on(async {
                let moved = below.get(&pointer_key()).await.unwrap().expect("a pointer").revision;
                assert!(moved > before, "the pointer moves first");
                stored(&below, &body_key("cfg-2", "f").unwrap(), Write::Value(body("cfg-2"))).await;
            });
        }
        Fault::None
    });
    let target = activated(&f, &proposal("cfg-1")).await;
    // What went before is gone.
    keeps(&t, &b, 2).await;
    faulty.choose(|_| Fault::None);
    let pointer = b.get(&pointer_key()).await.unwrap().unwrap();
    assert_eq!(pointer.revision, target.epoch);
    let record = PointerRecord::decode(&pointer.value.unwrap()).unwrap();
    let record = PointerRecord { revision: "cfg-2".to_owned(), attempt: "f".to_owned(), ..record };
    let put = b.put(&pointer_key(), Write::Value(record.encode()), Expect::At(target.epoch)).await.unwrap();
    assert!(matches!(put, Put::Stored(_)));
    assert_eq!(f.payload("cfg-2").await.unwrap(), Payload::Body(body("cfg-2")));
    let last = activated(&f, &proposal("cfg-3")).await;
    stands(&t, &last, &body("cfg-3")).await;
}

/// A member that is behind moves no pointer, and hides no body.
pub async fn the_past_moves_no_pointer<S: Store>(t: Fixture<S>) {
    let (a, faulty) = (activations(&t).await, Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None));
    let f = on(&t, &faulty).await;
    let behind = |verb: Verb, about: &'static str, fault: Fault, mut times: usize| {
        faulty.choose(move |call| {
            let hit = call.verb == verb && call.about.starts_with(about) && times > 0;
            times -= usize::from(hit);
            if hit { fault } else { Fault::None }
        });
    };
    // It has seen the first and the second, and goes on telling of the first.
    activated(&f, &proposal("cfg-1")).await;
    f.target().await.unwrap();
    let second = activated(&a, &proposal("cfg-2")).await;
    f.target().await.unwrap();
    for times in [1, 3] {
        for (fault, proposal) in [(Fault::Stale, expecting("cfg-3", "cfg-1")), (Fault::Before, only_first("cfg-3"))] {
            behind(Verb::Read, "pointer", fault, times);
            assert_eq!(activate(&f, &proposal).await.unwrap(), Activation::Lost(second.clone()), "{times} {fault:?}");
            stands(&t, &second, &body("cfg-2")).await;
        }
        behind(Verb::Read, "pointer", Fault::Stale, times);
        assert_eq!(f.payload("cfg-1").await.unwrap(), Payload::NotCurrent(Some(second.clone())));
        behind(Verb::Read, "body.", Fault::Before, times);
        assert_eq!(f.payload("cfg-2").await.unwrap(), Payload::Body(body("cfg-2")));
    }
    for fault in [Fault::Stale, Fault::Before] {
        behind(Verb::Read, "pointer", fault, usize::MAX);
        let unknown = unknown(activate(&f, &expecting("cfg-2", "cfg-1")).await);
        assert_eq!(unknown.landing, Landing::Settled);
        assert!(matches!(unknown.cause, Cause::Contended { .. }), "{unknown}");
    }
    behind(Verb::Read, "body.", Fault::Before, usize::MAX);
    let lost = f.payload("cfg-2").await.unwrap_err();
    assert_eq!((lost.op, &*lost.resource, lost.landing), ("payload", "cfg-2", Landing::Settled), "{lost}");
    stands(&t, &second, &body("cfg-2")).await;
    // Whoever is told of what was current moves what is, once it learns of it.
    behind(Verb::Read, "pointer", Fault::Stale, 2);
    let third = activated(&f, &proposal("cfg-3")).await;
    assert!(third.activated_at > second.activated_at);
    stands(&t, &third, &body("cfg-3")).await;
}

/// A pointer that cannot be read is unknown in every answer, and nothing is written over it; a read that is lost is too.
pub async fn an_unreadable_pointer_is_unknown_and_stays<S: Store>(t: Fixture<S>) {
    let (a, b) = (activations(&t).await, bucket(&t).await);
    let first = activated(&a, &proposal("cfg-2")).await;
    let whole = b.get(&pointer_key()).await.unwrap().unwrap().value.unwrap();
    let nobody = String::from_utf8(whole.to_vec()).unwrap().replace("operator", "");
    for broken in [Bytes::from("garbage"), Bytes::new(), nobody.into()] {
        let revision = stored(&b, &pointer_key(), Write::Value(broken)).await;
        for doubt in [
            unknown(activate(&a, &proposal("cfg-2")).await),
            a.target().await.unwrap_err(),
            a.payload("cfg-2").await.unwrap_err(),
        ] {
            assert!(matches!(doubt.cause, Cause::Undecodable(_)), "{doubt}");
            assert_eq!(doubt.landing, Landing::Settled, "{doubt}");
        }
        assert_eq!(b.get(&pointer_key()).await.unwrap().unwrap().revision, revision);
        assert_eq!(kept(&b).await.len(), 1, "no body was written");
    }
    let corrected = stored(&b, &pointer_key(), Write::Value(whole)).await;
    stands(&t, &Target { epoch: corrected, ..first }, &body("cfg-2")).await;
    for fault in [Fault::DropRequest, Fault::DropReply] {
        let f = on(&t, &Faulty::new(t.store.clone(), t.env.clone(), move |_| fault)).await;
        assert_eq!(f.target().await.unwrap_err().op, "target");
        assert_eq!(f.payload("cfg-2").await.unwrap_err().op, "payload");
    }
    // A body that somebody removed is unknown, and the next activation brings it again.
    let [body_at] = &kept(&b).await[..] else { panic!("one body") };
    assert_eq!(b.purge(body_at, corrected).await.unwrap(), 1);
    let lost = a.payload("cfg-2").await.unwrap_err();
    assert!(matches!(&lost.cause, Cause::Garbage(what) if what.contains("body")), "{lost}");
    let last = activated(&a, &proposal("cfg-2")).await;
    stands(&t, &last, &body("cfg-2")).await;
}
