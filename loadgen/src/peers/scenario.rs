//! The peers as what is around them sees them: how they are opened, whose turn it is, and what they say of themselves.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use engine::env::Mono;
use engine::store::Certified;
use engine::store::nats::Nats;
use futures_util::future::try_join_all;
use serde::Deserialize;
use serde_json::Value;

use super::durability::{self, Servers};
use super::etcd::{self, Cluster, Etcd};
use super::floor::Floor;
use super::kv::Kv;
use super::layer::Layer;
use super::listed::{Account, Wrongs};
use super::peer::{Failed, Peer};
use super::tally::Tally;
use super::turns::{Column, Does, Listing, Renewal, TURNS, Turn, of_round};
use super::work::{Piece, Work};
use super::{LISTED, Params, Peers, failed, ratios};
use crate::duration;
use crate::recorder::{Outcome, Recorder};
use crate::report::{Anomalies, BringUp, Report};
use crate::scenario::{DRAIN, Parts, Ran, Scenario, Start};
use crate::table::units::{count, percent, time};
use crate::target::{Target, Unavailable};

/// The part with which the measurement begins. Every turn is a part of its own name.
const TURNS_BEGIN: &str = "turns";

/// The servers among a report's parameters: null until all are open.
const SERVERS: &str = "servers";

/// The part in which everything is renewed once before renewals are measured.
const SETTLE: &str = "settle";

/// How long nothing is asked.
const IDLE: Duration = Duration::from_secs(5);

/// A peer, and what it holds in this round.
struct Seat<P: Peer> {
    work: Work<P>,
    held: Vec<Vec<P::Held>>,
}

/// The peers that there are.
struct All {
    layer: Seat<Layer>,
    kv: Seat<Kv>,
    etcd: Option<(Seat<Etcd>, Seat<Etcd>)>,
    floor: Option<Floor>,
    /// Lives as long as they do.
    _cluster: Option<Cluster>,
}

impl Scenario for Peers {
    const NAME: &'static str = "peers";
    const CLIENTS: &'static str = "nodes";
    const MEASURED_FROM: &'static str = TURNS_BEGIN;

    type Params = Params;
    type CameTo = ();

    /// Every node has a connection for each of the four peers.
    fn clients(params: &Params) -> usize {
        4 * params.nodes + Floor::connections(params)
    }

    fn schedule_digest(_params: &Params) -> Option<u64> {
        None
    }

    fn new(params: Params, Start { env, origin, prefix, replicas }: Start) -> Peers {
        let mut recorder = Recorder::new(origin);
        let tally = Tally::new(&mut recorder);
        let (parts, servers) = (Parts::default(), OnceLock::new());
        Peers { env, params, prefix, replicas, recorder, tally, parts, servers }
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
        let (etcd, floor) = (all.etcd.is_some(), all.floor.is_some());
        tracing::info!(nodes = self.params.nodes, etcd, floor, buckets = self.prefix, "peers_connected");
        self.recorder.measure_from(self.env.now());
        self.parts.enter(TURNS_BEGIN, self.env.now());
        let interrupted = tokio::select! {
            () = Box::pin(self.rounds(&mut all)) => false,
            // What is dropped here ends whatever is under way.
            () = interrupt => true,
        };
        self.parts.enter(DRAIN, self.env.now());
        Ok(Ran { interrupted, brought_up: true, came_to: () })
    }

    fn buckets(&self) -> Vec<String> {
        [Layer::buckets(&self.prefix), Kv::buckets(&self.prefix), Floor::buckets(&self.prefix)].concat()
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn parts(&self) -> &Parts {
        &self.parts
    }

    /// What the layer did wrong. That others are is a result and no anomaly.
    fn anomalies(&self) -> Anomalies {
        let of = |at: fn(Does) -> bool| self.tally.of_the_layer(at, |round| round.wrong);
        let listed = |at: fn(Listing) -> bool, of: fn(Wrongs) -> u64| {
            let at = |does| matches!(does, Does::List(_, how) if at(how));
            self.tally.of_the_layer(at, |round| round.listed.map_or(0, of))
        };
        Anomalies {
            winners_told_not_held: of(|does| matches!(does, Does::Claim | Does::ClaimAndRead)),
            live_leases_lost: of(|does| matches!(does, Does::Renew(_))),
            listing_short: listed(|_| true, |wrongs| wrongs.short),
            listing_double: listed(|_| true, |wrongs| wrongs.double),
            // That the leader certifies a listing does not promise the newest value.
            listing_old: listed(|how| how == Listing::Proved, |wrongs| wrongs.old),
            // Charges that were acknowledged and are not counted, or the other way round.
            ops_unsettled: of(|does| does == Does::Charge),
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
            (SERVERS, serde_json::to_value(self.servers.get()).expect("names and numbers always serialise")),
            ("turns", self.tally.reported()),
            ("ratios", self.tally.ratios()),
        ]
    }

    fn bring_up(&self) -> Option<BringUp> {
        None
    }

    fn progress(&self, part: &str) -> Option<String> {
        (part == "opening").then(|| format!("connecting {} nodes to each peer, filling classes", self.params.nodes))
    }

    /// How durable each side is, a line for each turn, one for each work's ratios, and what is missing.
    fn remarks(report: &Report) -> Vec<String> {
        let turns = report.params.get("turns").and_then(Value::as_object).filter(|turns| !turns.is_empty());
        let Some(turns) = turns else { return Vec::new() };
        let line = |turn: &Turn| Some(format!("{}: {}", turn.name, remark(turns.get(turn.name)?)?));
        let servers = report.params.get(SERVERS).and_then(|servers| Servers::deserialize(servers).ok());
        let durability = |servers: Servers| durability::remarks(&report.environment.store, &servers);
        let mut lines = servers.map(durability).unwrap_or_default();
        lines.extend(TURNS.iter().filter_map(line));
        lines.extend(report.params.get("ratios").map(ratios::remarks).unwrap_or_default());
        for (turn, missing) in [
            ("claim/etcd_seats", "etcd was left out: there is no etcd in PATH"),
            ("claim/floor", "the floor was left out: bare requests know neither TLS nor a credentials file"),
        ] {
            // An interrupted run may not have come to it.
            if !turns.contains_key(turn) && turns.contains_key("claim_read/layer") {
                lines.push(missing.to_owned());
            }
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
        let (mut etcd, mut cluster, mut etcds) = (None, None, None);
        if let Some(binary) = etcd::found() {
            let started = Box::pin(Cluster::start(&self.env, binary)).await?;
            if let Some(sampler) = self.parts.sampler() {
                started.processes().for_each(|(name, pid)| sampler.set_pid(&name, pid));
            }
            let of_seats = Etcd::open(&started, nodes, false, ttl).await?;
            let of_nodes = Etcd::open(&started, nodes, true, ttl).await?;
            let of_seats = self.seat(Column::EtcdSeats, of_seats).await?;
            etcd = Some((of_seats, self.seat(Column::EtcdNodes, of_nodes).await?));
            etcds = Some(started.described().await?);
            cluster = Some(started);
        }
        let (layer, kv) = (self.seat(Column::Layer, layer).await?, self.seat(Column::Kv, kv).await?);
        let floor = match Floor::open(&self.env, target, first, named, &self.params).await {
            Ok(floor) => Some(floor),
            // It cannot speak to these brokers, which the others can.
            Err(Unavailable::BadArgument(reason)) => {
                tracing::warn!(%reason, "peers_floor_left_out");
                None
            }
            Err(unavailable) => return Err(unavailable),
        };
        let brokers = target.members().map(|(members, _)| members.len());
        self.servers.set(Servers { brokers, etcd: etcds }).expect("a run is opened once");
        Ok(All { layer, kv, etcd, floor, _cluster: cluster })
    }

    /// A peer with its classes filled.
    async fn seat<P: Peer>(&self, column: Column, peer: P) -> Result<Seat<P>, Unavailable> {
        let work = Work { env: self.env.clone(), params: self.params.clone(), peer, account: Account::default() };
        for class in LISTED {
            let loaded = work.load(class, self.params.keys(class)).await;
            loaded.map_err(|reason| Unavailable::Peer { peer: column.name(), reason })?;
        }
        Ok(Seat { work, held: Vec::new() })
    }

    async fn rounds(&self, all: &mut All) {
        let (etcd, floor) = (all.etcd.is_some(), all.floor.is_some());
        let there = |column: Column| (etcd || !column.is_etcd()) && (floor || column != Column::Floor);
        for round in 0..self.params.rounds {
            let mut idle = None;
            for turn in of_round(round, there) {
                match (turn.work.does, turn.column, &mut all.etcd, &all.floor) {
                    (Does::Idle, ..) => {
                        // One stretch for all, since nobody does anything.
                        let from = match idle {
                            Some(from) => from,
                            None => *idle.insert(self.idle(turn.work.name).await),
                        };
                        self.over(turn, from, Ok(Piece::default()));
                    }
                    (Does::List(class, Listing::Proved), ..) => self.list_proved(&all.layer.work, turn, class).await,
                    (_, Column::Layer, ..) => self.take_turn(&mut all.layer, turn, round).await,
                    (_, Column::Kv, ..) => self.take_turn(&mut all.kv, turn, round).await,
                    (_, Column::EtcdSeats, Some((of_seats, _)), _) => self.take_turn(of_seats, turn, round).await,
                    (_, Column::EtcdNodes, Some((_, of_nodes)), _) => self.take_turn(of_nodes, turn, round).await,
                    (_, Column::Floor, _, Some(floor)) => self.ask_bare(floor, turn, round).await,
                    (_, Column::EtcdSeats | Column::EtcdNodes | Column::Floor, ..) => {}
                }
            }
        }
    }

    /// Asks nothing for a while; answers when that began.
    async fn idle(&self, part: &'static str) -> Mono {
        let from = self.env.now();
        self.parts.enter(part, from);
        self.env.sleep_until(from + IDLE).await;
        from
    }

    async fn take_turn<P: Peer>(&self, seat: &mut Seat<P>, turn: &Turn, round: usize) {
        let Seat { work, held } = seat;
        if turn.work.does == Does::Renew(Renewal::Natural) {
            self.parts.enter(SETTLE, self.env.now());
            work.settle(held).await;
        }
        let from = self.env.now();
        self.parts.enter(turn.name, from);
        let (op, seats) = (self.tally.op(turn), self.params.seats);
        let piece = match turn.work.does {
            Does::Claim => {
                // What was held in the round before is let go of, and ends by itself.
                held.clear();
                let (piece, claimed) = work.claims(&op, round, 0..seats, false).await;
                *held = claimed;
                Ok(piece)
            }
            // These end by themselves too.
            Does::ClaimAndRead => Ok(work.claims(&op, round, seats..seats + seats.div_ceil(10), true).await.0),
            Does::Renew(how) => Ok(work.renewals(&op, held, how).await),
            Does::List(class, how) => {
                let list = async |()| work.peer.list(class).await;
                Ok(work.listings(&op, class, how == Listing::Churned, async || Ok(()), list).await)
            }
            Does::Charge => work.charges(&op).await,
            Does::Idle => unreachable!("nobody takes a turn at nothing"),
        };
        self.over(turn, from, piece);
    }

    /// The layer's listings that stand on a write that a quorum has acknowledged.
    async fn list_proved(&self, work: &Work<Layer>, turn: &Turn, class: &'static str) {
        let from = self.env.now();
        self.parts.enter(turn.name, from);
        let barriers = self.tally.barrier();
        let stand = async || {
            let sent = self.env.now();
            let started = barriers.arrival(sent).start(sent);
            let barrier = work.peer.barrier(class).await;
            started.finish(if barrier.is_ok() { Outcome::Ok } else { Outcome::Unknown }, self.env.now(), 1);
            barrier
        };
        let list = async |barrier| work.peer.certified(class, &Certified::Quorum(barrier)).await;
        let piece = work.listings(&self.tally.op(turn), class, false, stand, list).await;
        self.over(turn, from, Ok(piece));
    }

    /// A turn of bare requests.
    async fn ask_bare(&self, floor: &Floor, turn: &Turn, round: usize) {
        let from = self.env.now();
        self.parts.enter(turn.name, from);
        let piece = match turn.work.does {
            Does::Claim => floor.claims(round).await,
            Does::Renew(_) => floor.renewals().await,
            Does::List(class, _) => floor.passes(class).await,
            Does::ClaimAndRead | Does::Idle | Does::Charge => unreachable!("there are no bare requests for these"),
        };
        self.over(turn, from, piece.map_err(failed));
    }

    /// A turn is over that began at `from`.
    fn over(&self, turn: &Turn, from: Mono, piece: Result<Piece, Failed>) {
        let piece = piece.unwrap_or_else(|failed| {
            tracing::warn!(turn = turn.name, failed, "peer_turn_failed");
            Piece { unknown: 1, ..Piece::default() }
        });
        let cpu = self.servers_cpu(turn.column, from);
        self.tally.took(turn, &piece, cpu);
    }

    /// The mean CPU since `from` of the servers that a column stands on, all together.
    fn servers_cpu(&self, column: Column, from: Mono) -> Option<f64> {
        let sampler = self.parts.sampler()?;
        sampler.sample();
        let servers = sampler.servers(from, self.env.now()).into_iter();
        let its = servers.filter(|(name, _)| name.starts_with("etcd") == column.is_etcd());
        its.map(|(_, usage)| usage.cpu_percent_mean).sum()
    }
}

/// What came of a turn, over the rounds; of one in which nothing was asked, what that cost.
fn remark(turn: &Value) -> Option<String> {
    let number = |of: &str, which: &str| turn.get(of)?.get(which)?.as_f64();
    let sum = |name: &str| turn.get(name)?.as_u64().map(count);
    let at = |of: &str| number(of, "median").map_or_else(|| "?".to_owned(), |ns| time(ns as u64));
    let rate = |which: &str| number("per_second", which).map(|rate| count(rate as u64));
    let cpu = number("servers_cpu_percent", "median").map_or_else(|| "?".to_owned(), percent);
    let cpu = format!("CPU of its servers {cpu}");
    let Some(median) = rate("median") else { return Some(cpu) };
    let wrong = match [sum("short"), sum("double"), sum("old")] {
        [Some(short), Some(double), Some(old)] if turn.get("wrong")?.as_u64()? > 0 => {
            format!(" ({short} short, {double} double, {old} old)")
        }
        _ => String::new(),
    };
    Some(format!(
        "{median}/s ({} to {}), p50 {}, p99 {}, {cpu}; {} wrong{wrong}, {} unknown of {}",
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
        let idle = json!({
            "rounds": 3, "ok": 0, "wrong": 0, "unknown": 0, "per_second": null,
            "p50_ns": null, "p99_ns": null, "servers_cpu_percent": spread(2.5),
        });
        let listed = json!({
            "rounds": 3, "ok": 900, "wrong": 21, "unknown": 0, "per_second": spread(50.0),
            "p50_ns": spread(2e7), "p99_ns": null, "servers_cpu_percent": spread(80.0),
            "short": 20, "double": 1, "old": 3,
        });
        let turns = json!({
            "claim/kv": claim, "claim_read/layer": claim, "idle/kv": idle, "list_100_churn/kv": listed,
        });
        report.params.insert("servers".into(), json!({ "brokers": 3, "etcd": null }));
        report.params.insert("turns".into(), turns);
        let ratio = json!({ "of_medians": 0.5, "least": 0.4, "most": 0.75 });
        report.params.insert("ratios".into(), json!({ "claim": { "of": "per_second", "kv": ratio } }));
        let claim =
            "5,000/s (2,500 to 10,000), p50 9.00 ms, p99 ?, CPU of its servers 80.0 %; 2 wrong, 0 unknown of 30,000";
        let listed = "50/s (25 to 100), p50 20.0 ms, p99 ?, CPU of its servers 80.0 %; 21 wrong (20 short, 1 double, 3 old), 0 unknown of 900";
        let lines = [
            "layer, kv, floor: nats-server 2.15.1, 3 brokers; replicas 3, storage file, sync_interval 2m",
            &*format!("claim/kv: {claim}"),
            &*format!("claim_read/layer: {claim}"),
            "idle/kv: CPU of its servers 2.5 %",
            &*format!("list_100_churn/kv: {listed}"),
            "claim: rate, layer against kv 0.50 (0.40 to 0.75)",
            "etcd was left out: there is no etcd in PATH",
            "the floor was left out: bare requests know neither TLS nor a credentials file",
        ];
        assert_eq!(Peers::remarks(&report), lines);
        report.params.clear();
        assert_eq!(Peers::remarks(&report), [] as [&str; 0]);
    }
}
