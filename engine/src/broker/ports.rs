//! Loopback ports that are known before a server starts and stay its own while it is down.
//!
//! Every member's configuration names the route port of every other one: the size of the cluster's meta group follows from
//! that list, and a member that learnt of its peers only later could found a group without them. So the ports must be known
//! first, and nobody else may get them, neither before the first start nor between a stop and the next one.
//!
//! On Linux a socket that is bound but does not listen does that. The kernel gives its port to no one who asks for any port,
//! listening or connecting; the server, which binds this very port with `SO_REUSEADDR` as Go always does, gets it. Other
//! systems refuse the second bind, so there the port is let go at once and a stranger could take it; the member then says
//! at its start that the address is in use.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port on 127.0.0.1.
pub(super) struct Port {
    address: SocketAddr,
    #[cfg(target_os = "linux")]
    _held: TcpSocket,
}

impl Port {
    /// A free port, held until this is dropped.
    pub(super) fn reserve() -> io::Result<Port> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        Ok(Port {
            address,
            #[cfg(target_os = "linux")]
            _held: socket,
        })
    }

    /// Where it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_held_port_is_given_to_its_server_and_to_no_one_else() {
        let held = Port::reserve().unwrap();
        // More than the kernel has ephemeral ports of one parity: every one it would give is given.
        for _ in 0..40_000 {
            let other = TcpSocket::new_v4().unwrap();
            other.set_reuseaddr(true).unwrap();
            other.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            assert_ne!(other.local_addr().unwrap(), held.address());
        }
        // Twice, as a server does that is stopped and started again. std sets SO_REUSEADDR, as Go does.
        for _ in 0..2 {
            let server = std::net::TcpListener::bind(held.address()).unwrap();
            let client = std::net::TcpStream::connect(held.address()).unwrap();
            drop((server.accept().unwrap(), client));
        }
    }
}
