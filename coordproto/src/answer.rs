//! The three-valued answer.
//!
//! Every question has three outcomes: yes, no, unknown. A definite yes or no is a value of the operation's own type; unknown
//! is the error arm, `Result<Verdict, Unknown>`, so that `?` carries it upward and nothing turns it into "no" on the way. A
//! bad argument is a third thing, [`BadArgument`], found before anything is sent; [`Error`] joins the two.
//!
//! An unknown write comes in two kinds, and they are not the same fact. [`Landing::Settled`]: the write is not applied and
//! never will be. [`Landing::InFlight`]: it may have been applied, or may be later. Reading the record does not settle the
//! second kind, since the write can land after the read; a later successful compare-and-set at the same expectation does,
//! because it makes the straggler's expectation wrong.

use std::fmt;

/// The store could not be asked, or its answer cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} {resource}: unknown: {cause}{}", self.landing.note())]
pub struct Unknown {
    /// The operation that was asked, as an operator would name it: `claim`, `get`, `list`.
    pub op: &'static str,
    /// What it was asked about: a lease, a key, a bucket.
    pub resource: Box<str>,
    /// Why there is no answer.
    pub cause: Cause,
    /// Whether what was asked may still happen.
    pub landing: Landing,
}

impl Unknown {
    /// An unknown about something that changes nothing, or that certainly did not happen.
    pub fn settled(op: &'static str, resource: impl Into<Box<str>>, cause: Cause) -> Unknown {
        Unknown { op, resource: resource.into(), cause, landing: Landing::Settled }
    }

    /// An unknown about a write that may still land.
    pub fn in_flight(op: &'static str, resource: impl Into<Box<str>>, cause: Cause) -> Unknown {
        Unknown { op, resource: resource.into(), cause, landing: Landing::InFlight }
    }

    /// The same unknown, told as the answer of the operation that stands on it.
    #[must_use]
    pub fn during(self, op: &'static str, resource: impl Into<Box<str>>) -> Unknown {
        Unknown { op, resource: resource.into(), ..self }
    }

    /// The same unknown, of an operation of which an `earlier` write was left so.
    #[must_use]
    pub fn after(self, earlier: Landing) -> Unknown {
        match earlier {
            Landing::Settled => self,
            Landing::InFlight => Unknown { landing: Landing::InFlight, ..self },
        }
    }
}

/// Whether a write without an answer may still take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// It has not been applied and never will be; of a read: it changes nothing.
    Settled,
    /// It may have been applied, or may be applied later.
    InFlight,
}

impl Landing {
    fn note(self) -> &'static str {
        match self {
            Landing::Settled => "",
            Landing::InFlight => " (the write may still land)",
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection to a broker; nothing was sent, or the connection went away before the answer.
    Disconnected,
    /// No answer within the time given.
    Timeout,
    /// No server listens on the subject: the stream has no leader, or does not exist.
    NoResponders,
    /// A member answered that knows no leader.
    Leaderless,
    /// The store is full, overloaded or otherwise not serving: the API's status and error code.
    Unavailable {
        /// HTTP-like status, 503 for instance.
        code: u16,
        /// The API's own error code (`err_code`); 0 where a bare status came back.
        err_code: u16,
    },
    /// An answer older than something already known: a deposed leader, or a replica that is behind.
    Stale {
        /// The sequence that the answer carried.
        answered: u64,
        /// The sequence already known.
        known: u64,
    },
    /// The answer cannot be read.
    Garbage(Box<str>),
    /// The stored value cannot be decoded by this build.
    Undecodable(Box<str>),
    /// Rivals kept winning for as many rounds as this operation may take.
    Contended {
        /// How many rounds it took part in.
        rounds: u32,
    },
    /// More keys under one filter than a listing can certify.
    TooMany {
        /// Keys found.
        keys: u64,
        /// The bound.
        most: u64,
    },
    /// What would have to be written again is more than the broker takes by now.
    TooLarge(Box<str>),
}

impl Cause {
    /// A value that cannot be decoded, and what its decoder says of that. A decoder quotes what it stumbles over, which can be
    /// the whole value: of a long text the beginning stays, which says what is wrong, and the end, which says where.
    pub fn undecodable(what: impl fmt::Display) -> Cause {
        const HEAD: usize = 160;
        const TAIL: usize = 60;
        let what = what.to_string();
        if what.len() <= HEAD + TAIL {
            return Cause::Undecodable(what.into());
        }
        let (head, tail) = (what.floor_char_boundary(HEAD), what.ceil_char_boundary(what.len() - TAIL));
        Cause::Undecodable(format!("{} […] {}", &what[..head], &what[tail..]).into())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Disconnected => f.write_str("no connection to the broker"),
            Cause::Timeout => f.write_str("no answer in time"),
            Cause::NoResponders => f.write_str("no responders (503)"),
            Cause::Leaderless => f.write_str("no leader"),
            Cause::Unavailable { code, err_code: 0 } => write!(f, "unavailable ({code})"),
            Cause::Unavailable { code, err_code } => write!(f, "unavailable ({code}, error {err_code})"),
            Cause::Stale { answered, known } => {
                write!(f, "a stale answer (sequence {answered}, {known} is known)")
            }
            Cause::Garbage(what) => write!(f, "an unreadable answer: {what}"),
            Cause::Undecodable(what) => write!(f, "an undecodable record: {what}"),
            Cause::Contended { rounds } => write!(f, "contended for {rounds} rounds"),
            Cause::TooLarge(what) => write!(f, "more than the broker takes: {what}"),
            Cause::TooMany { keys, most } => write!(f, "{keys} keys under one filter, at most {most} can be certified"),
        }
    }
}

/// An argument that breaks a rule, found before anything was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {given:?}: {rule}")]
pub struct BadArgument {
    /// Which argument.
    pub what: &'static str,
    /// What was given.
    pub given: Box<str>,
    /// The rule that it breaks.
    pub rule: Box<str>,
}

impl BadArgument {
    /// Names an argument, what was given, and the rule it breaks.
    pub fn new(what: &'static str, given: impl Into<Box<str>>, rule: impl Into<Box<str>>) -> BadArgument {
        BadArgument { what, given: given.into(), rule: rule.into() }
    }
}

/// What an operation may answer besides a definite yes or no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The caller's mistake; nothing was sent.
    #[error(transparent)]
    BadArgument(#[from] BadArgument),
    /// The third answer.
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

impl Error {
    /// The same error; an unknown is told as the answer of the operation that stands on it.
    #[must_use]
    pub fn during(self, op: &'static str, resource: impl Into<Box<str>>) -> Error {
        match self {
            Error::Unknown(unknown) => Error::Unknown(unknown.during(op, resource)),
            Error::BadArgument(error) => Error::BadArgument(error),
        }
    }
}

impl Error {
    /// The unknown, when that is what this is.
    pub fn unknown(&self) -> Option<&Unknown> {
        match self {
            Error::Unknown(unknown) => Some(unknown),
            Error::BadArgument(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_write_says_that_it_may_land() {
        let lost = Unknown::in_flight("renew", "seat:a", Cause::Timeout);
        assert_eq!(lost.to_string(), "renew seat:a: unknown: no answer in time (the write may still land)");
        let refused = Unknown::settled("renew", "seat:a", Cause::NoResponders);
        assert_eq!(refused.to_string(), "renew seat:a: unknown: no responders (503)");
        assert_eq!(refused.clone().after(Landing::Settled), refused);
        assert_eq!(refused.after(Landing::InFlight).landing, Landing::InFlight);
        assert_eq!(lost.clone().after(Landing::Settled), lost, "what may land goes on to");
    }

    #[test]
    fn what_a_decoder_says_is_told_as_far_as_it_helps() {
        let short = Cause::undecodable("expected value at line 1 column 1");
        assert_eq!(short, Cause::Undecodable("expected value at line 1 column 1".into()));
        for quoted in ["x".repeat(1 << 20), "é".repeat(1 << 19), "🙂".repeat(90)] {
            let error = serde_json::from_str::<u32>(&format!("\"{quoted}\"")).unwrap_err();
            let told = Cause::undecodable(error).to_string();
            assert!(told.len() < 300 && told.contains("invalid type: string"), "{told}");
            assert!(told.contains("expected u32 at line 1 column"), "{told}");
        }
    }

    #[test]
    fn a_bad_argument_names_the_input_and_the_rule() {
        let error = Error::from(BadArgument::new("resource", "seat:", "an empty segment"));
        assert_eq!(error.to_string(), "invalid resource \"seat:\": an empty segment");
        assert_eq!(error.unknown(), None);
    }
}
