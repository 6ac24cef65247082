//! What a peer is asked to do, in its own natural way. The same work for each, and no more than that: what it costs and whether
//! it is right is found out elsewhere.

use std::future::Future;

use super::listed::Listed;

/// What went wrong, in the peer's words. Nothing is known of what was asked.
pub(super) type Failed = String;

/// What became of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charged {
    /// It is counted on both records.
    Counted,
    /// Others were faster for as often as it took part, and it is not counted on the company.
    GaveUp,
}

/// Something that keeps seats, keys and counters for a fleet of nodes.
pub(super) trait Peer: Clone + Send + Sync + 'static {
    /// What a holder keeps of what it holds.
    type Held: Send + 'static;

    /// Claims a fresh seat for a node; none when it is told that it does not have it.
    fn claim(&self, node: usize, seat: &str) -> impl Future<Output = Result<Option<Self::Held>, Failed>> + Send;

    /// Whether a node holds a seat, as it reads right after the claim.
    fn is_mine(&self, node: usize, seat: &str) -> impl Future<Output = Result<bool, Failed>> + Send;

    /// Whether who goes by its documentation renews each seat at an instant of its own, and not a node's all at once.
    fn renews_apart(&self) -> bool;

    /// Renews some of what a node holds, at once and with what its holder knows of it; answers how many it still has, and how
    /// many it was told it has lost.
    fn renew(&self, node: usize, held: &mut [Self::Held]) -> impl Future<Output = Renewed> + Send;

    /// The same as who goes by its documentation does it.
    fn renew_naturally(&self, node: usize, held: &mut [Self::Held]) -> impl Future<Output = Renewed> + Send {
        self.renew(node, held)
    }

    /// Writes a key of a class, whatever stands there; answers the revision.
    fn write(&self, class: &str, key: &str) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// The keys of a class that it lists, with their values read.
    fn list(&self, class: &str) -> impl Future<Output = Result<Vec<Listed>, Failed>> + Send;

    /// Charges one token to a client's seat and to the company.
    fn charge(&self, client: usize) -> impl Future<Output = Result<Charged, Failed>> + Send;

    /// What the company has been charged so far.
    fn charged(&self) -> impl Future<Output = Result<u64, Failed>> + Send;
}

/// The answers to a renewal of all that a node holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Renewed {
    /// Those that it still has.
    pub(super) kept: u64,
    /// Those that it is told it has lost.
    pub(super) lost: u64,
    /// Those of which nothing is known.
    pub(super) unknown: u64,
}

impl FromIterator<Option<bool>> for Renewed {
    /// Counts answers, of which nothing is known where there is none.
    fn from_iter<I: IntoIterator<Item = Option<bool>>>(answers: I) -> Renewed {
        let mut renewed = Renewed::default();
        for kept in answers {
            match kept {
                Some(true) => renewed.kept += 1,
                Some(false) => renewed.lost += 1,
                None => renewed.unknown += 1,
            }
        }
        renewed
    }
}
