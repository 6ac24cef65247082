//! The peers as what is around them sees them: how they are opened, whose turn it is, and what they say of themselves.

use std::future::Future;

use engine::store::nats::Nats;
use futures_util::future::try_join_all;
use serde_json::Value;

use super::etcd::{self, Cluster, Etcd};
use super::kv::Kv;
use super::layer::Layer;
use super::peer::Peer;
use super::tally::{PEERS, Tally, WORKS, turn};
use super::work::{Piece, Work};
use super::{LISTED, Params, Peers};
use crate::duration;
use crate::recorder::Recorder;
use crate::report::{Anomalies, BringUp, Report};
use crate::scenario::{DRAIN, Parts, Ran, Scenario, Start};
use crate::table::units::{count, percent, time};
use crate::target::{Target, Unavailable};

/// The part with which the measurement begins. Every turn is a part of its own name.
const TURNS: &str = "turns";

/// A peer, and what it holds in this round.
struct Seat<P: Peer> {
    name: &'static str,
    work: Work<P>,
    held: Vec<Vec<P::Held>>,
}

/// The peers that there are.
struct All {
    layer: Seat<Layer>,
    kv: Seat<Kv>,
    etcd: Option<(Seat<Etcd>, Seat<Etcd>)>,
    /// Lives as long as they do.
    _cluster: Option<Cluster>,
}

impl Scenario for Peers {
    const NAME: &'static str = "peers";
    const CLIENTS: &'static str = "nodes";
    const MEASURED_FROM: &'static str = TURNS;

    type Params = Params;
    type CameTo = ();

    /// Every node has a connection for each peer.
    fn clients(params: &Params) -> usize {
        params.nodes * PEERS.len()
    }

    fn schedule_digest(_params: &Params) -> Option<u64> {
        None
    }

    fn new(params: Params, Start { env, origin, prefix, replicas }: Start) -> Peers {
        let mut recorder = Recorder::new(origin);
        let tally = Tally::new(&mut recorder);
        Peers { env, params, prefix, replicas, recorder, tally, parts: Parts::default() }
    }

    async fn open_and_run(
        &self,
        target: &Target,
        first: &Nats,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Ran<()>, Unavailable> {
        let mut interrupt = std::pin::pin!(interrupt);
        let mut all = tokio::select! {
            all = Box::pin(self.open(target, first)) => all?,
            () = &mut interrupt => return Ok(Ran { interrupted: true, ..Ran::default() }),
        };
        let etcd = all.etcd.is_some();
        tracing::info!(nodes = self.params.nodes, etcd, buckets = self.prefix, "peers_connected");
        self.recorder.measure_from(self.env.now());
        self.parts.enter(TURNS, self.env.now());
        let interrupted = tokio::select! {
            () = Box::pin(self.rounds(&mut all)) => false,
            // What is dropped here ends whatever is under way.
            () = interrupt => true,
        };
        self.parts.enter(DRAIN, self.env.now());
        Ok(Ran { interrupted, brought_up: true, came_to: () })
    }

    fn buckets(&self) -> Vec<String> {
        Layer::buckets(&self.prefix).into_iter().chain(Kv::buckets(&self.prefix)).collect()
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn parts(&self) -> &Parts {
        &self.parts
    }

    /// What the layer did wrong. That others are is a result and no anomaly.
    fn anomalies(&self) -> Anomalies {
        let of = |works: &[&str]| works.iter().map(|work| self.tally.wrong(turn(work, "layer"))).sum();
        Anomalies {
            winners_told_not_held: of(&["claim"]),
            live_leases_lost: of(&["renew_paced", "renew_flat"]),
            listing_short: of(&WORKS[3..9]),
            // Charges that were acknowledged and are not counted, or the other way round.
            ops_unsettled: of(&["charge"]),
            ..Anomalies::default()
        }
    }

    fn params(&self, (): &()) -> Vec<(&'static str, Value)> {
        let params = &self.params;
        vec![
            ("seats", params.seats.into()),
            ("nodes", params.nodes.into()),
            ("claimers", params.claimers.into()),
            ("heartbeat", duration::format(params.heartbeat).into()),
            ("rounds", params.rounds.into()),
            ("slice", duration::format(params.slice).into()),
            ("charges", params.charges.into()),
            ("turns", self.tally.reported()),
        ]
    }

    fn bring_up(&self) -> Option<BringUp> {
        None
    }

    fn progress(&self, part: &str) -> Option<String> {
        (part == "opening").then(|| format!("connecting {} nodes to each peer, filling classes", self.params.nodes))
    }

    /// A line for each turn, and one that says what is missing.
    fn remarks(report: &Report) -> Vec<String> {
        let turns = report.params.get("turns").and_then(Value::as_object);
        let names = WORKS.iter().flat_map(|work| PEERS.map(|peer| turn(work, peer)));
        let mut lines: Vec<String> =
            names.filter_map(|name| Some(format!("{name}: {}", remark(turns?.get(name)?)?))).collect();
        if turns.is_some_and(|turns| !turns.is_empty() && !turns.contains_key(turn("claim", "etcd_seats"))) {
            lines.push("etcd was left out: there is no etcd in PATH".to_owned());
        }
        lines
    }
}

impl Peers {
    async fn open(&self, target: &Target, first: &Nats) -> Result<All, Unavailable> {
        let (named, nodes, ttl) = ((&*self.prefix, self.replicas), self.params.nodes, self.params.ttl());
        let mut stores = vec![first.clone()];
        stores.extend(try_join_all((1..nodes).map(|node| target.store(node))).await?);
        let layer = Layer::open(&self.env, &stores, named, (ttl, self.params.charges)).await?;
        let kv = Kv::open(target.access(), nodes, named, ttl).await?;
        let (mut etcd, mut cluster) = (None, None);
        if let Some(binary) = etcd::found() {
            let started = Box::pin(Cluster::start(&self.env, binary)).await?;
            if let Some(sampler) = self.parts.sampler() {
                started.processes().for_each(|(name, pid)| sampler.set_pid(&name, pid));
            }
            let of_seats = Etcd::open(&started, nodes, false, ttl).await?;
            let of_nodes = Etcd::open(&started, nodes, true, ttl).await?;
            etcd = Some((self.seat(PEERS[2], of_seats).await?, self.seat(PEERS[3], of_nodes).await?));
            cluster = Some(started);
        }
        let (layer, kv) = (self.seat(PEERS[0], layer).await?, self.seat(PEERS[1], kv).await?);
        Ok(All { layer, kv, etcd, _cluster: cluster })
    }

    /// A peer with its classes filled.
    async fn seat<P: Peer>(&self, name: &'static str, peer: P) -> Result<Seat<P>, Unavailable> {
        let work = Work { env: self.env.clone(), params: self.params.clone(), peer };
        for class in LISTED {
            let loaded = work.load(class, self.params.keys(class)).await;
            loaded.map_err(|reason| Unavailable::Peer { peer: name, reason })?;
        }
        Ok(Seat { name, work, held: Vec::new() })
    }

    async fn rounds(&self, all: &mut All) {
        for round in 0..self.params.rounds {
            for work in WORKS {
                self.take_turn(&mut all.layer, work, round).await;
                self.take_turn(&mut all.kv, work, round).await;
                if let Some((of_seats, of_nodes)) = &mut all.etcd {
                    self.take_turn(of_seats, work, round).await;
                    self.take_turn(of_nodes, work, round).await;
                }
            }
        }
    }

    async fn take_turn<P: Peer>(&self, seat: &mut Seat<P>, work: &'static str, round: usize) {
        let (name, from) = (turn(work, seat.name), self.env.now());
        let op = self.tally.op(name);
        self.parts.enter(name, from);
        let Seat { work: of, held, .. } = seat;
        let piece = match work {
            "claim" => {
                // What was held in the round before is let go of, and ends by itself.
                held.clear();
                let (piece, claimed) = of.claims(&op, round).await;
                *held = claimed;
                Ok(piece)
            }
            "renew_paced" => Ok(of.renewals(&op, held, true).await),
            "renew_flat" => Ok(of.renewals(&op, held, false).await),
            "charge" => of.charges(&op).await,
            _ => {
                let (class, churn) = work.strip_suffix("_churn").map_or((work, false), |class| (class, true));
                Ok(of.listings(&op, class, self.params.keys(class), churn).await)
            }
        };
        let piece = piece.unwrap_or_else(|failed| {
            tracing::warn!(turn = name, failed, "peer_turn_failed");
            Piece { unknown: 1, ..Piece::default() }
        });
        let cpu = self.servers_cpu(seat.name, from);
        self.tally.took(name, &piece, cpu);
    }

    /// The mean CPU since `from` of the servers that a peer stands on, all together.
    fn servers_cpu(&self, peer: &str, from: engine::env::Mono) -> Option<f64> {
        let sampler = self.parts.sampler()?;
        sampler.sample();
        let of_etcd = peer.starts_with("etcd");
        let servers = sampler.servers(from, self.env.now()).into_iter();
        let its = servers.filter(|(name, _)| name.starts_with("etcd") == of_etcd);
        its.map(|(_, usage)| usage.cpu_percent_mean).sum()
    }
}

/// What came of a turn, over the rounds.
fn remark(turn: &Value) -> Option<String> {
    let number = |of: &str, which: &str| turn.get(of)?.get(which)?.as_f64();
    let sum = |name: &str| turn.get(name)?.as_u64().map(count);
    let at = |of: &str| number(of, "median").map_or_else(|| "?".to_owned(), |ns| time(ns as u64));
    let rate = |which: &str| number("per_second", which).map(|rate| count(rate as u64));
    let cpu = number("servers_cpu_percent", "median").map_or_else(|| "?".to_owned(), percent);
    Some(format!(
        "{}/s ({} to {}), p50 {}, p99 {}, CPU of its servers {cpu}; {} wrong, {} unknown of {}",
        rate("median")?,
        rate("least")?,
        rate("most")?,
        at("p50_ns"),
        at("p99_ns"),
        sum("wrong")?,
        sum("unknown")?,
        sum("ok")?,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::full;

    #[test]
    fn a_turn_has_a_line_and_what_is_missing_is_said() {
        let mut report = full(Anomalies::default());
        let spread = |median: f64| json!({ "median": median, "least": median / 2.0, "most": median * 2.0 });
        let claim = json!({
            "rounds": 3, "ok": 30_000, "wrong": 2, "unknown": 0, "per_second": spread(5_000.0),
            "p50_ns": spread(9e6), "p99_ns": null, "servers_cpu_percent": spread(80.0),
        });
        report.params.insert("turns".into(), json!({ "claim/kv": claim }));
        let lines = [
            "claim/kv: 5,000/s (2,500 to 10,000), p50 9.00 ms, p99 ?, CPU of its servers 80.0 %; 2 wrong, 0 unknown of 30,000",
            "etcd was left out: there is no etcd in PATH",
        ];
        assert_eq!(Peers::remarks(&report), lines);
        report.params.clear();
        assert_eq!(Peers::remarks(&report), [] as [&str; 0]);
    }
}
