use proptest::prelude::*;

use super::*;
use crate::api::message::{KV_OPERATION, MARKER_REASON};

/// A reply: its status, the status line's text, its headers.
type Message = (Option<u16>, Option<&'static str>, Vec<(&'static str, String)>);

fn record(subject: &str, revision: u64, pending: u64, last: u64) -> Message {
    let headers = vec![
        (STREAM, "KV_t".to_owned()),
        (SUBJECT, subject.to_owned()),
        (SEQUENCE, revision.to_string()),
        (TIME, "2026-11-30T08:47:33.148754874Z".to_owned()),
        (PENDING, pending.to_string()),
        (LAST, last.to_string()),
    ];
    (None, None, headers)
}

fn end(pending: u64, last: u64, up_to: u64) -> Message {
    let headers = vec![(PENDING, pending.to_string()), (LAST, last.to_string()), (UP_TO, up_to.to_string())];
    (Some(204), Some("EOB"), headers)
}

fn bare(status: u16, text: &'static str) -> Message {
    (Some(status), Some(text), Vec::new())
}

fn take<'h>(batch: &mut Batch<'_>, (status, text, headers): &'h Message) -> Result<Part<'h>, Cause> {
    batch.take(*status, *text, headers.iter().map(|(name, value)| (*name, value.as_str())))
}

/// The revisions that a whole row of messages carries, and how it ended; `None` where it has no end.
fn read(messages: &[Message]) -> Result<Option<(Vec<u64>, End)>, Cause> {
    let (mut batch, mut revisions) = (Batch::of("KV_t"), Vec::new());
    for message in messages {
        match take(&mut batch, message)? {
            Part::Record(found) => revisions.push(found.revision),
            Part::End(end) => return Ok(Some((revisions, end))),
        }
    }
    Ok(None)
}

/// The reply to a request that these revisions match, from a member that has come to `up_to`.
fn whole(revisions: &[u64], up_to: u64) -> Vec<Message> {
    let mut last = 0;
    let mut messages: Vec<Message> = revisions
        .iter()
        .enumerate()
        .map(|(n, &revision)| {
            record("$KV.t.a", revision, (revisions.len() - n - 1) as u64, std::mem::replace(&mut last, revision))
        })
        .collect();
    messages.push(if revisions.is_empty() { bare(404, "No Results") } else { end(0, last, up_to) });
    messages
}

fn missing() -> Cause {
    MISSING.into()
}

#[test]
fn a_batch_is_its_records_and_how_far_the_member_had_come() {
    assert_eq!(read(&whole(&[3, 7, 8], 9)), Ok(Some((vec![3, 7, 8], End::Whole { last_seq: Some(9) }))));
    assert_eq!(read(&whole(&[3], 3)), Ok(Some((vec![3], End::Whole { last_seq: Some(3) }))));
    assert_eq!(read(&whole(&[], 0)), Ok(Some((vec![], End::Whole { last_seq: None }))));
}

#[test]
fn a_record_stands_where_its_headers_say() {
    let time = "2026-11-30T08:47:33.148754874Z".parse().unwrap();
    let want = Found { subject: "$KV.t.a", revision: 3, time, marker: None, pending: 5 };
    assert_eq!(take(&mut Batch::of("KV_t"), &record("$KV.t.a", 3, 5, 0)), Ok(Part::Record(want)));
}

#[test]
fn a_batch_that_stops_early_is_too_much_and_so_is_one_that_never_began() {
    let early = [record("$KV.t.a", 3, 2, 0), record("$KV.t.b", 4, 1, 3), end(1, 4, 9)];
    assert_eq!(read(&early), Ok(Some((vec![3, 4], End::TooMuch))));
    assert_eq!(read(&[bare(413, "Too Many Results")]), Ok(Some((vec![], End::TooMuch))));
}

#[test]
fn every_kind_of_marker_is_told_from_a_record() {
    for (extra, want) in [
        (vec![(KV_OPERATION, "DEL")], Some(Marker::Delete)),
        (vec![(KV_OPERATION, "PURGE"), ("Nats-Rollup", "sub")], Some(Marker::Purge)),
        (vec![(MARKER_REASON, "MaxAge")], Some(Marker::Broker)),
        (vec![(MARKER_REASON, "Purge"), (KV_OPERATION, "PURGE")], Some(Marker::Purge)),
        (vec![(KV_OPERATION, "PURGE"), (MARKER_REASON, "Purge")], Some(Marker::Purge)),
        (vec![(KV_OPERATION, "PUT"), ("Nats-TTL", "1")], None),
    ] {
        let mut message = record("$KV.t.a", 3, 0, 0);
        message.2.extend(extra.iter().map(|(name, value)| (*name, (*value).to_owned())));
        match take(&mut Batch::of("KV_t"), &message) {
            Ok(Part::Record(found)) => assert_eq!(found.marker, want, "{extra:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_records_own_headers_do_not_count_for_the_servers() {
    let mut message = record("$KV.t.a", 3, 0, 0);
    let forged = [(SEQUENCE, "99"), (PENDING, "77"), (LAST, "5"), (STREAM, "KV_x"), (SUBJECT, "$KV.x.a")];
    message.2.splice(0..0, forged.map(|(name, value)| (name, value.to_owned())));
    assert_eq!(read(&[message, end(0, 3, 3)]), Ok(Some((vec![3], End::Whole { last_seq: Some(3) }))));
}

#[test]
fn what_does_not_belong_is_not_an_answer() {
    let first = record("$KV.t.a", 3, 1, 0);
    for (message, why) in [
        (record("$KV.t.b", 4, 0, 2), "another record was before it"),
        (record("$KV.t.b", 4, 1, 3), "fewer follow the second than the first"),
        (record("$KV.t.b", 3, 0, 3), "sequences grow"),
        (record("$KV.t.b", 2, 0, 3), "sequences grow"),
        (end(0, 3, 9), "one was to follow"),
        (end(1, 4, 9), "another record was the last"),
    ] {
        assert_eq!(read(&[first.clone(), message]), Err(missing()), "{why}");
    }
    assert_eq!(read(&[end(0, 0, 9)]), Err(missing()), "an end of nothing");
    for message in [bare(404, "No Results"), bare(413, "Too Many Results")] {
        assert!(matches!(read(&[first.clone(), message]), Err(Cause::Garbage(_))));
    }
    assert!(matches!(read(&[record("$KV.t.a", 3, 0, 0), end(0, 3, 2)]), Err(Cause::Garbage(_))), "beyond the end");
    let mut another = record("$KV.t.a", 3, 0, 0);
    another.2[0].1 = "KV_x".into();
    assert!(matches!(read(&[another]), Err(Cause::Garbage(_))));
}

#[test]
fn every_header_is_needed_and_must_be_readable() {
    for n in 0..6 {
        let mut without = record("$KV.t.a", 3, 0, 0);
        let (name, _) = without.2.remove(n);
        assert!(matches!(read(&[without]), Err(Cause::Garbage(_))), "{name}");
        if name != SUBJECT {
            let mut unreadable = record("$KV.t.a", 3, 0, 0);
            unreadable.2[n].1 = "x".into();
            assert!(matches!(read(&[unreadable]), Err(Cause::Garbage(_))), "{name}");
        }
    }
    for n in 0..3 {
        let mut without = end(0, 3, 3);
        without.2.remove(n);
        assert!(matches!(read(&[record("$KV.t.a", 3, 0, 0), without]), Err(Cause::Garbage(_))));
    }
}

proptest! {
    /// Whatever is lost on the way, said twice or overtaken, the batch is not taken for whole.
    #[test]
    fn a_damaged_batch_is_never_whole(
        steps in proptest::collection::vec(1u64..5, 1..40),
        at in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        how in 0..3,
    ) {
        let revisions: Vec<u64> = steps.iter().scan(0, |at, step| { *at += step; Some(*at) }).collect();
        let good = whole(&revisions, 1000);
        prop_assert_eq!(read(&good), Ok(Some((revisions, End::Whole { last_seq: Some(1000) }))));
        let mut bad = good.clone();
        let (at, other) = (at.index(good.len() - 1), other.index(good.len()));
        match how {
            0 => { bad.remove(at); }
            1 => { let twice = bad[at].clone(); bad.insert(at, twice); }
            _ => bad.swap(at, other),
        }
        if bad != good {
            prop_assert!(!matches!(read(&bad), Ok(Some(_))));
        }
    }

    #[test]
    fn nothing_makes_it_panic(status in proptest::option::of(0u16..600), name in ".*", value in ".*") {
        let _ = Batch::of("KV_t").take(status, Some(&value), [(name.as_str(), value.as_str())]);
    }
}
