//! From statuses and error codes to yes, no and unknown: the one table.
//!
//! An error settles a write only if it must come out the same whoever leads. A cut-off or just resumed member goes on
//! answering as leader, and both it and the true leader receive a publish: the one's error does not undo the other's
//! acknowledgement. So an error that speaks of the answerer's own state ("no leader", "out of resources", "too busy") leaves
//! the write in flight, and asks the caller to listen a moment longer for a better answer ([`Judged::Wait`]).

use bytes::Bytes;
use jiff::Timestamp;

use super::puback::PubAck;
use super::{ApiError, Garbage, Info, Leadership, Reply, Stored, info, message, reply};
use crate::answer::{Cause, Landing};

/// "wrong last sequence: N": the expectation did not match.
const WRONG_LAST_SEQUENCE: u16 = 10071;
/// "wrong last sequence": another write on the subject is in process, so this one was refused unjudged.
const WRONG_LAST_SEQUENCE_IN_PROCESS: u16 = 10164;
/// "no message found".
const NO_MESSAGE: u16 = 10037;
/// "stream name already in use with a different configuration".
const STREAM_EXISTS: u16 = 10058;
/// "stream not found".
const NO_STREAM: u16 = 10059;
/// "consumer not found".
const NO_CONSUMER: u16 = 10014;

/// What one answer amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged<T> {
    /// The answer; nothing better will follow.
    Final(Result<T, Doubt>),
    /// What there is so far. Another member may answer better: a read keeps asking until its deadline, a write listens a
    /// moment longer.
    Wait(Result<T, Doubt>),
}

/// Why an answer is none, and what it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Why.
    pub cause: Cause,
    /// Whether the write may still land; settled for a read.
    pub landing: Landing,
}

fn settled(cause: impl Into<Cause>) -> Doubt {
    Doubt { cause: cause.into(), landing: Landing::Settled }
}

fn in_flight(cause: impl Into<Cause>) -> Doubt {
    Doubt { cause: cause.into(), landing: Landing::InFlight }
}

/// What a put came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a write that lost its race is not stored"]
pub enum Put {
    /// Stored, by a quorum where there is one.
    Stored {
        /// The record's revision.
        revision: u64,
        /// It had been stored before under the same message id.
        duplicate: bool,
    },
    /// Refused: the expectation does not hold.
    Lost(Race),
}

/// How a conditional put was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// The record has this later revision (10071).
    Newer(u64),
    /// A revision was expected and the answerer has none (10071 reporting 0): the record has expired or was purged, or the
    /// answerer is a stale leader from before it existed. Only a quorum's decision tells which: a put at 0, say.
    Vanished,
    /// Refused unjudged because a rival's write on the subject is in process (10164). Nobody has won yet: wait and look.
    InProcess,
}

/// The answer to a put that expected revision `expect`; `None` for one without an expectation.
///
/// Here and below, `status` is that of a reply which is a status line and nothing else.
pub fn put(expect: Option<u64>, status: Option<u16>, reply: Result<Reply<PubAck<'_>>, Garbage>) -> Judged<Put> {
    if let Some(status) = status {
        return Judged::Final(Err(write_status(status)));
    }
    match reply {
        Ok(Reply::Ok(ack)) => Judged::Final(Ok(Put::Stored { revision: ack.seq, duplicate: ack.duplicate })),
        Ok(Reply::Refused(error)) => put_error(expect, error),
        Err(garbage) => Judged::Wait(Err(in_flight(garbage))),
    }
}

fn put_error(expect: Option<u64>, error: ApiError) -> Judged<Put> {
    match error.err_code {
        WRONG_LAST_SEQUENCE => match (expect, error.operand) {
            // Revisions of a subject only grow, so whoever leads refuses this expectation.
            (Some(expected), Some(found)) if found > expected => Judged::Final(Ok(Put::Lost(Race::Newer(found)))),
            (Some(expected), Some(0)) if expected > 0 => Judged::Wait(Ok(Put::Lost(Race::Vanished))),
            // The caller knows a later revision: the answerer is behind, and the true leader may still take the write.
            (Some(expected), Some(found)) if found < expected => {
                Judged::Wait(Err(in_flight(Cause::Stale { answered: found, known: expected })))
            }
            // Refused for what it asked for, or for nothing it asked for, or without saying what was found.
            _ => Judged::Wait(Err(in_flight(Garbage("a wrong last sequence that is not wrong")))),
        },
        WRONG_LAST_SEQUENCE_IN_PROCESS => Judged::Final(Ok(Put::Lost(Race::InProcess))),
        // These speak of the message and the stream's configuration, which are the same for every member: larger than
        // the stream allows (10054), another stream's (10060), a bad time to live (10165) or none allowed (10166), atomic
        // batches not allowed (10174) or too large (10199).
        10054 | 10060 | 10165 | 10166 | 10174 | 10199 => Judged::Final(Err(settled(unavailable(error)))),
        // A copy of this very message is being processed, and may land.
        10158 => Judged::Final(Err(in_flight(unavailable(error)))),
        // These speak of the answerer:
        //  10008, 10009  it knows no leader, or is not one; the leader may have taken the write.
        //  10023, 10047  it is out of memory or disk. Found before proposing, or when applying what is committed already.
        //  10063         it lost the place in the log that it proposed at; the proposal may be committed.
        //  10077         its store refused: a bound of the stream, or a store that is closing under a committed message.
        //                One code for both, and only the text tells them apart.
        //  10118, 10194  the stream is offline on it.
        //  10163         it cannot check the expectation yet.
        //  10167, 10210, 10211  it is too busy.
        // And so, for all this build can know, may any code it has never heard of.
        _ => Judged::Wait(Err(in_flight(cause(error)))),
    }
}

/// The answer to a leader read of `subject`.
pub fn leader_read(status: Option<u16>, payload: &[u8], subject: &str) -> Judged<Option<Stored>> {
    read(status, || message::parse(payload, subject), Ok, NO_MESSAGE)
}

/// What the status that ends a batch of direct gets says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// What matches was sent, as far as the headers beside the status count it (204).
    Counted,
    /// Nothing matches (404).
    Nothing,
    /// More subjects match than a batch carries (413).
    TooMany,
}

/// The status that ends a batch of direct gets, and the status line's text. Whatever else comes back, another member may
/// answer better, and as with every read nothing is left open.
///
/// 404 has two meanings: nothing matches, or a record that matches could not be loaded, which says nothing about the rest.
/// Only the text tells them apart, so the text is asked for, and with any other one the status is unknown.
///
/// # Errors
/// Why there is no answer.
pub fn batch_end(status: u16, text: Option<&str>) -> Result<BatchEnd, Cause> {
    match (status, text) {
        (204, _) => Ok(BatchEnd::Counted),
        (404, Some("No Results")) => Ok(BatchEnd::Nothing),
        (413, _) => Ok(BatchEnd::TooMany),
        // 408 finds fault with the request, 412 with the server's version, 500 is the member's own trouble, and 503 means that
        // no member listens: the stream is not there or does not allow direct gets, or none of its members is reached.
        _ => Err(status_cause(status)),
    }
}

/// The answer to a stream info request, held against what was known of the stream when it was asked.
///
/// `None` is the meta leader's "no such stream" (10059). It may come from before the stream was made, or from a server that is
/// still starting: enough to decide to create the stream, which asks a quorum, and never a reason to call a record absent.
pub fn info(status: Option<u16>, payload: &Bytes, mut mark: Mark) -> Judged<Option<Info>> {
    let admit = |info: Info| {
        if info.leadership == Leadership::Leaderless {
            return Err(Cause::Leaderless);
        }
        mark.admit(info.created, info.last_seq)?;
        Ok(info)
    };
    read(status, || info::parse(payload), admit, NO_STREAM)
}

/// A read believes its answer, or one error code that means "there is none". Whatever else comes back, somebody else may
/// answer better.
fn read<R, T>(
    status: Option<u16>,
    reply: impl FnOnce() -> Result<Reply<R>, Garbage>,
    admit: impl FnOnce(R) -> Result<T, Cause>,
    absent: u16,
) -> Judged<Option<T>> {
    if let Some(status) = status {
        return Judged::Wait(Err(settled(status_cause(status))));
    }
    match reply() {
        Ok(Reply::Ok(found)) => match admit(found) {
            Ok(answer) => Judged::Final(Ok(Some(answer))),
            Err(cause) => Judged::Wait(Err(settled(cause))),
        },
        Ok(Reply::Refused(error)) if (error.code, error.err_code) == (404, absent) => Judged::Final(Ok(None)),
        Ok(Reply::Refused(error)) => Judged::Wait(Err(settled(cause(error)))),
        Err(garbage) => Judged::Wait(Err(settled(garbage))),
    }
}

/// The answer to a purge: how many messages it removed.
pub fn purge(status: Option<u16>, payload: &[u8]) -> Judged<u64> {
    write(status, || reply::purged(payload), |_| None)
}

/// What a stream's creation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The stream stands with this configuration; it may have stood so before.
    Stands,
    /// A stream of the name stands with another configuration (10058): look it up.
    Differs,
}

/// The answer to a stream's creation.
pub fn create(status: Option<u16>, payload: &[u8]) -> Judged<Created> {
    write(
        status,
        || Ok(reply::configured(payload)?.map(|()| Created::Stands)),
        |error| (error.err_code == STREAM_EXISTS).then_some(Created::Differs),
    )
}

/// The answer to a stream's update.
pub fn update(status: Option<u16>, payload: &[u8]) -> Judged<()> {
    write(status, || reply::configured(payload), |_| None)
}

/// The answer to a stream's deletion: whether there was one.
pub fn delete_stream(status: Option<u16>, payload: &[u8]) -> Judged<bool> {
    write(
        status,
        || Ok(reply::deleted(payload)?.map(|()| true)),
        |error| (error.err_code == NO_STREAM).then_some(false),
    )
}

/// The answer to a consumer's creation: how many messages it was made to deliver. It may be asked for again, so an error
/// waits for a better answer, unless it finds fault with the request, which asking again does not mend.
pub fn create_consumer(status: Option<u16>, payload: &[u8]) -> Judged<u64> {
    match reply::consumer(payload) {
        Ok(Reply::Refused(error)) if status.is_none() && matches!(error.code, 400 | 404) => {
            Judged::Final(Err(in_flight(unavailable(error))))
        }
        reply => write(status, || reply, |_| None),
    }
}

/// The answer to a consumer's deletion: whether there was one. A stream that is gone has no consumers.
pub fn delete_consumer(status: Option<u16>, payload: &[u8]) -> Judged<bool> {
    write(
        status,
        || Ok(reply::deleted(payload)?.map(|()| true)),
        |error| matches!(error.err_code, NO_CONSUMER | NO_STREAM).then_some(false),
    )
}

/// What the status that ends a pull says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullEnd {
    /// The member that has the consumer looked into its store and got nothing beyond what it delivered: there is no more, or
    /// the store cannot be read.
    Nothing,
    /// The answer is as large as was asked for, and there is more.
    More,
    /// Nobody takes requests to the consumer, or nobody yet.
    Nobody,
}

/// Reads the status that ends a pull; `pending` says whether it counts what was asked for and not given.
///
/// # Errors
/// Another status: the request ran out of time, or its consumer is gone.
pub fn pull_end(status: u16, pending: bool) -> Result<PullEnd, Cause> {
    match status {
        404 => Ok(PullEnd::Nothing),
        409 if pending => Ok(PullEnd::More),
        503 => Ok(PullEnd::Nobody),
        status => Err(Cause::Unavailable { code: status, err_code: 0 }),
    }
}

/// A change believes its success and the errors that `known` gives a meaning. Another error may be one member's alone.
fn write<T>(
    status: Option<u16>,
    reply: impl FnOnce() -> Result<Reply<T>, Garbage>,
    known: impl FnOnce(&ApiError) -> Option<T>,
) -> Judged<T> {
    if let Some(status) = status {
        return Judged::Final(Err(write_status(status)));
    }
    match reply() {
        Ok(Reply::Ok(value)) => Judged::Final(Ok(value)),
        Ok(Reply::Refused(error)) => match known(&error) {
            Some(value) => Judged::Final(Ok(value)),
            None => Judged::Wait(Err(in_flight(cause(error)))),
        },
        Err(garbage) => Judged::Wait(Err(in_flight(garbage))),
    }
}

/// A bare status in reply to a write. 503 means that no server subscribes to the subject: nobody received it.
fn write_status(status: u16) -> Doubt {
    match status_cause(status) {
        Cause::NoResponders => settled(Cause::NoResponders),
        cause => in_flight(cause),
    }
}

fn status_cause(status: u16) -> Cause {
    match status {
        503 => Cause::NoResponders,
        code => Cause::Unavailable { code, err_code: 0 },
    }
}

fn cause(error: ApiError) -> Cause {
    match error.err_code {
        10008 | 10009 => Cause::Leaderless,
        _ => unavailable(error),
    }
}

fn unavailable(error: ApiError) -> Cause {
    Cause::Unavailable { code: error.code, err_code: error.err_code }
}

/// The furthest that a stream is known to have come. An answer from before it is stale.
///
/// A stream that was deleted and made again starts over; its creation time tells it from one that went back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    created: Option<Timestamp>,
    seq: u64,
}

impl Mark {
    /// A message with this sequence was acknowledged.
    pub fn raise(&mut self, seq: u64) {
        self.seq = self.seq.max(seq);
    }

    /// A message with this sequence was read, which the broker had stored at `written`. One from before the stream was made is
    /// another stream's of the same name, and says nothing of this one.
    pub fn raise_read(&mut self, seq: u64, written: Timestamp) {
        if self.created.is_none_or(|created| created <= written) {
            self.raise(seq);
        }
    }

    /// The highest sequence known.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Learns from a stream's description; what came before something known is stale, and teaches nothing.
    ///
    /// # Errors
    /// [`Cause::Stale`].
    pub fn admit(&mut self, created: Timestamp, last_seq: u64) -> Result<(), Cause> {
        if self.created.is_some_and(|known| known < created) {
            self.seq = 0;
        }
        if last_seq < self.seq || self.created.is_some_and(|known| known > created) {
            return Err(Cause::Stale { answered: last_seq, known: self.seq });
        }
        *self = Mark { created: Some(created), seq: last_seq };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::puback;
    use super::*;

    fn refusal(code: u16, err_code: u16, text: &str) -> String {
        format!(r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"{text}"}},"stream":"S","seq":0}}"#)
    }

    fn put_of(expect: Option<u64>, text: &str) -> Judged<Put> {
        put(expect, None, puback::parse(text.as_bytes()))
    }

    /// What a put at revision 7 makes of every code that it may meet: whether a better answer is waited for, and what stands
    /// if none comes.
    const ROWS: &[(u16, u16, &str, Judged<Put>)] = &[
        (400, 10071, "wrong last sequence: 8", Judged::Final(Ok(Put::Lost(Race::Newer(8))))),
        (400, 10071, "wrong last sequence: 0", Judged::Wait(Ok(Put::Lost(Race::Vanished)))),
        (400, 10071, "wrong last sequence: 6", STALE),
        (400, 10164, "wrong last sequence", Judged::Final(Ok(Put::Lost(Race::InProcess)))),
        (400, 10054, "message size exceeds maximum allowed", never(400, 10054)),
        (400, 10060, "expected stream does not match", never(400, 10060)),
        (400, 10165, "invalid per-message TTL", never(400, 10165)),
        (400, 10166, "per-message TTL is disabled", never(400, 10166)),
        (400, 10174, "atomic publish is disabled", never(400, 10174)),
        (400, 10199, "atomic publish batch is too large", never(400, 10199)),
        (409, 10158, "duplicate message id is in process", Judged::Final(Err(open(409, 10158)))),
        (503, 10008, "JetStream system temporarily unavailable", LEADERLESS),
        (500, 10009, "JetStream cluster can not handle request", LEADERLESS),
        (503, 10023, "insufficient resources", Judged::Wait(Err(open(503, 10023)))),
        (500, 10047, "insufficient storage resources available", Judged::Wait(Err(open(500, 10047)))),
        (503, 10063, "expected stream sequence does not match", Judged::Wait(Err(open(503, 10063)))),
        (503, 10077, "maximum messages per subject exceeded", Judged::Wait(Err(open(503, 10077)))),
        (500, 10118, "stream is offline", Judged::Wait(Err(open(500, 10118)))),
        (503, 10163, "expected last sequence per subject not ready", Judged::Wait(Err(open(503, 10163)))),
        (429, 10167, "too many requests", Judged::Wait(Err(open(429, 10167)))),
        (500, 10194, "stream is offline: why", Judged::Wait(Err(open(500, 10194)))),
        (429, 10210, "atomic publish too many inflight", Judged::Wait(Err(open(429, 10210)))),
        (429, 10211, "batch publish too many inflight", Judged::Wait(Err(open(429, 10211)))),
        (503, 0, "raft: not leader", Judged::Wait(Err(open(503, 0)))),
        (404, 10037, "no message found", Judged::Wait(Err(open(404, 10037)))),
        (404, 10059, "stream not found", Judged::Wait(Err(open(404, 10059)))),
        (400, 19999, "wrong last sequence: 8", Judged::Wait(Err(open(400, 19999)))),
    ];

    const STALE: Judged<Put> =
        Judged::Wait(Err(Doubt { cause: Cause::Stale { answered: 6, known: 7 }, landing: Landing::InFlight }));
    const LEADERLESS: Judged<Put> = Judged::Wait(Err(Doubt { cause: Cause::Leaderless, landing: Landing::InFlight }));

    fn leaderless() -> Doubt {
        Doubt { cause: Cause::Leaderless, landing: Landing::InFlight }
    }

    const fn open(code: u16, err_code: u16) -> Doubt {
        Doubt { cause: Cause::Unavailable { code, err_code }, landing: Landing::InFlight }
    }

    const fn never(code: u16, err_code: u16) -> Judged<Put> {
        Judged::Final(Err(Doubt { cause: Cause::Unavailable { code, err_code }, landing: Landing::Settled }))
    }

    #[test]
    fn every_code_of_a_put_has_its_row() {
        for (code, err_code, text, want) in ROWS {
            assert_eq!(&put_of(Some(7), &refusal(*code, *err_code, text)), want, "{err_code} {text}");
        }
    }

    #[test]
    fn no_text_moves_a_row() {
        for (code, err_code, _, want) in ROWS.iter().filter(|row| row.1 != WRONG_LAST_SEQUENCE) {
            for text in ["", "wrong last sequence: 8", "no message found"] {
                assert_eq!(&put_of(Some(7), &refusal(*code, *err_code, text)), want, "{err_code} {text}");
            }
        }
    }

    #[test]
    fn a_wrong_last_sequence_that_contradicts_itself_is_unknown() {
        let garbage = |judged| match judged {
            Judged::Wait(Err(Doubt { cause: Cause::Garbage(_), landing: Landing::InFlight })) => {}
            other => panic!("{other:?}"),
        };
        garbage(put_of(Some(7), &refusal(400, 10071, "wrong last sequence: 7")));
        garbage(put_of(Some(0), &refusal(400, 10071, "wrong last sequence: 0")));
        garbage(put_of(Some(7), &refusal(400, 10071, "wrong last sequence")));
        garbage(put_of(None, &refusal(400, 10071, "wrong last sequence: 7")));
        garbage(put_of(Some(7), "{}"));
        garbage(put_of(Some(7), ""));
        let exists = put_of(Some(0), &refusal(400, 10071, "wrong last sequence: 3"));
        assert_eq!(exists, Judged::Final(Ok(Put::Lost(Race::Newer(3)))));
    }

    #[test]
    fn an_acknowledgement_is_final() {
        let stored = |text| put_of(Some(7), text);
        let want = |duplicate| Judged::Final(Ok(Put::Stored { revision: 9, duplicate }));
        assert_eq!(stored(r#"{"stream":"S","seq":9}"#), want(false));
        assert_eq!(stored(r#"{"stream":"S","seq":9,"duplicate":true}"#), want(true));
    }

    #[test]
    fn nobody_listening_settles_a_write_and_no_other_status_does() {
        let of = |status| put(Some(7), Some(status), puback::parse(b""));
        assert_eq!(of(503), Judged::Final(Err(settled(Cause::NoResponders))));
        assert_eq!(of(412), Judged::Final(Err(open(412, 0))));
        assert_eq!(purge(Some(503), b""), Judged::Final(Err(settled(Cause::NoResponders))));
    }

    #[test]
    fn only_the_leaders_own_code_makes_a_record_absent() {
        let of = |code, err_code| leader_read(None, refusal(code, err_code, "no message found").as_bytes(), "a");
        assert_eq!(of(404, 10037), Judged::Final(Ok(None)));
        for (code, err_code, cause) in [
            (503, 10008, Cause::Leaderless),
            (500, 10009, Cause::Leaderless),
            (500, 10118, Cause::Unavailable { code: 500, err_code: 10118 }),
            (500, 10194, Cause::Unavailable { code: 500, err_code: 10194 }),
            (404, 10059, Cause::Unavailable { code: 404, err_code: 10059 }),
            (404, 0, Cause::Unavailable { code: 404, err_code: 0 }),
            (503, 10037, Cause::Unavailable { code: 503, err_code: 10037 }),
            (400, 10003, Cause::Unavailable { code: 400, err_code: 10003 }),
        ] {
            assert_eq!(of(code, err_code), Judged::Wait(Err(settled(cause))), "{err_code}");
        }
        assert_eq!(leader_read(Some(503), b"", "a"), Judged::Wait(Err(settled(Cause::NoResponders))));
        assert_eq!(
            leader_read(Some(404), b"", "a"),
            Judged::Wait(Err(settled(Cause::Unavailable { code: 404, err_code: 0 })))
        );
        for text in ["", "{}", "+OK", "null"] {
            assert!(matches!(
                leader_read(None, text.as_bytes(), "a"),
                Judged::Wait(Err(Doubt { cause: Cause::Garbage(_), landing: Landing::Settled }))
            ));
        }
    }

    #[test]
    fn a_batch_ends_with_one_of_three_statuses_and_no_other() {
        for status in 0..1000 {
            for text in [None, Some(""), Some("No Results"), Some("Message Not Found"), Some("EOB")] {
                let want = match (status, text) {
                    (204, _) => Ok(BatchEnd::Counted),
                    (404, Some("No Results")) => Ok(BatchEnd::Nothing),
                    (413, _) => Ok(BatchEnd::TooMany),
                    (503, _) => Err(Cause::NoResponders),
                    (code, _) => Err(Cause::Unavailable { code, err_code: 0 }),
                };
                assert_eq!(batch_end(status, text), want, "{status} {text:?}");
            }
        }
    }

    fn described(created: &str, last_seq: u64, cluster: &str) -> Bytes {
        format!(r#"{{"config":{{}},"created":"{created}","state":{{"messages":1,"first_seq":1,"last_seq":{last_seq}}},"cluster":{cluster},"ts":"2026-11-30T08:47:33Z"}}"#).into()
    }

    #[test]
    fn an_info_from_before_what_is_known_is_stale() {
        let mut mark = Mark::default();
        let born = "2026-11-30T08:00:00Z";
        let led = r#"{"name":"C","leader":"n1"}"#;
        let mut ask = |created, last, cluster| match info(None, &described(created, last, cluster), mark) {
            Judged::Final(Ok(Some(info))) => mark.admit(info.created, info.last_seq).map(|()| info.last_seq),
            Judged::Wait(Err(doubt)) => Err(doubt.cause),
            other => panic!("{other:?}"),
        };
        assert_eq!(ask(born, 5, led), Ok(5));
        assert_eq!(ask(born, 5, led), Ok(5));
        assert_eq!(ask(born, 4, led), Err(Cause::Stale { answered: 4, known: 5 }));
        assert_eq!(ask(born, 9, r#"{"name":"C"}"#), Err(Cause::Leaderless));
        assert_eq!(ask(born, 5, led), Ok(5), "a leaderless answer raises nothing");
        assert_eq!(ask("2026-11-30T08:00:01Z", 0, led), Ok(0), "another stream under the old name");
        assert!(ask(born, 4, led).is_err(), "the stream that was deleted");
    }

    #[test]
    fn an_acknowledgement_raises_the_mark() {
        let mut mark = Mark::default();
        mark.raise(7);
        mark.raise(3);
        assert_eq!(mark.seq(), 7);
        let at = |text: &str| text.parse::<Timestamp>().expect("an instant");
        let mut again = Mark::default();
        again.admit(at("2026-11-30T08:00:00Z"), 3).expect("nothing is known yet");
        again.raise_read(5000, at("2026-11-30T07:59:59Z"));
        assert_eq!(again.seq(), 3, "what a deleted stream held, read late, is not this one's");
        again.raise_read(4, at("2026-11-30T08:00:01Z"));
        assert_eq!(again.seq(), 4);
        let judged = info(None, &described("2026-11-30T08:00:00Z", 6, r#"{"leader":"solo"}"#), mark);
        assert!(matches!(judged, Judged::Wait(Err(Doubt { cause: Cause::Stale { answered: 6, known: 7 }, .. }))));
    }

    #[test]
    fn a_pull_ends_by_its_status_alone() {
        assert_eq!(pull_end(404, false), Ok(PullEnd::Nothing));
        assert_eq!(pull_end(409, true), Ok(PullEnd::More));
        assert_eq!(pull_end(503, false), Ok(PullEnd::Nobody));
        for (status, pending) in [(408, true), (409, false), (400, false), (100, false)] {
            assert_eq!(pull_end(status, pending), Err(Cause::Unavailable { code: status, err_code: 0 }));
        }
    }

    #[test]
    fn stream_and_consumer_operations_know_their_own_codes() {
        let of = |code, err_code| refusal(code, err_code, "x").into_bytes();
        assert_eq!(create(None, &of(400, 10058)), Judged::Final(Ok(Created::Differs)));
        assert_eq!(create(None, br#"{"config":{}}"#), Judged::Final(Ok(Created::Stands)));
        assert_eq!(create(None, &of(500, 10074)), Judged::Wait(Err(open(500, 10074))));
        assert_eq!(update(None, &of(500, 10052)), Judged::Wait(Err(open(500, 10052))));
        let nothing = info(None, &of(404, 10059).into(), Mark::default());
        assert!(matches!(nothing, Judged::Final(Ok(None))));
        assert_eq!(delete_stream(None, &of(404, 10059)), Judged::Final(Ok(false)));
        assert_eq!(delete_stream(None, br#"{"success":true}"#), Judged::Final(Ok(true)));
        assert_eq!(delete_consumer(None, &of(404, 10014)), Judged::Final(Ok(false)));
        assert_eq!(delete_consumer(None, &of(404, 10059)), Judged::Final(Ok(false)));
        assert_eq!(delete_consumer(None, &of(404, 10037)), Judged::Wait(Err(open(404, 10037))));
        assert_eq!(create_consumer(None, &of(404, 10059)), Judged::Final(Err(open(404, 10059))));
        assert_eq!(create_consumer(None, &of(400, 10148)), Judged::Final(Err(open(400, 10148))));
        assert_eq!(create_consumer(None, &of(503, 10008)), Judged::Wait(Err(leaderless())));
        assert_eq!(create_consumer(Some(503), b""), Judged::Final(Err(settled(Cause::NoResponders))));
        assert_eq!(purge(None, &of(404, 10059)), Judged::Wait(Err(open(404, 10059))));
        assert_eq!(purge(None, br#"{"success":true,"purged":2}"#), Judged::Final(Ok(2)));
    }
}
