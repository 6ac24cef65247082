//! A turn: a delivery comes in, is claimed, let through the valve and looked up in the ledger; the budget is asked, every round
//! is charged, and in the end the ledger is written. What a turn does now and then beside that is done by every so-many-th.
//!
//! Rounds are due at instants that the turn's own due time settles. An answer that comes late delays none of them on paper: what
//! it delays is in the latency of the next.

use std::time::Duration;

use coordproto::answer::Error;
use coordproto::record::follow::Thread;
use coordproto::record::rate::window_start;
use coordproto::tally::Ceilings;
use coordproto::window::Period;
use engine::env::{Env, Mono};
use engine::slots::budgets::{Caps, Charge, ChargeError, Counters, Gate};
use engine::slots::claims::{Attempt, Delivery, Release};
use engine::slots::follows::{Following, Unfollow};
use engine::slots::ledger::{Recorded, Worked};
use engine::slots::rate::Take;
use engine::store::Store;
use futures_util::future::{join, join_all};

use super::account::{Before, Said, Verdict, Wrong, holds, judged};
use super::asides;
use super::context::{Context, said};
use super::lives::Life;
use super::node::Node;
use super::shelves::Shelf;
use super::streams::{ROUND, ROUNDS, Share};
use crate::fleet::handle;

/// For how long a delivery is claimed: a webhook's five minutes.
const CLAIM_TTL: Duration = Duration::from_secs(5 * 60);

/// How many notifications of a seat are let through in a window.
pub(super) const LIMIT: u32 = 5;

/// The valve's window.
const WINDOW: Duration = Duration::from_secs(1);

/// For how long the count of a window is certainly remembered: the bucket keeps it for three of them after its last write.
pub(super) const REMEMBERED: Duration = Duration::from_secs(2);

/// Tokens of a round.
const TOKENS: u64 = 1_000;

/// What a seat with a ceiling may spend: two rounds, and not a third.
const CEILING: u64 = 2_500;

/// One turn.
pub(super) struct Turn<'a, S: Store> {
    ctx: &'a Context<S>,
    number: u64,
    due: Mono,
    handle: String,
    /// The node that runs the seat.
    own: &'a Node<S>,
    /// Another one.
    other: &'a Node<S>,
    capped: bool,
}

impl<'a, S: Store> Turn<'a, S> {
    /// The turn of a number. Which seat takes it is drawn from the seed.
    pub(super) fn new(ctx: &'a Context<S>, number: u64, due: Mono) -> Turn<'a, S> {
        let seat = Env::seeded(ctx.seed.wrapping_add(number)).below(ctx.seats as u64);
        let capped = seat.is_multiple_of(Share::CAPPED);
        let handle = handle(usize::try_from(seat).unwrap_or(usize::MAX));
        Turn { ctx, number, due, handle, own: ctx.node(seat), other: ctx.node(seat + 1 + number), capped }
    }

    fn is_one_of(&self, share: u64) -> bool {
        self.number.is_multiple_of(share)
    }

    /// Takes it.
    pub(super) async fn take(self) {
        let ctx = self.ctx;
        let again = self.is_one_of(Share::REDELIVERED);
        let Some(attempt) = self.delivered(again).await else { return };
        self.let_through().await;
        if self.is_one_of(Share::CHAT) {
            self.is_followed(false).await;
        }
        self.worked(None).await;
        self.headroom().await;
        if !self.rounds().await {
            return;
        }
        if self.is_one_of(Share::AUXILIARY) {
            self.post_charge().await;
        }
        let detail = format!("turn {}", self.number);
        let recorded = self.record(&detail).await;
        self.judge(holds(recorded != Ok(Recorded::Before), Wrong::Record), "recorded");
        if again {
            // It comes once more, after the turn: to a node that has to find out that it was worked.
            self.seen_again().await;
            if recorded == Ok(Recorded::First) {
                self.worked(Some(&detail)).await;
                let second = self.record("once more").await;
                self.judge(holds(second != Ok(Recorded::First), Wrong::WinnersDoubled), "recorded again");
            }
        }
        if self.is_one_of(Share::CHAT) {
            self.talk().await;
        }
        if self.is_one_of(Share::UNHANDLED) {
            let released = ctx.ask("claims/release", ctx.env.now(), |r| *r == Release::Released, async {
                self.own.claims.release(&attempt).await
            });
            let released = released.await;
            self.judge(holds(!matches!(released, Ok(Release::NotHeld)), Wrong::Record), "claim");
        }
    }

    fn judge(&self, verdict: Verdict, what: &str) {
        self.ctx.judge(verdict, format_args!("{what} of turn {} of {}", self.number, self.handle));
    }

    /// The delivery comes in at a node, or at two at once. Answers the attempt that goes on with it; none when it was seen.
    async fn delivered(&self, twice: bool) -> Option<Attempt> {
        let (ctx, id) = (self.ctx, format!("d{}", self.number));
        let ingress = if twice { &[self.own, self.other][..] } else { &[self.own][..] };
        let attempts = ingress.iter().map(|node| (node, node.claims.attempt("webhook", &id).expect("it has a name")));
        let claims = attempts.map(async |(node, attempt)| {
            let claim = node.claims.claim(&attempt, CLAIM_TTL, ctx.wall());
            let told = ctx.ask("claims/claim", self.due, |told| *told == Delivery::First, claim).await;
            (attempt, said(&told, |told| *told == Delivery::First))
        });
        let claimed: Vec<_> = join_all(claims).await;
        let told: Vec<_> = claimed.iter().map(|(_, said)| *said).collect();
        self.judge(judged(&told, false), "delivery");
        // Whoever has no answer handles it: that fails open.
        claimed.into_iter().find(|(_, said)| *said != Said::Lost).map(|(attempt, _)| attempt)
    }

    /// The delivery comes to another node while it is claimed.
    async fn seen_again(&self) {
        let ctx = self.ctx;
        let attempt = self.other.claims.attempt("webhook", &format!("d{}", self.number)).expect("it has a name");
        let claim = self.other.claims.claim(&attempt, CLAIM_TTL, ctx.wall());
        let told = ctx.ask("claims/claim", ctx.env.now(), |told| *told == Delivery::First, claim).await;
        self.judge(judged(&[said(&told, |told| *told == Delivery::First)], true), "second delivery");
    }

    /// The notification is let through the valve; a burst of them as far as the limit goes.
    async fn let_through(&self) {
        let ctx = self.ctx;
        let takes = if self.is_one_of(Share::BURST) { LIMIT + 2 } else { 1 };
        let due = ctx.env.now();
        let all = (0..takes).map(async |take| {
            let node = if take.is_multiple_of(2) { self.own } else { self.other };
            let now = ctx.wall();
            let window = (self.handle.clone(), window_start(now, WINDOW).unwrap_or(now));
            ctx.accounts.valve.lock().taking(&window, ctx.env.now());
            let allow = node.rate.allow(&self.handle, LIMIT, WINDOW, now);
            let told = ctx.ask("rate/allow", due, |take| *take == Take::Allowed, allow).await;
            ctx.accounts.valve.lock().told(&window, said(&told, |take| *take == Take::Allowed), ctx.env.now());
        });
        join_all(all).await;
        let verdict = ctx.accounts.valve.lock().settled(LIMIT, REMEMBERED, ctx.env.now());
        self.judge(verdict, "notification");
    }

    /// Asks the ledger whether the trigger was worked: it says so when it was recorded, with these words, and not before.
    async fn worked(&self, recorded: Option<&str>) {
        let (ctx, key) = (self.ctx, self.key());
        let node = if recorded.is_some() { self.other } else { self.own };
        let asked = async { node.ledger.worked(&self.handle, &[&key]).await };
        let told = ctx.ask("ledger/worked", ctx.env.now(), |worked: &Worked| worked.contains(&key), asked).await;
        if let Ok(worked) = told {
            let detail = worked.records().get(&key).map(|record| record.detail.as_str());
            self.judge(holds(detail == recorded, Wrong::Record), "ledger");
        }
    }

    async fn record(&self, detail: &str) -> Result<Recorded, Error> {
        let (ctx, key) = (self.ctx, self.key());
        let record = self.own.ledger.record(&self.handle, &key, detail, ctx.wall());
        ctx.ask("ledger/record", ctx.env.now(), |told| *told == Recorded::First, record).await
    }

    fn key(&self) -> String {
        format!("d{}", self.number)
    }

    /// What has been spent, before anything is.
    async fn headroom(&self) {
        let ctx = self.ctx;
        let before = ctx.accounts.spend.lock().sending(&self.handle, 0);
        let used = self.own.budgets.used(&self.handle, &ctx.windows);
        if let Ok(counters) = ctx.ask("budgets/used", ctx.env.now(), |_| true, used).await {
            self.told(before, 0, &counters);
        }
    }

    fn told(&self, before: Before, tokens: u64, counters: &Counters) {
        for period in Period::ALL {
            let spent = (counters.org[period].spent, counters.seat[period].spent);
            let verdict = self.ctx.accounts.spend.lock().told(before, &self.handle, tokens, spent);
            self.judge(verdict, "budget");
        }
    }

    fn caps(&self) -> Caps {
        let seat = Ceilings::parse(self.capped.then_some(("day", CEILING))).expect("a period and a ceiling");
        Caps { org: Ceilings::default(), seat }
    }

    /// Every round, and what is done on the side meanwhile. Answers whether the turn is to be ended in order: not when the run
    /// is over first.
    async fn rounds(&self) -> bool {
        let ctx = self.ctx;
        let aside = async {
            if self.is_one_of(Share::COOLED) {
                asides::cool(ctx, self.own, self.number).await;
            }
            if self.is_one_of(Share::LOGGED) {
                asides::floors(ctx, self.own).await;
            }
            if self.is_one_of(Share::ASKING) {
                asides::channel(ctx, self.number, [self.own, self.other], ctx.env.now()).await;
            }
            if self.is_one_of(Share::RUN) {
                let (key, nodes) = (format!("run{}", self.number), [self.own, self.other]);
                let life = Life { ctx, shelf: Shelf::Runs, key, nodes, changes: 3, pause: ROUND };
                life.live(ctx.env.now()).await;
            }
        };
        let charged = async {
            // Each is charged when its reply is there.
            for round in 1..=ROUNDS {
                let due = self.due + ROUND * round;
                if ctx.over_by(due).await {
                    return false;
                }
                match self.charge(due).await {
                    Some(true) => {}
                    Some(false) => {
                        self.refuse().await;
                        break;
                    }
                    // It stops as in an outage.
                    None => break,
                }
            }
            true
        };
        join(charged, aside).await.0
    }

    /// Charges a round. Answers whether another may follow; none where nobody says.
    async fn charge(&self, due: Mono) -> Option<bool> {
        let (ctx, caps) = (self.ctx, self.caps());
        let before = ctx.accounts.spend.lock().sending(&self.handle, TOKENS);
        let mut company_counted = false;
        let charge = async {
            let charged = self.own.budgets.charge(&self.handle, TOKENS, &ctx.windows, &caps, ctx.wall()).await;
            charged.map_err(|error| counted_in_part(error, &mut company_counted))
        };
        let told = ctx.ask("budgets/charge", due, |charge: &Charge| charge.gate == Gate::Admitted, charge).await;
        let Ok(Charge { gate, counters }) = told else {
            if company_counted {
                ctx.accounts.spend.lock().company(TOKENS);
            }
            return None;
        };
        self.counted(before, TOKENS, &counters);
        let admitted = gate == Gate::Admitted;
        let has_room = !self.capped || counters.seat[Period::Day].spent <= CEILING;
        self.judge(holds(admitted == has_room, Wrong::SpendOff), "gate");
        Some(admitted)
    }

    fn counted(&self, before: Before, tokens: u64, counters: &Counters) {
        self.told(before, tokens, counters);
        let mut spend = self.ctx.accounts.spend.lock();
        spend.company(tokens);
        spend.counted(&self.handle, tokens);
    }

    /// A call is turned away that was not made, because the one before was refused.
    async fn refuse(&self) {
        let (ctx, caps) = (self.ctx, self.caps());
        let refuse = self.own.budgets.refuse(&self.handle, &ctx.windows, &caps, ctx.wall());
        let told = ctx.ask("budgets/refuse", ctx.env.now(), Option::is_some, refuse).await;
        self.judge(holds(!matches!(told, Ok(None)), Wrong::SpendOff), "full window");
    }

    /// Spend that is known after the fact.
    async fn post_charge(&self) {
        let ctx = self.ctx;
        let tokens = TOKENS / 10;
        let before = ctx.accounts.spend.lock().sending(&self.handle, tokens);
        let mut company_counted = false;
        let charge = async {
            let charged = self.own.budgets.post_charge(&self.handle, tokens, &ctx.windows).await;
            charged.map_err(|error| counted_in_part(error, &mut company_counted))
        };
        match ctx.ask("budgets/post_charge", ctx.env.now(), |_| true, charge).await {
            Ok(counters) => self.counted(before, tokens, &counters),
            Err(_) if company_counted => ctx.accounts.spend.lock().company(tokens),
            Err(_) => {}
        }
    }

    fn thread<'t>(&'t self, thread: &'t str) -> Thread<'t> {
        Thread { backend: "slack", handle: &self.handle, channel: "c", thread }
    }

    async fn is_followed(&self, expected: bool) {
        let ctx = self.ctx;
        let name = format!("t{}", self.number);
        let thread = self.thread(&name);
        let asked = self.other.follows.following(&thread);
        let told = ctx.ask("follows/following", ctx.env.now(), |told| *told == Following::Yes, asked).await;
        if let Ok(told) = told {
            self.judge(holds((told == Following::Yes) == expected, Wrong::Record), "thread");
        }
    }

    /// The seat answers in its thread, and at times leaves it: of two who say so at once one does it.
    async fn talk(&self) {
        let ctx = self.ctx;
        let name = format!("t{}", self.number);
        let thread = self.thread(&name);
        let follow = self.own.follows.follow(&thread);
        if ctx.ask("follows/follow", ctx.env.now(), |()| true, follow).await.is_err() {
            return;
        }
        self.is_followed(true).await;
        if !self.is_one_of(Share::LEAVING) {
            return;
        }
        let (removed, now) = (|told: &Unfollow| *told == Unfollow::Removed, ctx.env.now());
        let (first, second) = join(
            ctx.ask("follows/unfollow", now, removed, self.own.follows.unfollow(&thread)),
            ctx.ask("follows/unfollow", now, removed, self.other.follows.unfollow(&thread)),
        )
        .await;
        self.judge(judged(&[said(&first, removed), said(&second, removed)], false), "leaving");
        if first.is_ok() && second.is_ok() {
            self.is_followed(false).await;
        }
    }
}

/// What a charge without an answer is to whoever records it, and whether the company has counted it all the same.
fn counted_in_part(error: ChargeError, company_counted: &mut bool) -> Error {
    match error {
        ChargeError::BadArgument(error) => error.into(),
        ChargeError::Unknown(unknown) => unknown.into(),
        ChargeError::SeatUncounted { unknown, .. } => {
            *company_counted = true;
            unknown.into()
        }
    }
}
