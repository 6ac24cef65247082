//! How the members of a cluster reach each other: directly, or through somebody else's sockets.
//!
//! The second way exists for fault tests. Whoever owns those sockets can hold back what members send each other, which is a
//! network partition without any privilege. It is not for production: it adds a hop to every replicated write, and gives a
//! cluster nothing that it would not have without.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// How the members of a cluster reach each other.
#[derive(Clone, Default)]
pub enum Routes {
    /// Members dial each other.
    #[default]
    Direct,
    /// Members dial whom they are told to, and nobody else: for fault tests. The function is called once for each [`Route`]
    /// while the cluster starts, before any member listens, and answers the address to dial instead; connections to it are
    /// to reach [`Route::address`]. Clients are not concerned, they reach every member directly.
    Through(Arc<dyn Fn(Route) -> SocketAddr + Send + Sync>),
}

/// The way from one member to another. Connections go both ways, so there is one for each pair: the later member dials the
/// earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The index of the member that dials.
    pub from: usize,
    /// The index of the member that is dialled.
    pub to: usize,
    /// Where that one listens.
    pub address: SocketAddr,
}

impl Routes {
    /// What the member `own` dials, member by member: its own address, and those after it, are as they are.
    pub(super) fn dialled(&self, own: usize, listening: &[SocketAddr]) -> Vec<SocketAddr> {
        let dialled = listening.iter().enumerate().map(|(to, &address)| match self {
            Routes::Through(dial) if to < own => dial(Route { from: own, to, address }),
            Routes::Through(_) | Routes::Direct => address,
        });
        dialled.collect()
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Routes::Direct => "Direct",
            Routes::Through(_) => "Through(..)",
        })
    }
}
