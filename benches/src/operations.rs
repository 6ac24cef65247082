//! The operations of a node over real brokers, each from a stand that holds what a node holds.

use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use coordproto::api::requests::Storage;
use coordproto::key::{Class, Resource};
use coordproto::lease::Terms;
use coordproto::slot::{LEASES, Retention};
use coordproto::window::Windows;
use engine::broker::{Cluster, Settings};
use engine::env::Env;
use engine::jetstream::{Jetstream, Options};
use engine::lease::{Claim, Config, Lease, Leases, Release, Renew};
use engine::slots;
use engine::slots::budgets::{Budgets, Caps};
use engine::store::nats::{Nats, NatsBucket};
use engine::store::{Bucket, BucketSpec, Certified, Expect, Put, Store, Write};
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::paths::{instant, windows};
use crate::{leaders, seat};

/// Seats that are held, renewed and listed.
pub const SEATS: usize = 100;

/// A TTL that no run outlasts.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How often an operation's requests are counted.
const COUNTED: usize = 9;

const OWNER: &str = "n007:9f86d081884c7d65";

/// What is asked of the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// One publish through the client library and nothing else: what the others are held against.
    Floor,
    /// As many such publishes at once as there are seats: what a burst is held against.
    Floors,
    /// One leader's read through the client library and nothing else: what a read is held against.
    Read,
    /// A claim of a free seat, and its release.
    Claim,
    /// A renewal.
    Renew,
    /// A renewal of every seat at once.
    Burst,
    /// Every seat, certified by the leader.
    ListLeader,
    /// A renewal, and every seat, proved by it.
    ListQuorum,
    /// A charge of a seat and its company.
    Charge,
    /// A write over a revision.
    Put,
    /// A leader's read.
    Get,
}

impl Operation {
    /// Every operation, the floors apart.
    pub const ALL: [Operation; 8] = [
        Operation::Claim,
        Operation::Renew,
        Operation::Burst,
        Operation::ListLeader,
        Operation::ListQuorum,
        Operation::Charge,
        Operation::Put,
        Operation::Get,
    ];

    /// What it is held against: a burst against a burst, since a disk may take a hundred writes in a row differently from one,
    /// and a read against a read, since it does not wait for the disk at all.
    pub fn floor(self) -> Operation {
        match self {
            Operation::Burst => Operation::Floors,
            Operation::Get => Operation::Read,
            _ => Operation::Floor,
        }
    }

    /// What it is called on every stand.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Floor => "a bare publish",
            Operation::Floors => "100 bare publishes at once",
            Operation::Read => "a bare read",
            Operation::Claim => "claim and release a seat",
            Operation::Renew => "renew a seat",
            Operation::Burst => "renew 100 seats in a burst",
            Operation::ListLeader => "list 100 seats, certified by the leader",
            Operation::ListQuorum => "renew, and list 100 seats, proved by it",
            Operation::Charge => "charge a seat and its company",
            Operation::Put => "put a record",
            Operation::Get => "get a record",
        }
    }
}

/// Every operation on every stand, in the order of the table: how many brokers, and what the table calls it.
pub fn stands() -> impl Iterator<Item = (u8, Operation, String)> {
    let named = |members, brokers: &'static str| {
        Operation::ALL.map(|operation| (members, operation, format!("{brokers}: {}", operation.name()))).into_iter()
    };
    named(1, "one broker").chain(named(3, "three brokers"))
}

/// Brokers, and a node's connection to them that holds some seats.
pub struct Stand {
    jetstream: Jetstream,
    leases: Leases<Nats>,
    held: Vec<Lease>,
    free: Resource,
    budgets: Budgets<Nats>,
    windows: Windows,
    now: Timestamp,
    bucket: NatsBucket,
    record: Resource,
    revision: u64,
    bare: Client,
    bare_subject: String,
    bare_read: String,
    planted: Option<Operation>,
    // Last, so that the connections end before it.
    cluster: Cluster,
}

impl Stand {
    /// Starts that many brokers, claims the seats, and does every operation once: what the first one leaves behind, such as
    /// the record of a seat that was released, is there whatever is asked for later, and in whatever order.
    ///
    /// # Panics
    /// When that fails: there is nothing to measure then.
    pub async fn open(members: u8) -> Stand {
        let env = Env::seeded(1);
        let cluster = Cluster::start(Settings::new(members), env.clone()).await.expect("the brokers start");
        let access = cluster.access();
        let options = async || access.connect_options().await.expect("credentials");
        // Both to the same member.
        let urls = &access.urls()[..1];
        let bare = options().await.connect(urls).await.expect("connected");
        let named = Options::named("bench");
        let jetstream = Box::pin(Jetstream::connect(env.clone(), urls, options().await, named)).await;
        let jetstream = jetstream.expect("connected");
        let store = Nats::new(jetstream.clone(), Storage::File);
        let config = Config { lease_ttl: TTL, replicas: members, ..Config::default() };
        let leases = Leases::open(env.clone(), &store, &config).await.expect("the buckets open");
        let settings =
            slots::Settings { prefix: config.prefix.clone(), replicas: members, retention: Retention::default() };
        let budgets = Budgets::open(&store, &settings).await.expect("the bucket opens");
        let spec = BucketSpec::of(&LEASES, &config.prefix, TTL, members);
        let bucket = store.open(&spec).await.expect("the bucket opens");
        if members > 1 {
            leaders::gather(&env, &bare).await;
        }
        let mut stand = Stand {
            held: Vec::with_capacity(SEATS),
            free: seat(SEATS),
            windows: windows(),
            now: instant(),
            record: Resource::parse("other:record").expect("a good name"),
            revision: 0,
            bare,
            bare_subject: format!("$KV.{}.other.bare", bucket.name()),
            bare_read: format!("$JS.API.STREAM.MSG.GET.KV_{}", bucket.name()),
            jetstream,
            leases,
            budgets,
            bucket,
            planted: None,
            cluster,
        };
        for n in 0..SEATS {
            let lease = stand.claim(seat(n)).await;
            stand.held.push(lease);
        }
        for operation in [Operation::Floor].into_iter().chain(Operation::ALL) {
            stand.once(operation).await;
        }
        stand
    }

    /// From now on, the operation makes one request more.
    pub fn plant(&mut self, operation: Operation) {
        self.planted = Some(operation);
    }

    /// Does an operation once.
    ///
    /// # Panics
    /// When it has no answer, or not the one that it must have.
    pub async fn once(&mut self, operation: Operation) {
        if self.planted == Some(operation) {
            self.get().await;
        }
        match operation {
            Operation::Floor => self.publish().await,
            Operation::Floors => drop(join_all((0..SEATS).map(|_| self.publish())).await),
            Operation::Read => {
                let asked = Bytes::from(format!(r#"{{"last_by_subj":"{}"}}"#, self.bare_subject));
                let reply = self.bare.request(self.bare_read.clone(), asked).await.expect("a message");
                assert!(reply.payload.windows(6).any(|part| part == b"\"seq\":"), "{reply:?}");
            }
            Operation::Claim => {
                let lease = self.claim(self.free.clone()).await;
                assert_eq!(self.leases.release(&lease).await, Ok(Release::Released));
            }
            Operation::Renew => assert_eq!(self.leases.renew(&mut self.held[0]).await, Ok(Renew::Extended)),
            Operation::Burst => {
                let renewals = self.leases.renew_all(&mut self.held).await;
                assert!(renewals.iter().all(|renewal| renewal.answer == Ok(Renew::Extended)));
            }
            Operation::ListLeader => self.list(&Certified::Leader).await,
            Operation::ListQuorum => {
                assert_eq!(self.leases.renew(&mut self.held[0]).await, Ok(Renew::Extended));
                self.list(&Certified::Quorum(self.leases.barrier(&self.held[0]))).await;
            }
            Operation::Charge => {
                let charge = self.budgets.charge("alpha", 1_234, &self.windows, &Caps::default(), self.now).await;
                assert!(charge.is_ok(), "{charge:?}");
            }
            Operation::Put => self.put().await,
            Operation::Get => self.get().await,
        }
    }

    /// The requests of one operation: all of the connection's, since some are made by other tasks on its behalf. What is only
    /// asked again, for want of an answer, is not among them.
    pub async fn requests(&mut self, operation: Operation) -> u64 {
        let mut counts = [0; COUNTED];
        for count in &mut counts {
            let before = self.jetstream.stats();
            self.once(operation).await;
            *count = self.jetstream.stats().since(&before).total();
        }
        told(operation, self.cluster.members().len(), &counts)
    }

    async fn claim(&self, resource: Resource) -> Lease {
        match self.leases.claim(&Terms::new(resource, OWNER, TTL)).await {
            Ok(Claim::Held(lease)) => lease,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn list(&self, certified: &Certified) {
        // What the claims of the free seat leave behind is looked at too. The leader certifies that no key is missing, and not
        // that a value is the last one: a member that is behind may still show the free seat as it was held a moment ago.
        let most = if *certified == Certified::Leader { SEATS + 1 } else { SEATS };
        let listed = self.leases.list(&Class::seat(), certified).await.map(|listed| listed.len());
        assert!(matches!(listed, Ok(seats) if (SEATS..=most).contains(&seats)), "{certified:?}: {listed:?}");
    }

    async fn publish(&self) {
        let value = Bytes::from_static(
            b"a value of a hundred bytes or so, as most records are when they are written over and over again",
        );
        let reply = self.bare.request(self.bare_subject.clone(), value).await.expect("acknowledged");
        assert!(reply.payload.starts_with(b"{\"stream\":"), "{reply:?}");
    }

    async fn get(&self) {
        let found = self.bucket.get(self.record.key()).await;
        assert!(matches!(found, Ok(Some(_))), "{found:?}");
    }

    async fn put(&mut self) {
        let value = Write::Value(Bytes::from_static(b"a value"));
        match self.bucket.put(self.record.key(), value, Expect::At(self.revision)).await {
            Ok(Put::Stored(revision)) => self.revision = revision,
            other => panic!("not stored: {other:?}"),
        }
    }
}

/// Which of the counts is the operation's: the most, so that a request more in a single one of them is told.
///
/// Of a listing that a renewal proves, on several brokers, it is the fewest. Any member answers it, and one that does not yet
/// hold that renewal is asked again: one listing in four was seen to ask so once more, so that of nine not even the median is
/// the same every time. A request more in only some of them is told on one broker, where nobody is behind.
fn told(operation: Operation, members: usize, counts: &[u64; COUNTED]) -> u64 {
    let differs = operation == Operation::ListQuorum && members > 1;
    let told = if differs { counts.iter().min() } else { counts.iter().max() };
    *told.expect("an array that is not empty")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Sight, TIMINGS, judge, row};
    use crate::sampling::{Sampled, attempt};
    use crate::verdict::Wrong;

    /// Suspects are asked for again without the others, so what they ask must not depend on what was asked before.
    #[tokio::test]
    async fn an_operation_makes_the_requests_of_the_table_whatever_was_asked_before() {
        let baseline = TIMINGS.read().expect("the table");
        let mut stand = Box::pin(Stand::open(1)).await;
        for (_, operation, name) in stands().filter(|(members, ..)| *members == 1).collect::<Vec<_>>().into_iter().rev()
        {
            let asked = row(&name, &baseline).expect("a row that can be read").expect("a row").requests;
            assert_eq!(stand.requests(operation).await, asked, "{name}");
        }
    }

    #[test]
    fn one_request_more_in_one_of_nine_is_told_except_where_a_member_may_be_behind() {
        let more = |times| std::array::from_fn(|n| if n < times { 2 } else { 1 });
        let asked = |operation, members| [0, 1, COUNTED].map(|times| told(operation, members, &more(times)));
        for operation in Operation::ALL {
            assert_eq!(asked(operation, 1), [1, 2, 2], "{operation:?}");
            let several = if operation == Operation::ListQuorum { [1, 1, 2] } else { [1, 2, 2] };
            assert_eq!(asked(operation, 3), several, "{operation:?}");
        }
    }

    /// As the gate does it, from the attempt to the verdict. How long it took is the machine's business, so the times are the
    /// baseline's own: what is refused is refused for its requests.
    #[tokio::test]
    async fn a_planted_operation_is_refused_for_its_request_and_no_other_is() {
        let (renew, get) = ("one broker: renew a seat", "one broker: get a record");
        let baseline = TIMINGS.read().expect("the table");
        let mut found = Vec::new();
        let wanted = |name: &str| name == renew || name == get;
        Box::pin(attempt(&Env::seeded(1), wanted, Some(renew), |sampled| found.push(sampled))).await;
        let verdicts = found.into_iter().map(|sampled| {
            let mid = row(&sampled.name, &baseline).expect("a row that can be read").expect("a row").interval.mid;
            judge(&Sampled { samples: vec![mid; 35], ..sampled }, &baseline, 0.0)
        });
        let refused = Wrong::Broken(format!("{renew}: 2 requests, and the baseline says 1"));
        assert_eq!(verdicts.collect::<Vec<_>>(), [Err(refused), Ok(Sight::Sharp)]);
    }
}
