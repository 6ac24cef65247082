//! The configuration file of a member.
//!
//! Everything listens on loopback. Users are in accounts of their own, with passwords that live as long as the run; the
//! monitoring port stays closed, since the system account answers the same questions to those who may ask. Paths do not
//! appear: a member runs in its own directory, so no file name needs the configuration language's quoting.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::SyncInterval;
use super::secret::Secret;

/// The user of the account that streams live in.
pub(super) const USER: &str = "crewlet";
/// The user of the account that readiness is tried out in.
pub(super) const TRIAL_USER: &str = "trial";
/// The user of the system account.
pub(super) const SYSTEM_USER: &str = "system";
const ROUTE_USER: &str = "route";

/// The passwords of one run.
pub(super) struct Passwords {
    pub(super) user: Secret,
    pub(super) trial: Secret,
    pub(super) system: Secret,
    pub(super) route: Secret,
}

impl Passwords {
    pub(super) fn random() -> io::Result<Passwords> {
        let random = Secret::random;
        Ok(Passwords { user: random()?, trial: random()?, system: random()?, route: random()? })
    }
}

/// What one member's file says.
pub(super) struct Config<'a> {
    pub(super) name: &'a str,
    pub(super) client: SocketAddr,
    /// Where this member reaches every member's route port, in the order of the members, and which of them is its own;
    /// `None` for a server on its own.
    pub(super) routes: Option<(&'a [SocketAddr], usize)>,
    /// Where others are told that its route port is, if that is not where it listens.
    pub(super) advertised: Option<SocketAddr>,
    pub(super) sync: SyncInterval,
    pub(super) passwords: &'a Passwords,
}

impl Config<'_> {
    fn render(&self) -> String {
        let sync = match self.sync {
            SyncInterval::Always => "always".to_owned(),
            SyncInterval::Every(interval) => format!("\"{}ms\"", interval.as_millis()),
        };
        let Passwords { user, trial, system, route } = self.passwords;
        let (user, trial, system, route) = (user.expose(), trial.expose(), system.expose(), route.expose());
        // An account's name is part of where its streams lie on disk: it never changes. The trial has its own, because a
        // server that deleted an account's last stream removes the account's directory a moment later, and a stream created
        // there in that moment fails ("error creating store for stream", 10049).
        let mut text = format!(
            "server_name: \"{}\"\n\
             listen: \"{}\"\n\
             logtime: false\n\
             jetstream {{ store_dir: \"data\", sync_interval: {sync} }}\n\
             accounts {{\n\
             \x20 CREWLET {{ jetstream: enabled, users: [ {{ user: \"{USER}\", password: \"{user}\" }} ] }}\n\
             \x20 TRIAL {{ jetstream: enabled, users: [ {{ user: \"{TRIAL_USER}\", password: \"{trial}\" }} ] }}\n\
             \x20 SYS {{ users: [ {{ user: \"{SYSTEM_USER}\", password: \"{system}\" }} ] }}\n\
             }}\n\
             system_account: SYS\n",
            self.name, self.client,
        );
        if let Some((all, own_index)) = self.routes {
            // Of two members the later one dials the earlier one, never both: servers that dial each other at once close
            // both connections as duplicates and try again after a second, and a vote for the first meta leader that falls
            // into it is lost, for 4 to 9 s. The list still has as many entries as there are members, since the size that
            // the meta group is founded with is its length: the rest is the member's own address, which it recognises and
            // hangs up on. The paths mean nothing to a route; they keep the entries apart, because the server drops one
            // that it has read before, and says so with the password in it.
            let own = all[own_index];
            let entry = |index: usize| {
                let dialled = all[index.min(own_index)];
                format!("    \"nats-route://{ROUTE_USER}:{route}@{dialled}/{index}\"\n")
            };
            let all: Vec<_> = (0..all.len()).map(entry).collect();
            // Members tell each other where a third one listens, and whoever has no route to it then dials there. Where the
            // listed routes are the only ones to be used, they tell of a port that refuses; and clients are told of no other
            // member, so that each stays with those that it chose.
            let advertised = self.advertised.map_or_else(String::new, |address| {
                format!("\x20 advertise: \"{address}\"\n\x20 no_advertise: true\n")
            });
            text.push_str(&format!(
                "cluster {{\n\
                 \x20 name: \"crewlet\"\n\
                 \x20 listen: \"{own}\"\n\
                 \x20 authorization {{ user: \"{ROUTE_USER}\", password: \"{route}\" }}\n\
                 {advertised}\
                 \x20 routes: [\n{}\x20 ]\n\
                 }}\n",
                all.concat(),
            ));
        }
        text
    }

    /// Writes the file, readable by its owner alone from the moment it exists.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.render().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::super::routes::{Route, Routes};
    use super::*;

    fn ports(from: u16) -> Vec<SocketAddr> {
        (from..from + 5).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
    }

    /// The file of the member `own`, and the lines in it that are routes.
    fn rendered(routes: &[SocketAddr], own: usize, advertised: Option<SocketAddr>) -> (String, BTreeSet<String>) {
        let passwords = Passwords::random().unwrap();
        let (sync, client) = (SyncInterval::Always, routes[own]);
        let routes = Some((routes, own));
        let text = Config { name: "n", client, routes, advertised, sync, passwords: &passwords }.render();
        let listed = text.lines().filter(|line| line.contains("nats-route://")).map(str::to_owned).collect();
        (text, listed)
    }

    #[test]
    fn every_member_lists_as_many_routes_as_there_are_members_and_none_twice() {
        let ports = ports(1);
        for own in 0..ports.len() {
            let (text, listed) = rendered(&ports, own, None);
            assert_eq!(listed.len(), ports.len(), "{text}");
            let dialled = |port: &SocketAddr| listed.iter().any(|line| line.contains(&format!("@{port}/")));
            assert!(ports[..=own].iter().all(dialled) && !ports[own + 1..].iter().any(dialled), "{text}");
            assert!(!text.contains("advertise"), "{text}");
        }
    }

    /// Each pair of members has one way to each other, the file names no other, and nobody is told of the port behind it.
    #[test]
    fn members_whose_routes_are_somebody_elses_learn_of_no_other_way() {
        let (listening, instead) = (ports(1), ports(101));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let through = Routes::Through(Arc::new({
            let (asked, instead) = (asked.clone(), instead.clone());
            move |route| {
                asked.lock().push(route);
                instead[route.to]
            }
        }));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 200));
        for own in 0..listening.len() {
            let (text, listed) = rendered(&through.dialled(own, &listening), own, Some(nowhere));
            assert_eq!(listed.len(), listening.len(), "{text}");
            let dialled = |port: &SocketAddr| listed.iter().any(|line| line.contains(&format!("@{port}/")));
            assert!(instead[..own].iter().all(dialled) && dialled(&listening[own]), "{text}");
            assert!(!listening.iter().filter(|port| **port != listening[own]).any(dialled), "{text}");
            assert!(text.contains("advertise: \"127.0.0.1:200\"\n"), "{text}");
        }
        let pairs = (0..listening.len()).flat_map(|from| (0..from).map(move |to| (from, to)));
        let pairs: Vec<Route> = pairs.map(|(from, to)| Route { from, to, address: listening[to] }).collect();
        assert_eq!(*asked.lock(), pairs);
    }
}
