//! What is asked of a stream's leader: one record, or the stream itself.

use coordproto::answer::Unknown;
use coordproto::api::requests::{self, Verb};
use coordproto::api::{Info, Stored, verdict};

use super::connection::Jetstream;
use super::counters::Kind;
use super::exchange::{Call, status};
use crate::env::Mono;

impl Jetstream {
    /// The last record under `subject`, as the stream's leader has it; a marker is a record too. `None` is the leader's own
    /// word that there is none.
    ///
    /// # Errors
    /// Unknown once the deadline has passed without an answer of a leader's, with the reason why the last answer was none.
    pub async fn last(&self, stream: &str, subject: &str, by: Mono) -> Result<Option<Stored>, Unknown> {
        let call = Call {
            kind: Kind::LeaderRead,
            op: "read",
            resource: subject,
            subject: self.subject("read", subject, |into| requests::stream_subject(into, Verb::MessageGet, stream))?,
            headers: None,
            payload: self.desk().carve(|into| requests::last_by_subject(into, subject)),
            by,
        };
        let found =
            self.exchange(call, |message| verdict::leader_read(status(message), &message.payload, subject)).await?;
        if let Some(stored) = &found {
            self.learn(stream, |mark| mark.raise_read(stored.revision, stored.time));
        }
        Ok(found)
    }

    /// The stream as its leader sees it, with the subjects that match `filter` if one is given: at most one page of them.
    /// An answer without a leader, or from before something this connection knows of the stream, is not taken.
    ///
    /// `None` is "no such stream", which may be wrong about a stream just made and right after a start: see
    /// [`verdict::info`].
    ///
    /// # Errors
    /// As [`Jetstream::last`].
    pub async fn info(&self, stream: &str, filter: Option<&str>, by: Mono) -> Result<Option<Info>, Unknown> {
        let call = Call {
            kind: if filter.is_some() { Kind::Index } else { Kind::Info },
            op: "info",
            resource: stream,
            subject: self.subject("info", stream, |into| requests::stream_subject(into, Verb::Info, stream))?,
            headers: None,
            payload: filter.map(|filter| self.desk().carve(|into| requests::index(into, filter))).unwrap_or_default(),
            by,
        };
        // What was known when it was asked: whatever is learnt later, the answer need not know.
        let mark = self.mark(stream);
        let found = self.exchange(call, |message| verdict::info(status(message), &message.payload, mark)).await?;
        if let Some(info) = &found {
            self.learn(stream, |mark| {
                // Refused only when something later was learnt meanwhile, which then stands.
                let _ = mark.admit(info.created, info.last_seq);
            });
        }
        Ok(found)
    }
}
