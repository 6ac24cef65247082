//! The operations that a mix records beside those of the nodes that hold seats: the family, and what is asked of it.

use std::collections::HashMap;

use crate::recorder::{Op, Recorder};

/// Their names. A run of some minutes does each of them.
pub(super) const NAMES: [&str; 80] = [
    "budgets/charge",
    "budgets/post_charge",
    "budgets/refuse",
    "budgets/usage",
    "budgets/used",
    "channels/all",
    "channels/close",
    "channels/count",
    "channels/get",
    "channels/open",
    "channels/open_list",
    "channels/purge",
    "claims/claim",
    "claims/release",
    "config/activate",
    "config/payload",
    "config/target",
    "cooldowns/cool",
    "cooldowns/since",
    "custody/claim",
    "duties/claim",
    "epochs/hints",
    "fires/claim",
    "follows/follow",
    "follows/following",
    "follows/unfollow",
    "integrations/delete",
    "integrations/list",
    "integrations/put",
    "ledger/record",
    "ledger/worked",
    "mailboxes/create",
    "mailboxes/delete",
    "mailboxes/get",
    "mailboxes/list",
    "mailboxes/update",
    "objects/agree",
    "objects/collection",
    "objects/record",
    "pauses/get",
    "pauses/list",
    "pauses/pause",
    "pauses/resume",
    "positions_acks/acknowledge",
    "positions_acks/forget",
    "positions_acks/list",
    "positions_admitted/admit",
    "positions_admitted/forget",
    "positions_admitted/list",
    "positions_backup/list",
    "positions_backup/record",
    "positions_floor/get",
    "positions_floor/list",
    "positions_floor/publish",
    "positions_hold/list",
    "positions_hold/release",
    "positions_hold/take",
    "positions_hold/update",
    "positions_maintenance/close",
    "positions_maintenance/get",
    "positions_maintenance/list",
    "positions_maintenance/open",
    "positions_maintenance/update",
    "positions_node/get",
    "positions_node/list",
    "positions_node/record",
    "rate/allow",
    "rebases/read",
    "rebases/record",
    "sandbox_runs/create",
    "sandbox_runs/delete",
    "sandbox_runs/get",
    "sandbox_runs/list",
    "sandbox_runs/update",
    "secrets/delete",
    "secrets/get",
    "secrets/list",
    "secrets/put",
    "status/fleet",
    "status/record",
];

/// The operations, by name.
#[derive(Clone)]
pub(super) struct Ops(HashMap<&'static str, Op>);

impl Ops {
    /// Declares them to a recorder.
    pub(super) fn declare(recorder: &mut Recorder) -> Ops {
        Ops(NAMES.into_iter().map(|name| (name, recorder.declare(name))).collect())
    }

    /// The operation of a name.
    pub(super) fn of(&self, name: &'static str) -> &Op {
        self.0.get(name).expect("a whole run on the memory twin does every operation that there is")
    }
}
