//! The links between the members of a cluster, and cutting them: a network partition.
//!
//! Every connection from member to member runs through a socket of the test's. While a link is cut, nothing passes and both
//! sides keep their connections, as with a network that drops packets: no member is told that the other is gone. What was
//! sent meanwhile arrives when the link is healed, as it does when TCP sends it again, and who dialled meanwhile gets through
//! then. Bytes already on their way when a link is cut may still arrive.
//!
//! Clients do not run through this: a test talks to either side of a cut.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use engine::broker::{Member, Route, Routes};
use engine::tasks::{self, Task};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How much of what one side says is taken from it before it is passed on.
const CHUNK: usize = 64 * 1024;

/// The links of one cluster. Dropped, they end, and the members lose each other.
pub struct Links(Arc<Shared>);

struct Shared {
    /// The members on one side of the cut; empty when there is none.
    apart: watch::Sender<BTreeSet<usize>>,
    /// Told when connections across the cut are to end.
    severed: watch::Sender<()>,
    links: Mutex<Vec<Task<()>>>,
}

impl Links {
    /// Links for one cluster, which is started with [`routes`](Links::routes).
    pub(crate) fn new() -> Links {
        let (apart, severed) = (watch::Sender::default(), watch::Sender::default());
        Links(Arc::new(Shared { apart, severed, links: Mutex::default() }))
    }

    /// The setting that has members use these links.
    pub(crate) fn routes(&self) -> Routes {
        let shared = self.0.clone();
        Routes::Through(Arc::new(move |route| shared.link(route).expect("a loopback port")))
    }

    /// Cuts these members off from the others; among themselves they stay linked, and so do the others. An earlier cut is
    /// replaced by this one.
    pub fn cut(&self, members: &[&Member]) {
        self.apart(members.iter().map(|member| member.index()).collect());
    }

    /// Cuts these members off, and ends the connections that they have: what was under way is lost, and both sides dial in vain
    /// until the links are healed.
    pub fn sever(&self, members: &[&Member]) {
        self.cut(members);
        self.0.severed.send_replace(());
    }

    /// Links every member to every other one again.
    pub fn heal(&self) {
        self.apart(BTreeSet::new());
    }

    fn apart(&self, members: BTreeSet<usize>) {
        self.0.apart.send_replace(members);
    }
}

impl Shared {
    /// Starts to accept for a route; answers where.
    fn link(&self, route: Route) -> io::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let gate = Gate { route, apart: self.apart.subscribe(), severed: self.severed.subscribe() };
        self.links.lock().push(tasks::spawn(async move {
            let mut connections: Vec<Task<()>> = Vec::new();
            // Whoever cannot accept any more leaves the member to dial again.
            while let Ok((dialler, _)) = listener.accept().await {
                connections.retain(|connection| !connection.is_finished());
                let mut gate = gate.clone();
                connections.push(tasks::spawn(async move {
                    // A connection that one side ends or loses is ended on the other.
                    let _ended = connection(dialler, &mut gate).await;
                }));
            }
        }));
        Ok(address)
    }
}

/// Carries one connection in both directions until either side ends it.
async fn connection(mut dialler: TcpStream, gate: &mut Gate) -> io::Result<()> {
    gate.open().await?;
    let mut dialled = TcpStream::connect(gate.route.address).await?;
    // Members send small messages, and set this on their own sockets.
    dialler.set_nodelay(true)?;
    dialled.set_nodelay(true)?;
    let (mut other, mut severing) = (gate.clone(), gate.clone());
    let ((from_dialler, to_dialler), (from_dialled, to_dialled)) = (dialler.split(), dialled.split());
    tokio::select! {
        ended = carry(from_dialler, to_dialled, gate) => ended,
        ended = carry(from_dialled, to_dialler, &mut other) => ended,
        ended = severing.severed() => ended,
    }
}

/// Carries one direction. What was read when the link is cut is kept until it is healed, the end included.
async fn carry(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, gate: &mut Gate) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await;
        gate.open().await?;
        match read? {
            0 => return Ok(()),
            read => to.write_all(&chunk[..read]).await?,
        }
    }
}

/// Whether a link is open.
#[derive(Clone)]
struct Gate {
    route: Route,
    apart: watch::Receiver<BTreeSet<usize>>,
    severed: watch::Receiver<()>,
}

impl Gate {
    /// Waits until both ends are on the same side.
    async fn open(&mut self) -> io::Result<()> {
        let route = self.route;
        let open = self.apart.wait_for(|apart| !is_across(route, apart)).await;
        open.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }

    /// Waits until connections are ended of which the ends are not on the same side.
    async fn severed(&mut self) -> io::Result<()> {
        loop {
            self.severed.changed().await.map_err(|_| io::ErrorKind::ConnectionAborted)?;
            if is_across(self.route, &self.apart.borrow()) {
                return Ok(());
            }
        }
    }
}

fn is_across(Route { from, to, .. }: Route, apart: &BTreeSet<usize>) -> bool {
    apart.contains(&from) != apart.contains(&to)
}

#[cfg(test)]
mod tests {
    use futures_util::future::FutureExt;

    use super::*;

    /// Two ends of a connection through a link: who dialled and who was.
    async fn dial(link: SocketAddr, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let dialler = TcpStream::connect(link).await.unwrap();
        (dialler, listener.accept().await.unwrap().0)
    }

    async fn heard(end: &mut TcpStream, what: &[u8]) {
        let mut heard = vec![0; what.len()];
        end.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, what);
    }

    fn silent(end: &TcpStream) -> bool {
        matches!(end.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    #[tokio::test]
    async fn a_cut_link_is_silent_and_a_healed_one_delivers_what_was_kept() {
        let links = Links::new();
        let Routes::Through(routes) = links.routes() else { panic!("links of its own") };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, open) = (routes(Route { from: 1, to: 0, address }), routes(Route { from: 2, to: 1, address }));
        let (mut a, mut b) = dial(cut, &listener).await;
        let (mut c, mut d) = dial(open, &listener).await;
        a.write_all(b"before").await.unwrap();
        heard(&mut b, b"before").await;

        links.apart(BTreeSet::from([0]));
        a.write_all(b"to").await.unwrap();
        b.write_all(b"fro").await.unwrap();
        let mut late = TcpStream::connect(cut).await.unwrap();
        // The others go on, and take more time about it than the cut link would.
        for _ in 0..100 {
            c.write_all(b"ping").await.unwrap();
            heard(&mut d, b"ping").await;
            d.write_all(b"pong").await.unwrap();
            heard(&mut c, b"pong").await;
        }
        assert!(silent(&a) && silent(&b) && listener.accept().now_or_never().is_none());

        links.heal();
        heard(&mut b, b"to").await;
        heard(&mut a, b"fro").await;
        let mut accepted = listener.accept().await.unwrap().0;
        late.write_all(b"late").await.unwrap();
        heard(&mut accepted, b"late").await;

        links.apart(BTreeSet::from([0]));
        drop(a);
        c.write_all(b"ping").await.unwrap();
        heard(&mut d, b"ping").await;
        assert!(silent(&b), "an end is news, too");
        links.heal();
        assert_eq!(b.read(&mut [0]).await.unwrap(), 0);
    }
}
