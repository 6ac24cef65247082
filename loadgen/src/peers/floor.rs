//! The column beside the peers: bare requests of a lean client on the same brokers, in the same rounds. What the layer does
//! costs that at least, whoever does it.
//!
//! Nobody is in the way of these requests, so one that is refused is wrong.

use engine::env::Env;
use engine::store::nats::Nats;

use super::work::Piece;
use super::{LISTED, Params};
use crate::floor::claims::Claims;
use crate::floor::{Bare, Ground, LeanError, Load, Request};
use crate::recorder::Outcome;
use crate::target::{Target, Unavailable};

/// The ground of all bare requests.
pub(super) struct Floor {
    params: Params,
    /// For renewals, and for the records of claims.
    records: Ground,
    claims: Claims,
    /// In the order of [`LISTED`].
    listed: Vec<Ground>,
}

impl Floor {
    /// Makes and fills its streams.
    ///
    /// # Errors
    /// As [`Ground::prepare`]: a bad argument where a bare client cannot speak to these brokers.
    pub(super) async fn open(
        env: &Env,
        target: &Target,
        first: &Nats,
        (prefix, replicas): (&str, u8),
        params: &Params,
    ) -> Result<Floor, Unavailable> {
        let (access, named) = (target.access(), of_records(prefix));
        let (named, load) = ((&*named, replicas), renewals(params));
        let records = Ground::prepare(env, access, first, named, 0, &[load]).await?;
        let claims = Claims::prepare(env, access, first, named, records.clone()).await?;
        let mut listed = Vec::new();
        for class in LISTED {
            let (named, keys) = (of_class(prefix, class), params.keys(class));
            listed.push(Ground::prepare(env, access, first, (&named, replicas), keys, &[PASS]).await?);
        }
        Ok(Floor { params: params.clone(), records, claims, listed })
    }

    /// The buckets that it makes.
    pub(super) fn buckets(prefix: &str) -> Vec<String> {
        let records = of_records(prefix);
        let classes = LISTED.into_iter().flat_map(|class| Ground::buckets(&of_class(prefix, class)));
        Ground::buckets(&records).into_iter().chain(Claims::buckets(&records)).chain(classes).collect()
    }

    /// How many connections it has at once.
    pub(super) fn connections(params: &Params) -> usize {
        params.nodes.max(params.claimers)
    }

    /// The requests of the claims of fresh seats, on a lane for each claimer.
    pub(super) async fn claims(&self, round: usize) -> Result<Piece, LeanError> {
        let Params { seats, claimers, .. } = self.params;
        Ok(self.claims.make(round * seats, seats, claimers).await?.into())
    }

    /// Renewals in bursts of a node, again and again.
    pub(super) async fn renewals(&self) -> Result<Piece, LeanError> {
        Ok(self.records.alone(&renewals(&self.params), self.params.slice).await?.into())
    }

    /// Passes over a class at rest.
    pub(super) async fn passes(&self, class: &str) -> Result<Piece, LeanError> {
        let index = LISTED.iter().position(|listed| *listed == class).expect("there is a ground of each class");
        let mut piece = Piece::default();
        while !piece.has_listings() {
            let more = Piece::from(self.listed[index].alone(&PASS, self.params.slice).await?);
            piece.took += more.took;
            piece.add(more);
        }
        Ok(piece)
    }
}

const PASS: Load = Load::of(Request::Pass, 1, 1);

/// The layer's own number of connections, and as many at once on each as a node has seats.
fn renewals(params: &Params) -> Load {
    let Params { seats, nodes, .. } = *params;
    Load { bursts: true, ..Load::of(Request::Cas, nodes, nodes * (seats / nodes).max(1)) }
}

fn of_records(prefix: &str) -> String {
    format!("{prefix}_bare")
}

fn of_class(prefix: &str, class: &str) -> String {
    format!("{prefix}_bare_{class}")
}

impl From<Bare> for Piece {
    fn from(Bare { took, measured }: Bare) -> Piece {
        let counts = measured.counts;
        Piece {
            ok: counts.of(Outcome::Ok),
            took,
            latency: measured.latency(&[Outcome::Ok]).corrected,
            wrong: counts.of(Outcome::Refused),
            unknown: counts.of(Outcome::Unknown) + counts.of(Outcome::Error),
            listed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::parse;
    use crate::peers::PeersArgs;

    #[test]
    fn the_bare_renewals_are_as_many_at_once_as_the_layers() {
        let load = |line| renewals(&parse::<PeersArgs>(line).unwrap().params());
        let (full, few) = (load("--seats 1000 --nodes 30"), load("--seats 3 --nodes 30"));
        assert_eq!((full.connections, full.in_flight, full.bursts), (30, 990, true));
        assert_eq!((few.connections, few.in_flight), (30, 30));
    }

    #[test]
    fn no_two_grounds_share_a_bucket() {
        let buckets = Floor::buckets("run");
        let unique: std::collections::HashSet<&String> = buckets.iter().collect();
        assert_eq!(unique.len(), buckets.len());
        assert!(buckets.iter().all(|bucket| bucket.starts_with("run_bare")));
    }
}
