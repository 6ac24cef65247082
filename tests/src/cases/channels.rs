//! Channels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coordproto::answer::{Cause, Landing};
use coordproto::record::channel::ChannelRecord;
use coordproto::slot::CHANNELS;
use engine::slots::channels::{Channel, Channels, Close, Count, FailsClosed, ListedChannel, Open, Passage};
use engine::store::faulty::{Fault, Faulty, Verb};
use engine::store::{Bucket, Store};
use futures_util::future::{join, join_all};
use jiff::Timestamp;

use crate::Fixture;
use crate::bench::{
    assert_refused, assert_undecodable, assert_unknown, bucket, counted, failing, failing_at, raw_key, stored, unknown,
};

/// Older than every record is.
const OLD: Duration = Duration::from_secs(3600);

async fn channels<S: Store>(store: &S, t: &Fixture<impl Store>) -> Channels<S> {
    Channels::open_bucket(store, &t.settings()).await.expect("the bucket opens")
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_767_322_800 + 60 * minute).expect("an instant")
}

async fn opened<S: Store>(channels: &Channels<S>, id: &str) -> Channel {
    match channels.open(id, "ada", "bob", at(0)).await.expect("a definite answer") {
        Open::Opened(channel) => channel,
        Open::Stands(channel) => panic!("{channel:?} stands"),
    }
}

async fn closed<S: Store>(channels: &Channels<S>, id: &str) -> Channel {
    match channels.close(id, at(1)).await.expect("a definite answer") {
        Close::Closed(channel) => channel,
        other => panic!("{other:?}"),
    }
}

fn ids(listed: &[ListedChannel]) -> Vec<&str> {
    listed.iter().map(|listed| &*listed.channel.id).collect()
}

async fn all_ids<S: Store>(channels: &Channels<S>) -> Vec<String> {
    channels.all_channels().await.unwrap().into_iter().map(|listed| listed.channel.id).collect()
}

/// Purges what is closed, and expects so many to go; where a member may be behind and see one open, with more than one call.
async fn purged<S: Store>(t: &Fixture<impl Store>, channels: &Channels<S>, want: u64) {
    let gone = AtomicU64::new(0);
    t.lists(want, || async {
        let told = channels.purge(Duration::ZERO).await.unwrap();
        gone.fetch_add(told, Ordering::Relaxed) + told
    })
    .await;
}

/// A duplicate open changes nothing, whatever it asks for, and is told what stands; of a closed channel too.
pub async fn a_channel_is_opened_once<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    assert_eq!(c.get("x").await.unwrap(), None);
    let first = opened(&c, "x").await;
    let record = ChannelRecord::open("ada", "bob", at(0)).unwrap();
    assert_eq!((&*first.id, &first.record), ("x", &record));
    assert_eq!(c.open("x", "eve", "cyd", at(9)).await.unwrap(), Open::Stands(first.clone()));
    assert_eq!(c.get("x").await.unwrap(), Some(first));
    let first = closed(&c, "x").await;
    assert_eq!(c.open("x", "eve", "cyd", at(9)).await.unwrap(), Open::Stands(first.clone()));
    assert_eq!(c.get("x").await.unwrap(), Some(first));
}

/// The first close's instant stays; of nothing there is no close.
pub async fn a_second_close_keeps_the_first_instant<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    assert_eq!(c.close("x", at(1)).await.unwrap(), Close::Absent);
    assert_eq!(c.get("x").await.unwrap(), None, "nothing was written");
    let open = opened(&c, "x").await;
    let first = closed(&c, "x").await;
    assert_eq!(first.record, ChannelRecord { closed_at: Some(at(1)), ..open.record });
    for minute in [0, 1, 2] {
        assert_eq!(c.close("x", at(minute)).await.unwrap(), Close::AlreadyClosed(first.clone()));
    }
    assert_eq!(c.get("x").await.unwrap(), Some(first));
}

/// Messages are counted while the channel is open, and what a newer build keeps beside is written back.
pub async fn messages_are_counted_while_it_is_open<S: Store>(t: Fixture<S>) {
    let (c, b) = (channels(&t.store, &t).await, bucket(&t, &CHANNELS).await);
    assert_eq!(c.count_message("x").await.unwrap(), Count::Absent);
    assert_eq!(c.get("x").await.unwrap(), None, "nothing was written");
    let wire = r#"{"asker":"ada","asked":"bob","opened_at":"2026-01-02T03:00:00Z","messages":4,"topic":{"v":2}}"#;
    stored(&b, &raw_key("x"), wire).await;
    for messages in 5..8 {
        let Count::Counted(channel) = c.count_message("x").await.unwrap() else { panic!("it is open") };
        assert_eq!(channel.record.messages, messages);
        assert_eq!(c.get("x").await.unwrap(), Some(channel));
    }
    let last = closed(&c, "x").await;
    assert_eq!(last.record.newer["topic"]["v"], 2);
    assert_eq!(c.count_message("x").await.unwrap(), Count::Closed(last.clone()));
    assert_eq!(c.get("x").await.unwrap(), Some(last));
}

/// Listings are in the order of the ids, and a key that no id produces is in none.
pub async fn channels_are_listed_by_id<S: Store>(t: Fixture<S>) {
    let (c, b) = (channels(&t.store, &t).await, bucket(&t, &CHANNELS).await);
    assert_eq!((c.open_channels().await.unwrap(), c.all_channels().await.unwrap()), (vec![], vec![]));
    let mut want = ["b", "a", "a.b", "a-b", "a0", "é", " ", "*", "A", "a:b", "seat_pause"].map(str::to_owned).to_vec();
    want.push("x".repeat(900));
    let mut channels = Vec::new();
    for id in &want {
        channels.push(opened(&c, id).await);
    }
    stored(&b, &raw_key("of.two"), "segments").await;
    want.sort_unstable();
    channels.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    for listed in [c.open_channels().await.unwrap(), c.all_channels().await.unwrap()] {
        assert_eq!(ids(&listed), want);
        assert!(listed.iter().zip(&channels).all(|(listed, channel)| listed.channel == *channel));
    }
    let gone = closed(&c, "a").await;
    t.lists(want.len() - 1, || async { c.open_channels().await.unwrap().len() }).await;
    t.lists(Some(gone), || async {
        let all = c.all_channels().await.unwrap();
        all.into_iter().map(|listed| listed.channel).find(|channel| channel.id == "a")
    })
    .await;
}

/// How long a channel has not changed is told by the broker's clock, and starts anew with each message.
pub async fn an_idle_channel_is_told_by_the_brokers_clock<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    opened(&c, "x").await;
    opened(&c, "y").await;
    t.env.sleep(Duration::from_millis(300)).await;
    assert!(matches!(c.count_message("x").await.unwrap(), Count::Counted(_)));
    let counted = |listed: &Vec<ListedChannel>| listed[0].channel.record.messages == 1;
    let listed = t.listed(|| async { c.open_channels().await.unwrap() }, counted).await;
    assert_eq!(ids(&listed), ["x", "y"]);
    assert!(listed[1].unchanged_for >= Duration::from_millis(300), "{listed:?}");
    assert!(listed[0].unchanged_for < listed[1].unchanged_for, "{listed:?}");
}

/// Only what is closed and old goes. It can be opened again then, and the new channel is spared.
pub async fn what_is_closed_and_old_is_purged<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    assert_eq!(c.purge(Duration::ZERO).await.unwrap(), 0);
    for id in ["a", "b", "c"] {
        opened(&c, id).await;
    }
    closed(&c, "a").await;
    closed(&c, "b").await;
    for closed_for in [OLD, Duration::MAX] {
        assert_eq!(c.purge(closed_for).await.unwrap(), 0, "none is that old");
    }
    assert_eq!(ids(&c.all_channels().await.unwrap()), ["a", "b", "c"]);
    purged(&t, &c, 2).await;
    t.lists(["c"], || all_ids(&c)).await;
    let b = bucket(&t, &CHANNELS).await;
    assert_eq!(b.get(&raw_key("a")).await.unwrap(), None, "nothing is left of it, not even a marker");
    let again = opened(&c, "a").await;
    assert_eq!(c.purge(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(c.get("a").await.unwrap(), Some(again));
}

/// A channel purged and opened again after the listing saw it closed is neither purged nor left out, whatever a member that
/// is behind says of it.
pub async fn an_earlier_channel_of_the_same_id_decides_nothing<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    let behind = failing_at(&t, Verb::Pass, Fault::Stale);
    let f = channels(&behind, &t).await;
    opened(&c, "x").await;
    closed(&c, "x").await;
    f.get("x").await.unwrap().expect("it stands, closed");
    purged(&t, &c, 1).await;
    let again = opened(&c, "x").await;
    f.get("x").await.unwrap().expect("it stands, open");
    let seen = f.all_channels().await.unwrap();
    assert!(!seen[0].channel.record.is_open(), "the member is behind: {seen:?}");
    let listed = f.open_channels().await.unwrap();
    assert_eq!(listed.iter().map(|listed| &listed.channel).collect::<Vec<_>>(), [&again]);
    assert_eq!(f.purge(Duration::ZERO).await.unwrap(), 0, "it purges what it saw, which is gone");
    assert_eq!(c.get("x").await.unwrap(), Some(again));
    // And when that closed one is all there was, the leader's word is that there is none.
    closed(&c, "x").await;
    purged(&t, &c, 1).await;
    t.lists([], || async { f.open_channels().await.unwrap() }).await;
}

/// Of many who open at once one does; of many who close at once one does; every message is counted; and a message is either
/// counted before the close or refused.
pub async fn of_many_at_once_one_opens_and_one_closes<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    let askers: Vec<String> = (0..16).map(|i| format!("p{i}")).collect();
    let told = join_all(askers.iter().map(|asker| c.open("x", asker, "bob", at(0)))).await;
    let stands = c.get("x").await.unwrap().expect("it is open");
    let told: Vec<Open> = told.into_iter().map(|told| told.expect("a definite answer")).collect();
    assert_eq!(told.iter().filter(|told| **told == Open::Opened(stands.clone())).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|told| **told == Open::Stands(stands.clone())).count(), 15, "{told:?}");

    let told = join_all((0..6).map(|_| c.count_message("x"))).await;
    let mut counts: Vec<u64> = Vec::new();
    for told in told {
        let Count::Counted(channel) = told.expect("a definite answer") else { panic!("it is open") };
        counts.push(channel.record.messages);
    }
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3, 4, 5, 6]);

    let counting = join_all((0..4).map(|_| c.count_message("x")));
    let (counts, closes) = join(counting, join_all((0..4).map(|i| c.close("x", at(i))))).await;
    let stands = c.get("x").await.unwrap().expect("it stands");
    let counted = counts.iter().filter(|told| matches!(told, Ok(Count::Counted(_)))).count() as u64;
    assert_eq!(stands.record.messages, 6 + counted, "{counts:?}");
    assert!(counts.iter().all(|told| matches!(told, Ok(Count::Counted(_) | Count::Closed(_)))), "{counts:?}");
    let closes: Vec<Close> = closes.into_iter().map(|told| told.expect("a definite answer")).collect();
    assert_eq!(closes.iter().filter(|told| **told == Close::Closed(stands.clone())).count(), 1, "{closes:?}");
    assert_eq!(closes.iter().filter(|told| **told == Close::AlreadyClosed(stands.clone())).count(), 3, "{closes:?}");
}

/// Of many who purge at once each channel is counted by one.
pub async fn a_channel_is_purged_once<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    for id in 0..8 {
        opened(&c, &id.to_string()).await;
        closed(&c, &id.to_string()).await;
    }
    let gone = AtomicU64::new(0);
    t.lists(8, || async {
        let told = join_all((0..4).map(|_| c.purge(Duration::ZERO))).await;
        let told: u64 = told.into_iter().map(|told| told.expect("a definite answer")).sum();
        gone.fetch_add(told, Ordering::Relaxed) + told
    })
    .await;
}

/// A record that cannot be read is unknown in every answer that it is part of, by name, and nobody takes it away.
pub async fn an_unreadable_channel_is_unknown<S: Store>(t: Fixture<S>) {
    let (c, b) = (channels(&t.store, &t).await, bucket(&t, &CHANNELS).await);
    opened(&c, "y").await;
    closed(&c, "y").await;
    let broken = stored(&b, &raw_key("a=2Ex"), r#"{"asker":"ada"}"#).await;
    assert_undecodable(c.get("a.x").await, "get", "a.x");
    assert_undecodable(c.open("a.x", "ada", "bob", at(0)).await, "open", "a.x");
    assert_undecodable(c.close("a.x", at(0)).await, "close", "a.x");
    assert_undecodable(c.count_message("a.x").await, "count_message", "a.x");
    assert_undecodable(c.open_channels().await, "list", "a=2Ex");
    assert_undecodable(c.all_channels().await, "list", "a=2Ex");
    assert_undecodable(c.purge(Duration::ZERO).await, "list", "a=2Ex");
    assert!(c.get("y").await.unwrap().is_some(), "the others are as they were");
    let record = ChannelRecord::open("ada", "bob", at(0)).unwrap();
    assert_eq!(b.get(&raw_key("a=2Ex")).await.unwrap().map(|version| version.revision), Some(broken));
    stored(&b, &raw_key("a=2Ex"), record.encode()).await;
    t.lists(Some(vec!["a.x".to_owned()]), || async {
        Some(c.open_channels().await.ok()?.into_iter().map(|listed| listed.channel.id).collect())
    })
    .await;
}

/// What breaks a rule is refused before anything is asked.
pub async fn a_bad_channel_is_refused_before_anything_is_asked<S: Store>(t: Fixture<S>) {
    let (store, asked) = counted(&t);
    let c = channels(&store, &t).await;
    for id in ["", &"a".repeat(5000), &"é".repeat(256)] {
        assert_refused(c.open(id, "ada", "bob", at(0)).await, "channel");
        assert_refused(c.get(id).await, "channel");
        assert_refused(c.close(id, at(0)).await, "channel");
        assert_refused(c.count_message(id).await, "channel");
    }
    assert_refused(c.open("x", "", "bob", at(0)).await, "asker");
    assert_refused(c.open("x", "ada", "", at(0)).await, "asked");
    assert_refused(c.open("x", &"a".repeat(2 << 20), "bob", at(0)).await, "value");
    // The value is weighed by the store, and not sent.
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// Without an answer nothing is said of a channel, and what may have been written is told to be so.
pub async fn without_an_answer_nothing_is_said_of_a_channel<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    opened(&c, "x").await;
    for fault in [Fault::DropRequest, Fault::DropReply] {
        let f = channels(&failing(&t, fault), &t).await;
        assert_unknown(f.open("new", "ada", "bob", at(0)).await, "open", Landing::InFlight);
        assert_unknown(f.get("x").await, "get", Landing::Settled);
        assert_unknown(f.close("x", at(1)).await, "close", Landing::Settled);
        assert_unknown(f.count_message("x").await, "count_message", Landing::Settled);
        assert_unknown(f.open_channels().await, "list", Landing::Settled);
        assert_unknown(f.all_channels().await, "list", Landing::Settled);
        assert_unknown(f.purge(Duration::ZERO).await, "list", Landing::Settled);
        let landed = fault == Fault::DropReply;
        assert_eq!(c.get("new").await.unwrap().is_some(), landed, "{fault:?}");
        let f = channels(&failing_at(&t, Verb::Put, fault), &t).await;
        let unanswered = f.count_message("x").await;
        assert_unknown(unanswered.clone(), "count_message", Landing::InFlight);
        assert!(matches!(unanswered.fails_closed(), Ok(Passage::Outage(_))), "withheld, and the channel not closed");
        assert_unknown(f.close("x", at(1)).await, "close", Landing::InFlight);
        let x = c.get("x").await.unwrap().expect("it stands");
        assert_eq!((x.record.messages, x.record.is_open()), (u64::from(landed), !landed), "{fault:?}");
    }
    let f = channels(&failing_at(&t, Verb::Put, Fault::None), &t).await;
    assert!(matches!(f.close("x", at(2)).await.unwrap(), Close::AlreadyClosed(_)), "asked again, it is done");
    for gone in ["x", "nobody"] {
        assert_eq!(c.count_message(gone).await.fails_closed().unwrap(), Passage::Closed, "{gone}");
    }
    opened(&c, "y").await;
    assert!(matches!(c.count_message("y").await.fails_closed(), Ok(Passage::Goes(channel)) if channel.id == "y"));
    assert_eq!(c.count_message("").await.fails_closed().unwrap_err().what, "channel");
}

/// One purge without an answer keeps no other from its own, and the next call does the rest.
pub async fn a_purge_without_an_answer_stops_no_other<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    for id in ["a", "b", "c"] {
        opened(&c, id).await;
        closed(&c, id).await;
    }
    let broken = Arc::new(AtomicBool::new(true));
    let now = broken.clone();
    let store = Faulty::new(t.store.clone(), t.env.clone(), move |call| match call.verb {
        Verb::Purge if call.about == "b" && now.load(Ordering::Relaxed) => Fault::DropRequest,
        _ => Fault::None,
    });
    let f = channels(&store, &t).await;
    let lost = unknown(t.listed(|| f.purge(Duration::ZERO), Result::is_err).await);
    assert_eq!((lost.op, &*lost.resource, lost.cause, lost.landing), ("purge", "b", Cause::Timeout, Landing::InFlight));
    t.lists(["b"], || async {
        let left = all_ids(&c).await;
        if t.lags() && left != ["b"] {
            // Seen open by a member that is behind, the others were left to a later call.
            let _lost_again = f.purge(Duration::ZERO).await;
        }
        left
    })
    .await;
    broken.store(false, Ordering::Relaxed);
    purged(&t, &f, 1).await;
}

/// A member that is behind says of a channel that it is open when it is closed. It closes nothing a second time.
pub async fn the_past_closes_nothing<S: Store>(t: Fixture<S>) {
    let c = channels(&t.store, &t).await;
    let f = channels(&failing_at(&t, Verb::Read, Fault::Stale), &t).await;
    opened(&c, "x").await;
    f.get("x").await.unwrap().expect("open");
    let last = closed(&c, "x").await;
    f.get("x").await.unwrap().expect("closed");
    assert!(f.get("x").await.unwrap().expect("it stands").record.is_open(), "it is behind from now on");
    assert_eq!(unknown(f.close("x", at(5)).await).cause, Cause::Contended { rounds: 16 });
    assert_eq!(unknown(f.count_message("x").await).landing, Landing::Settled);
    assert_eq!(c.get("x").await.unwrap(), Some(last));
}

/// Whoever was told that a channel stands is not talked out of it by a leader from before it, and believes that it is gone
/// once that is proved.
pub async fn a_channel_that_stood_is_not_absent_on_a_word<S: Store>(t: Fixture<S>) {
    let store = Faulty::new(t.store.clone(), t.env.clone(), |_| Fault::None);
    let (c, b) = (channels(&store, &t).await, bucket(&t, &CHANNELS).await);
    let reads = |faults: Vec<Fault>| {
        let mut faults = faults.into_iter();
        store.choose(move |call| match call.verb {
            Verb::Read => faults.next().unwrap_or(Fault::None),
            _ => Fault::None,
        });
    };
    opened(&c, "x").await;
    for _ in 0..2 {
        assert!(matches!(c.count_message("x").await.unwrap(), Count::Counted(_)));
    }
    assert!(c.get("x").await.unwrap().is_some());
    reads(vec![Fault::Stale, Fault::Before]);
    closed(&c, "x").await;
    let key = raw_key("x");
    let newest = b.get(&key).await.unwrap().expect("closed").revision;
    assert_eq!(b.purge(&key, newest).await.unwrap(), 1);
    reads(vec![Fault::Stale]);
    assert_eq!(c.close("x", at(2)).await.unwrap(), Close::Absent);
}
