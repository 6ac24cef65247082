//! The leanest NATS client there can be: protocol bytes over a socket, one task, no channels, no copies.
//!
//! `CONNECT`, `SUB`, `PUB` and `HPUB` go out; `MSG`, `HMSG`, `PING`, `PONG` and `-ERR` are read. Whoever owns a [`Lean`] writes
//! requests into its buffer, sends the buffer, and takes the answers in whatever order they come. An answer's subject ends in
//! the number that its request was given.
//!
//! It is here to find out what the brokers can do, and is no client for anything else: it does not reconnect, does not speak
//! TLS, and believes what it reads.
//!
//! The protocol: <https://docs.nats.io/reference/reference-protocols/nats-protocol>.

use std::io::{self, Write as _};
use std::ops::Range;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use engine::broker::Secret;
use engine::env::Env;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a connection may take to be made, and an answer to come: far longer than any takes on brokers that serve.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What the subjects of all answers begin with.
const INBOX: &[u8] = b"_F.";

/// How much is read at once at most.
const READ: usize = 64 * 1024;

/// Who a client says it is.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: Secret,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LeanError {
    /// The socket failed.
    #[error("floor: {attempt} {address}: {source}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// The broker.
        address: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The broker says that something is wrong.
    #[error("floor: {address} says {text}")]
    Refused {
        /// The broker.
        address: String,
        /// Its words.
        text: String,
    },
    /// What came is not the protocol.
    #[error("floor: {address} sent {line:?}, which is not the protocol")]
    Garbage {
        /// The broker.
        address: String,
        /// What it sent.
        line: String,
    },
    /// Nothing came for too long.
    #[error("floor: {address} did not answer within {within:?}")]
    Silent {
        /// The broker.
        address: String,
        /// How long it was waited for.
        within: Duration,
    },
}

/// A message that came, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) subject: &'a [u8],
    /// Where an answer to it goes; empty where none is wanted.
    pub(super) reply: &'a [u8],
    /// The header block with its version line; empty where there is none.
    pub(super) headers: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl Message<'_> {
    /// The number of the request that this answers; none where its subject does not end in one.
    pub(super) fn answers(&self) -> Option<u32> {
        // A record that a consumer delivers has a subject of its own, which may end in any number.
        u32::try_from(last_number(self.subject.strip_prefix(INBOX)?)?).ok()
    }

    /// The status in the version line: `503` where nobody listens.
    pub(super) fn status(&self) -> Option<u16> {
        let line = self.headers.strip_prefix(b"NATS/1.0 ")?;
        line.get(..3)?.iter().try_fold(0, |number, digit| Some(number * 10 + u16::from(digit_of(*digit)?)))
    }
}

/// The number that is the last token of a subject.
pub(super) fn last_number(subject: &[u8]) -> Option<u64> {
    let token = &subject[subject.iter().rposition(|byte| *byte == b'.')? + 1..];
    number(token)
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit_of(*digit)?)))
}

fn digit_of(byte: u8) -> Option<u8> {
    byte.is_ascii_digit().then(|| byte - b'0')
}

/// Where the parts of a message lie in a buffer, and where it ends.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    subject: Range<usize>,
    reply: Range<usize>,
    headers: Range<usize>,
    payload: Range<usize>,
    end: usize,
}

/// What stands first in a buffer.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Message(Frame),
    /// Something without a payload, up to this end.
    Other(Range<usize>, usize),
    /// It is not whole yet.
    Partial,
    /// It is not the protocol.
    Garbage,
}

/// Reads what stands first in `buffer`, from `at` on.
fn first(buffer: &[u8], at: usize) -> Line {
    let Some(length) = memchr::memchr(b'\n', &buffer[at..]) else { return Line::Partial };
    let after = at + length + 1;
    let line = at..if buffer[..after].ends_with(b"\r\n") { after - 2 } else { after - 1 };
    let text = &buffer[line.clone()];
    let with_headers = text.starts_with(b"HMSG ");
    if !with_headers && !text.starts_with(b"MSG ") {
        return Line::Other(line, after);
    }
    // At most: the verb, the subject, the subscription, the reply, two lengths.
    let mut tokens: [Range<usize>; 6] = Default::default();
    let mut met = 0;
    let mut from = line.start;
    for to in memchr::memchr_iter(b' ', text).map(|space| line.start + space).chain([line.end]) {
        if from < to {
            let Some(token) = tokens.get_mut(met) else { return Line::Garbage };
            *token = from..to;
            met += 1;
        }
        from = to + 1;
    }
    let lengths = 1 + usize::from(with_headers);
    let reply = match met.checked_sub(3 + lengths) {
        Some(0) => 0..0,
        Some(1) => tokens[3].clone(),
        _ => return Line::Garbage,
    };
    let length = |token: &Range<usize>| number(&buffer[token.clone()]).and_then(|length| usize::try_from(length).ok());
    let Some(total) = length(&tokens[met - 1]) else { return Line::Garbage };
    let of_headers = if with_headers { length(&tokens[met - 2]) } else { Some(0) };
    let Some(of_headers) = of_headers.filter(|of_headers| *of_headers <= total) else { return Line::Garbage };
    let end = after + total + 2;
    if buffer.len() < end {
        return Line::Partial;
    }
    let (headers, payload) = (after..after + of_headers, after + of_headers..after + total);
    Line::Message(Frame { subject: tokens[1].clone(), reply, headers, payload, end })
}

/// A connection.
pub(super) struct Lean {
    env: Env,
    address: String,
    /// The broker's own name, as its greeting says it.
    server: String,
    stream: TcpStream,
    /// What the subjects begin with that its answers come to.
    inbox: String,
    subscriptions: u32,
    out: Vec<u8>,
    read: BytesMut,
    /// How much of `read` was taken.
    taken: usize,
}

impl Lean {
    /// Connects to a broker (`host:port`), as `user` or as nobody in particular.
    ///
    /// # Errors
    /// When there is none, it does not let this client in, or it takes too long.
    pub(super) async fn connect(env: &Env, address: &str, user: Option<&User>) -> Result<Lean, LeanError> {
        let connecting = async {
            let failed = |source| LeanError::Io { attempt: "connect to", address: address.to_owned(), source };
            let stream = TcpStream::connect(address).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let mut lean = Lean {
                env: env.clone(),
                address: address.to_owned(),
                server: String::new(),
                stream,
                inbox: format!("_F.{:016x}.", env.random()),
                subscriptions: 0,
                out: Vec::with_capacity(READ),
                read: BytesMut::with_capacity(READ),
                taken: 0,
            };
            lean.greet(user).await?;
            Ok(lean)
        };
        let silent = || LeanError::Silent { address: address.to_owned(), within: PATIENCE };
        env.within(env.now() + PATIENCE, connecting).await.map_err(|_| silent())?
    }

    async fn greet(&mut self, user: Option<&User>) -> Result<(), LeanError> {
        let info = self.line().await?;
        let info = info.strip_prefix("INFO ").ok_or_else(|| self.garbage(info.as_bytes()))?;
        let info: serde_json::Value = serde_json::from_str(info).map_err(|_| self.garbage(info.as_bytes()))?;
        info["server_name"].as_str().unwrap_or_default().clone_into(&mut self.server);
        let mut options = serde_json::json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true, "protocol": 1,
            "name": "loadgen-floor", "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
        });
        if let Some(User { name, password }) = user {
            options["user"] = name.as_str().into();
            options["pass"] = password.expose().into();
        }
        self.write(format_args!("CONNECT {options}\r\n"));
        let answers = format!("{}*", self.inbox);
        self.subscribe(&answers);
        self.write(format_args!("PING\r\n"));
        self.flush().await?;
        loop {
            let line = self.line().await?;
            match line.as_str() {
                "PONG" => return Ok(()),
                _ if line.starts_with("-ERR") => return Err(self.refused(line.as_bytes())),
                _ => {}
            }
        }
    }

    /// The next line that is no message, waited for.
    async fn line(&mut self) -> Result<String, LeanError> {
        loop {
            match first(&self.read, self.taken) {
                Line::Other(line, end) => {
                    let text = String::from_utf8_lossy(&self.read[line]).into_owned();
                    self.taken = end;
                    return Ok(text);
                }
                Line::Message(frame) => self.taken = frame.end,
                Line::Partial => self.fill().await?,
                Line::Garbage => return Err(self.garbage(&self.read[self.taken..])),
            }
        }
    }

    /// The broker's own name.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Writes a subscription; answers its number.
    pub(super) fn subscribe(&mut self, subject: &str) -> u32 {
        self.subscriptions += 1;
        let number = self.subscriptions;
        self.write(format_args!("SUB {subject} {number}\r\n"));
        number
    }

    /// Writes the end of a subscription.
    pub(super) fn unsubscribe(&mut self, number: u32) {
        self.write(format_args!("UNSUB {number}\r\n"));
    }

    /// Writes a request, which is answered under `number`.
    pub(super) fn ask(&mut self, number: u32, subject: impl std::fmt::Display, payload: &[u8]) {
        let (out, inbox) = (&mut self.out, &self.inbox);
        infallible(write!(out, "PUB {subject} {inbox}{number} {}\r\n", payload.len()));
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes a request with headers, each a line that ends in `\r\n`; without a number, nobody waits for its answer.
    pub(super) fn ask_with(
        &mut self,
        number: Option<u32>,
        subject: impl std::fmt::Display,
        headers: std::fmt::Arguments<'_>,
        payload: &[u8],
    ) {
        let mut block = [0; 512];
        let mut rest = &mut block[..];
        infallible(write!(rest, "NATS/1.0\r\n{headers}\r\n"));
        let left = rest.len();
        let block = &block[..512 - left];
        let (out, inbox) = (&mut self.out, &self.inbox);
        match number {
            Some(number) => infallible(write!(out, "HPUB {subject} {inbox}{number} ")),
            None => infallible(write!(out, "HPUB {subject} ")),
        }
        infallible(write!(out, "{} {}\r\n", block.len(), block.len() + payload.len()));
        out.extend_from_slice(block);
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes an empty message.
    pub(super) fn signal(&mut self, subject: &str) {
        self.write(format_args!("PUB {subject} 0\r\n\r\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        infallible(self.out.write_fmt(text));
    }

    /// Sends what was written.
    ///
    /// # Errors
    /// When the socket fails.
    pub(super) async fn flush(&mut self) -> Result<(), LeanError> {
        let sent = self.stream.write_all(&self.out).await;
        sent.map_err(|source| self.failed("write to", source))?;
        self.out.clear();
        Ok(())
    }

    /// The next message that has come; none when all were taken.
    ///
    /// # Errors
    /// When the broker complains, or does not speak the protocol.
    pub(super) fn take(&mut self) -> Result<Option<Message<'_>>, LeanError> {
        loop {
            match first(&self.read, self.taken) {
                Line::Message(frame) => {
                    self.taken = frame.end;
                    let of = |range: Range<usize>| &self.read[range];
                    let Frame { subject, reply, headers, payload, .. } = frame;
                    return Ok(Some(Message {
                        subject: of(subject),
                        reply: of(reply),
                        headers: of(headers),
                        payload: of(payload),
                    }));
                }
                Line::Other(line, end) => {
                    self.taken = end;
                    let line = &self.read[line];
                    if line.starts_with(b"PING") {
                        self.out.extend_from_slice(b"PONG\r\n");
                    } else if line.starts_with(b"-ERR") {
                        return Err(self.refused(line));
                    }
                }
                Line::Partial => return Ok(None),
                Line::Garbage => return Err(self.garbage(&self.read[self.taken..])),
            }
        }
    }

    /// Sends what was written and waits until more has come.
    ///
    /// # Errors
    /// When the socket fails or is closed, or nothing comes for too long.
    pub(super) async fn more(&mut self) -> Result<(), LeanError> {
        self.flush().await?;
        let by = self.env.now() + PATIENCE;
        let env = self.env.clone();
        match env.within(by, self.fill()).await {
            Ok(filled) => filled,
            Err(_) => Err(LeanError::Silent { address: self.address.clone(), within: PATIENCE }),
        }
    }

    async fn fill(&mut self) -> Result<(), LeanError> {
        self.read.advance(self.taken);
        self.taken = 0;
        self.read.reserve(READ);
        match self.stream.read_buf(&mut self.read).await {
            Ok(0) => Err(self.failed("read from", io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(source) => Err(self.failed("read from", source)),
        }
    }

    /// Waits for the answer to a request, which `read` reads. Whatever else comes meanwhile is passed over.
    ///
    /// # Errors
    /// As [`Lean::more`].
    pub(super) async fn answer<T>(&mut self, number: u32, read: impl Fn(&Message<'_>) -> T) -> Result<T, LeanError> {
        let [answer] = self.answers(number, |_, message| read(message)).await?;
        Ok(answer)
    }

    /// Waits for the answers to as many requests from number `first` on, in whatever order they come; `read` is told which of
    /// them it reads.
    ///
    /// # Errors
    /// As [`Lean::more`].
    pub(super) async fn answers<T, const N: usize>(
        &mut self,
        first: u32,
        read: impl Fn(usize, &Message<'_>) -> T,
    ) -> Result<[T; N], LeanError> {
        let mut answers = [const { None }; N];
        while answers.iter().any(Option::is_none) {
            let Some(message) = self.take()? else {
                self.more().await?;
                continue;
            };
            let index = message.answers().and_then(|number| number.checked_sub(first)).map(|index| index as usize);
            if let Some((index, answer)) = index.and_then(|index| Some((index, answers.get_mut(index)?))) {
                *answer = Some(read(index, &message));
            }
        }
        Ok(answers.map(|answer| answer.expect("it was just seen to be there")))
    }

    fn failed(&self, attempt: &'static str, source: io::Error) -> LeanError {
        LeanError::Io { attempt, address: self.address.clone(), source }
    }

    fn refused(&self, line: &[u8]) -> LeanError {
        LeanError::Refused { address: self.address.clone(), text: String::from_utf8_lossy(line).into_owned() }
    }

    fn garbage(&self, line: &[u8]) -> LeanError {
        let line = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        LeanError::Garbage { address: self.address.clone(), line }
    }
}

fn infallible(written: io::Result<()>) {
    written.expect("a buffer takes what is written, and headers are short");
}

#[cfg(test)]
mod tests;
