//! Claims: who is granted, who is refused, and what stays as it was.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use coordproto::answer::{Cause, Error, Unknown};
use coordproto::key::{Class, KEY_BYTES_MAX, Resource};
use coordproto::slot::DUTY_TTL_MAX;
use engine::lease::{Claim, Lease, Refusal, Release, Renew, Terms};
use engine::store::{Certified, Store};
use engine::tasks;
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::{Fixture, class, eventually, held, refused, resource, terms};

/// Expects the tenure after another. Where a commit takes as long as a short lease lasts, its claim begins anew, at a later
/// epoch.
fn assert_follows<S>(t: &Fixture<S>, next: &Lease, before: &Lease) {
    let (next, least) = (next.epoch(), before.epoch() + 1);
    assert!(if t.leaps { next == least } else { next >= least }, "{}: {next} after {}", before.resource(), least - 1);
}

/// A resource that nobody ever held is granted at epoch 1, and reads as held.
pub async fn a_fresh_resource_is_granted_at_epoch_one<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "node:n1", "worker:scheduler", "move:7"] {
        let lease = held(&leases, &terms(&leases, name, "n1:1")).await;
        assert_eq!(lease.epoch(), 1, "{name}");
        let view = leases.get(&resource(name)).await.unwrap().expect("held");
        assert_eq!((view.owner.as_str(), view.epoch), ("n1:1", 1), "{name}");
    }
}

/// A resource that nobody holds reads as free.
pub async fn a_free_resource_reads_as_none<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    assert_eq!(leases.get(&resource("seat:a")).await.unwrap(), None);
    assert_eq!(leases.get(&resource("worker:a")).await.unwrap(), None);
    assert_eq!(leases.list(&class("seat"), &Certified::Leader).await.unwrap(), []);
    assert_eq!(leases.list(&class("worker"), &Certified::Leader).await.unwrap(), []);
}

/// A held resource refuses a peer, names the holder, and is not touched.
pub async fn a_peer_is_refused_and_told_by_whom<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "worker:a"] {
        held(&leases, &terms(&leases, name, "n1:1")).await;
        let before = leases.get(&resource(name)).await.unwrap();
        let refusal = refused(&leases, &terms(&leases, name, "n2:1")).await;
        assert_eq!(refusal, Refusal::Held { by: "n1:1".into(), epoch: Some(1) });
        assert_eq!(leases.get(&resource(name)).await.unwrap(), before, "a refused claim changes no field");
        assert_eq!(leases.hints(&class(resource(name).class())).await.unwrap(), []);
    }
}

/// The holder's own claim again answers the same epoch and start, with a later deadline.
pub async fn the_holders_own_claim_again_keeps_its_epoch<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "worker:a"] {
        let first = held(&leases, &terms(&leases, name, "n1:1")).await;
        let before = leases.get(&resource(name)).await.unwrap().expect("held");
        // A later deadline takes a later instant.
        t.env.sleep(Duration::from_millis(2)).await;
        let mut again = held(&leases, &terms(&leases, name, "n1:1")).await;
        let after = leases.get(&resource(name)).await.unwrap().expect("held");
        assert_eq!((again.epoch(), after.epoch), (first.epoch(), first.epoch()));
        assert_eq!(after.acquired_at, before.acquired_at);
        assert!(after.acquired_at.is_some());
        assert!(after.deadline > before.deadline);
        let mut stale = first;
        assert_eq!(leases.renew(&mut stale).await.unwrap(), Renew::Extended, "it is the same tenure");
        assert_eq!(leases.renew(&mut again).await.unwrap(), Renew::Extended);
    }
}

/// Releasing frees a resource at once, and the next tenure has the next epoch, whoever claims.
pub async fn a_released_resource_is_granted_at_the_next_epoch<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "worker:a"] {
        for (tenure, owner) in [(1, "n1:1"), (2, "n2:1"), (3, "n2:1"), (4, "n1:1")] {
            let lease = held(&leases, &terms(&leases, name, owner)).await;
            assert_eq!(lease.epoch(), tenure);
            assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
            assert_eq!(leases.get(&resource(name)).await.unwrap(), None);
        }
    }
}

/// A lapsed lease is free, and claiming it again mints a new epoch even for the same owner.
pub async fn a_lapsed_resource_is_granted_at_the_next_epoch<S: Store>(t: Fixture<S>) {
    let ttl = Duration::from_secs(1);
    let leases = t.leases_of(ttl).await;
    for (name, next) in [("seat:a", "n1:1"), ("seat:b", "n2:1"), ("worker:a", "n1:1"), ("worker:b", "n2:1")] {
        let terms = |owner: &str| Terms::new(resource(name), owner, ttl);
        let first = held(&leases, &terms("n1:1")).await;
        eventually(&t.env, "the lease lapses", || async {
            leases.get(&resource(name)).await.unwrap().is_none().then_some(())
        })
        .await;
        assert_follows(&t, &held(&leases, &terms(next)).await, &first);
    }
}

/// A lease is refused to a peer for as long as it has not lapsed, however it is asked for.
pub async fn a_live_lease_is_never_stolen<S: Store>(t: Fixture<S>) {
    let ttl = Duration::from_secs(2);
    let leases = t.leases_of(ttl).await;
    for name in ["seat:a", "worker:a"] {
        let lease = held(&leases, &Terms::new(resource(name), "n1:1", ttl)).await;
        let granted = eventually(&t.env, "a peer is granted", || async {
            let short = Terms::new(resource(name), "n2:1", Duration::from_secs(1));
            match leases.claim(&short).await {
                Ok(Claim::Held(_)) => Some(t.env.now()),
                Ok(Claim::Refused(_)) => None,
                // Every commit of it took as long as so short a lease lasts. What it wrote is given back.
                Err(Error::Unknown(Unknown { cause: Cause::Contended { .. }, .. })) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        // The holder's bound is never later than the broker's deadline.
        assert!(granted >= lease.good_until(), "{name} was granted to a peer before its holder's own bound");
    }
}

/// A duty outlives the lease TTL up to three hours, and one above is refused naming the ceiling, on every backend.
pub async fn a_duty_may_last_three_hours_and_no_longer<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let ask = |name: &str, ttl| Terms::new(resource(name), "n1:1", ttl);
    for name in ["worker:learning", "move:1", "merge:1", "bulk:1"] {
        held(&leases, &ask(name, DUTY_TTL_MAX)).await;
        let over = leases.claim(&ask(name, DUTY_TTL_MAX + Duration::from_secs(1))).await.unwrap_err();
        assert!(over.to_string().contains("at most 3 h"), "{over}");
    }
    let over = leases.claim(&ask("seat:a", leases.lease_ttl() + Duration::from_millis(1))).await.unwrap_err();
    assert!(over.to_string().contains("the age in force"), "{over}");
}

/// A lease ends at its own deadline where that is before the bucket's age.
pub async fn a_short_lease_ends_at_its_own_deadline<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let ttl = Duration::from_secs(1);
    for name in ["seat:a", "node:n1", "worker:a"] {
        let mut lease = held(&leases, &Terms::new(resource(name), "n1:1", ttl)).await;
        eventually(&t.env, "the lease lapses", || async {
            leases.get(&resource(name)).await.unwrap().is_none().then_some(())
        })
        .await;
        assert_eq!(leases.list(&class(resource(name).class()), &Certified::Leader).await.unwrap(), [], "{name}");
        assert_eq!(leases.renew(&mut lease).await.unwrap(), Renew::Lost, "{name}: a lapsed lease is not renewed");
        assert_eq!(leases.release(&lease).await.unwrap(), Release::NotHeld, "{name}");
        let next = held(&leases, &Terms::new(resource(name), "n2:1", ttl)).await;
        assert_follows(&t, &next, &lease);
    }
}

/// Any name survives byte for byte through claim, get, list and hints.
pub async fn awkward_names_survive_the_trip<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let long = "x".repeat(300);
    let longest = "y".repeat(KEY_BYTES_MAX - "seat.".len());
    let names: Vec<String> = [
        "alpha",
        " ",
        "a b",
        ".",
        "..",
        ".a",
        "a.",
        "a..b",
        "team.lead",
        "*",
        ">",
        "a.b*>",
        "a:b",
        "a/b",
        "../x",
        "a\tb",
        "a\nb",
        "a\u{0}b",
        "~",
        "+x",
        "a=b",
        "=2E",
        "🙂",
        "é",
        "e\u{301}",
        "%2e",
        "-rf",
        "\"x\"",
        "$KV",
        "Seat",
        "seat",
        "\\",
        &long,
        &longest,
    ]
    .iter()
    .map(|handle| format!("seat:{handle}"))
    .collect();
    for name in &names {
        let ask = Terms { preferred: Some("n1".into()), ..terms(&leases, name, "n1:1") };
        assert_eq!(held(&leases, &ask).await.epoch(), 1, "{name:?} is a resource of its own");
        assert_eq!(leases.get(&resource(name)).await.unwrap().expect("held").resource.name(), name);
    }
    let expected: HashSet<&str> = names.iter().map(String::as_str).collect();
    let listed = leases.list(&class("seat"), &Certified::Leader).await.unwrap();
    assert_eq!(listed.iter().map(|view| view.resource.name()).collect::<HashSet<_>>(), expected);
    assert_eq!(listed.len(), names.len());
    let hints = leases.hints(&class("seat")).await.unwrap();
    assert_eq!(hints.iter().map(|(r, _)| r.name()).collect::<HashSet<_>>(), expected);
}

/// A bad argument is an error of its own kind, and nothing is written.
pub async fn bad_arguments_are_refused_before_any_write<S: Store>(t: Fixture<S>) {
    let counting = engine::store::counting::Counting::new(t.store.clone());
    let leases = t.leases_on(&counting, t.config()).await;
    counting.take();
    let good = Terms::new(resource("seat:a"), "n1:1", leases.lease_ttl());
    for bad in [
        Terms { owner: String::new(), ..good.clone() },
        Terms { preferred: Some(String::new()), ..good.clone() },
        Terms { ttl: Duration::ZERO, ..good.clone() },
        Terms { ttl: Duration::from_micros(1_999), ..good.clone() },
        Terms { ttl: Duration::from_secs(46), ..good.clone() },
        Terms { resource: resource("protocol:3"), ..good.clone() },
        Terms { meta: Some("x".repeat(1 << 20).into()), ..good.clone() },
        Terms { owner: "x".repeat(1 << 20), ..good.clone() },
        Terms { preferred: Some("x".repeat(1 << 20)), ..good.clone() },
    ] {
        assert!(matches!(leases.claim(&bad).await, Err(Error::BadArgument(_))), "{}", bad.resource);
    }
    assert!(Class::parse(&"x".repeat(KEY_BYTES_MAX)).is_err(), "a class too long to have a member");
    for name in ["", "seat", "seat:", "seat::a", ":a", "se at:a", "*:a", &format!("seat:{}", "x".repeat(5_000))] {
        assert!(Resource::parse(name).is_err(), "{name:?}");
    }
    // Nothing is left to be given back either.
    t.env.sleep(Duration::from_millis(50)).await;
    assert_eq!(counting.take().total(), 0);
    assert_eq!(
        leases.list(&class(&"x".repeat(KEY_BYTES_MAX - 2)), &Certified::Leader).await.unwrap(),
        [],
        "the longest class is asked for"
    );
    assert_eq!(held(&leases, &good).await.epoch(), 1, "the connection and the counter are as they were");
}

/// A claim that names no hint keeps the hint, and one without meta keeps the meta; hints outlive the lease.
pub async fn hints_and_meta_are_kept_until_replaced<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    let name = "seat:a";
    let bare = terms(&leases, name, "n1:1");
    let full = Terms { preferred: Some("n1".into()), meta: Some(serde_json::json!({"v": 1})), ..bare.clone() };
    let hint = |node: &str| {
        let (want, leases) = (vec![(resource(name), node.to_owned())], &leases);
        t.lists(want, move || async move { leases.hints(&class("seat")).await.unwrap() })
    };
    let seen = || async {
        let view = leases.get(&resource(name)).await.unwrap().expect("held");
        (view.preferred, view.meta)
    };

    held(&leases, &full).await;
    assert_eq!(seen().await, (Some("n1".into()), Some(serde_json::json!({"v": 1}))));
    held(&leases, &bare).await;
    assert_eq!(seen().await, (Some("n1".into()), Some(serde_json::json!({"v": 1}))), "a bare claim again keeps both");
    let moved = Terms { preferred: Some("n2".into()), meta: Some(serde_json::json!(2)), ..bare.clone() };
    let lease = held(&leases, &moved).await;
    assert_eq!(seen().await, (Some("n2".into()), Some(serde_json::json!(2))));
    hint("n2").await;
    assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
    // A release keeps it.
    hint("n2").await;
    held(&leases, &terms(&leases, name, "n3:1")).await;
    assert_eq!(seen().await, (Some("n2".into()), Some(serde_json::json!(2))), "the next tenure keeps both");
}

/// A listing holds the live leases of one class, in the order of their keys, and nothing else.
pub async fn a_class_lists_its_live_leases<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:b", "seat:a", "seat:a:b", "node:n1", "worker:a", "merge:a"] {
        held(&leases, &terms(&leases, name, "n1:1")).await;
    }
    let gone = held(&leases, &terms(&leases, "seat:gone", "n1:1")).await;
    assert_eq!(leases.release(&gone).await.unwrap(), Release::Released);
    let names = |views: Vec<engine::lease::LeaseView>| {
        views.into_iter().map(|view| view.resource.name().to_owned()).collect::<Vec<_>>()
    };
    let seats = ["seat:a", "seat:a:b", "seat:b"].map(str::to_owned).to_vec();
    t.lists(seats.clone(), || async { names(leases.list(&class("seat"), &Certified::Leader).await.unwrap()) }).await;
    assert_eq!(names(leases.list(&class("node"), &Certified::Leader).await.unwrap()), ["node:n1"]);
    assert_eq!(names(leases.list(&class("worker"), &Certified::Leader).await.unwrap()), ["worker:a"]);
    assert_eq!(names(leases.list(&class("merge"), &Certified::Leader).await.unwrap()), ["merge:a"]);
    assert_eq!(names(leases.list(&class("sea"), &Certified::Leader).await.unwrap()), Vec::<String>::new());
    held(&leases, &terms(&leases, "seat:c", "n2:1")).await;
    assert_eq!(names(leases.owned(&class("seat"), "n2:1").await.unwrap()), ["seat:c"]);
    t.lists(seats, || async { names(leases.owned(&class("seat"), "n1:1").await.unwrap()) }).await;
    assert_eq!(leases.owned(&class("seat"), "n3:1").await.unwrap(), []);
}

/// Of 32 claims at once on a fresh resource one wins, at epoch 1, and everybody else is told no.
pub async fn thirty_two_at_once_have_one_winner_at_epoch_one<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "worker:a"] {
        let claims = (0..32).map(|i| {
            let (leases, ask) = (leases.clone(), terms(&leases, name, &format!("n{i}:1")));
            tasks::spawn(async move { leases.claim(&ask).await.expect("a definite answer") })
        });
        let answers = join_all(claims.map(tasks::Task::join)).await;
        let epochs: Vec<u64> = answers
            .iter()
            .filter_map(|claim| match claim {
                Claim::Held(lease) => Some(lease.epoch()),
                Claim::Refused(_) => None,
            })
            .collect();
        assert_eq!(epochs, [1], "{name}");
    }
}

/// Sixteen claims at once by one owner: nobody is refused, and there is one epoch.
pub async fn sixteen_claims_of_one_owner_share_one_epoch<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "worker:a"] {
        let claims = (0..16).map(|_| {
            let (leases, ask) = (leases.clone(), terms(&leases, name, "n1:1"));
            tasks::spawn(async move { held(&leases, &ask).await.epoch() })
        });
        let epochs: HashSet<u64> = join_all(claims.map(tasks::Task::join)).await.into_iter().collect();
        assert_eq!(epochs.len(), 1, "{name}: {epochs:?}");
        let view = leases.get(&resource(name)).await.unwrap().expect("held");
        assert!(epochs.contains(&view.epoch), "{name}");
    }
}

/// Eight workers, 150 short tenures each: no epoch is ever given twice, and epochs only grow.
pub async fn no_epoch_is_given_to_two_owners<S: Store>(t: Fixture<S>) {
    let leases = t.leases().await;
    for name in ["seat:a", "worker:a"] {
        let given: Arc<Mutex<HashMap<u64, usize>>> = Arc::default();
        let workers = (0..8).map(|worker| {
            let (leases, given, env) = (leases.clone(), given.clone(), t.env.clone());
            let ask = terms(&leases, name, &format!("n{worker}:1"));
            tasks::spawn(async move {
                let mut tenures = 0;
                while tenures < 150 {
                    match leases.claim(&ask).await.expect("a definite answer") {
                        Claim::Refused(_) => env.sleep(env.jitter(Duration::from_millis(4))).await,
                        Claim::Held(lease) => {
                            let before = given.lock().insert(lease.epoch(), worker);
                            assert_eq!(before, None, "epoch {} was given twice", lease.epoch());
                            assert_eq!(leases.release(&lease).await.unwrap(), Release::Released);
                            tenures += 1;
                        }
                    }
                }
            })
        });
        join_all(workers.map(tasks::Task::join)).await;
        assert_eq!(given.lock().len(), 8 * 150, "{name}");
    }
}
