//! A node's hands on everything that the fleet shares: every family over one connection.

use engine::env::Env;
use engine::lease::{Config, Leases};
use engine::slots::Settings;
use engine::slots::budgets::Budgets;
use engine::slots::channels::Channels;
use engine::slots::claims::DeliveryClaims;
use engine::slots::config::Activations;
use engine::slots::cooldowns::Cooldowns;
use engine::slots::custody::Custody;
use engine::slots::fires::Fires;
use engine::slots::follows::Follows;
use engine::slots::integrations::Integrations;
use engine::slots::ledger::Ledger;
use engine::slots::mailboxes::Mailboxes;
use engine::slots::objects::Objects;
use engine::slots::pauses::SeatPauses;
use engine::slots::positions::Positions;
use engine::slots::rate::RateValve;
use engine::slots::rebases::Rebases;
use engine::slots::sandbox_runs::SandboxRuns;
use engine::slots::secrets::Secrets;
use engine::slots::status::Statuses;
use engine::store::{OpenError, Store};

/// One node.
pub struct Node<S: Store> {
    pub(super) id: String,
    pub(super) leases: Leases<S>,
    pub(super) budgets: Budgets<S>,
    pub(super) channels: Channels<S>,
    pub(super) claims: DeliveryClaims<S>,
    pub(super) config: Activations<S>,
    pub(super) cooldowns: Cooldowns<S>,
    pub(super) custody: Custody<S>,
    pub(super) fires: Fires<S>,
    pub(super) follows: Follows<S>,
    pub(super) integrations: Integrations<S>,
    pub(super) ledger: Ledger<S>,
    pub(super) mailboxes: Mailboxes<S>,
    pub(super) objects: Objects<S>,
    pub(super) pauses: SeatPauses<S>,
    pub(super) positions: Positions<S>,
    pub(super) rate: RateValve<S>,
    pub(super) rebases: Rebases<S>,
    pub(super) runs: SandboxRuns<S>,
    pub(super) secrets: Secrets<S>,
    pub(super) status: Statuses<S>,
}

impl<S: Store> Node<S> {
    /// Opens every bucket, one after the other.
    pub(super) async fn open(
        env: &Env,
        id: String,
        store: &S,
        config: &Config,
        settings: &Settings,
    ) -> Result<Node<S>, OpenError> {
        Ok(Node {
            id,
            leases: Leases::open(env.clone(), store, config).await?,
            budgets: Budgets::open(store, settings).await?,
            channels: Channels::open_bucket(store, settings).await?,
            claims: DeliveryClaims::open(store, settings).await?,
            config: Activations::open(store, settings).await?,
            cooldowns: Cooldowns::open(store, settings).await?,
            custody: Custody::open(store, settings).await?,
            fires: Fires::open(store, settings).await?,
            follows: Follows::open(store, settings).await?,
            integrations: Integrations::open(store, settings).await?,
            ledger: Ledger::open(store, settings).await?,
            mailboxes: Mailboxes::open(store, settings).await?,
            objects: Objects::open(store, settings).await?,
            pauses: SeatPauses::open(store, settings).await?,
            positions: Positions::open(store, settings).await?,
            rate: RateValve::open(store, settings).await?,
            rebases: Rebases::open(store, settings).await?,
            runs: SandboxRuns::open(store, settings).await?,
            secrets: Secrets::open(store, settings).await?,
            status: Statuses::open(store, settings).await?,
        })
    }
}
