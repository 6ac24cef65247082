//! How durable an acknowledged write is on each side: how many copies there are, and whether they are on the disk by then. Who
//! promises less of it is faster for that, so a report says what each promises, and where that is not the same.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::environment::Store;
use crate::table::units::plural;

/// How an etcd member syncs commits, in the words of the brokers' setting: before it acknowledges them, which is its default.
const ETCD_SYNC: &str = "always";

/// The etcd members of a run, each of which has a copy of everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Etcds {
    /// As they name it.
    pub(super) version: String,
    pub(super) members: usize,
}

/// The servers that the sides stand on, as far as a report's environment does not have it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Servers {
    /// How many; none where they are somebody else's.
    pub(super) brokers: Option<usize>,
    /// None where it was left out.
    pub(super) etcd: Option<Etcds>,
}

/// A line for each side, and one for each thing that is not the same on both, or may not be.
pub(super) fn remarks(store: &Store, Servers { brokers, etcd }: &Servers) -> Vec<String> {
    fn known(value: Option<impl Display>) -> String {
        value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
    }
    let brokers = brokers.map_or_else(|| "elsewhere".to_owned(), |all| plural(all as u64, "broker", "brokers"));
    let mut lines = vec![format!(
        "layer, kv, floor: nats-server {}, {brokers}; replicas {}, storage {}, sync_interval {}",
        known(store.nats_server_version.as_ref()),
        known(store.replicas),
        known(store.storage.as_ref()),
        known(store.sync_interval.as_ref()),
    )];
    let Some(Etcds { version, members }) = etcd else { return lines };
    let all = plural(*members as u64, "member", "members");
    lines.push(format!("etcd: {version}, {all}; replicas {members}, every commit synced, its default"));
    let mut held_against = |what: &str, brokers: Option<String>, etcd: &str| match brokers {
        Some(brokers) if brokers == etcd => {}
        Some(brokers) => {
            lines.push(format!("durability is not equal: {what} {brokers} of the brokers, {etcd} of etcd"))
        }
        None => lines.push(format!("durability may not be equal: {what} of the brokers is unknown, {etcd} of etcd")),
    };
    held_against("replicas", store.replicas.map(|replicas| replicas.to_string()), &members.to_string());
    held_against("sync_interval", store.sync_interval.clone(), ETCD_SYNC);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(replicas: usize, sync_interval: Option<&str>) -> Store {
        Store {
            nats_server_version: Some("2.15.1".to_owned()),
            replicas: Some(replicas),
            storage: Some("file".to_owned()),
            sync_interval: sync_interval.map(str::to_owned),
        }
    }

    fn servers(brokers: Option<usize>) -> Servers {
        Servers { brokers, etcd: Some(Etcds { version: "3.4.23".to_owned(), members: 3 }) }
    }

    #[test]
    fn each_side_says_what_it_promises_and_equals_say_no_more() {
        let lines = remarks(&store(3, Some("always")), &servers(Some(3)));
        let expected = [
            "layer, kv, floor: nats-server 2.15.1, 3 brokers; replicas 3, storage file, sync_interval always",
            "etcd: 3.4.23, 3 members; replicas 3, every commit synced, its default",
        ];
        assert_eq!(lines, expected);
        let alone = remarks(&store(1, Some("2m")), &Servers { brokers: Some(1), etcd: None });
        let expected = "layer, kv, floor: nats-server 2.15.1, 1 broker; replicas 1, storage file, sync_interval 2m";
        assert_eq!(alone, [expected], "there is nothing to be unequal to");
    }

    #[test]
    fn what_is_not_equal_or_not_known_to_be_is_said() {
        let lines = remarks(&store(1, Some("2m")), &servers(Some(1)));
        let unequal = [
            "durability is not equal: replicas 1 of the brokers, 3 of etcd",
            "durability is not equal: sync_interval 2m of the brokers, always of etcd",
        ];
        assert_eq!(lines[2..], unequal);
        let lines = remarks(&store(3, None), &servers(None));
        let elsewhere =
            "layer, kv, floor: nats-server 2.15.1, elsewhere; replicas 3, storage file, sync_interval unknown";
        let unknown = "durability may not be equal: sync_interval of the brokers is unknown, always of etcd";
        assert_eq!((&*lines[0], &lines[2..]), (elsewhere, &[unknown.to_owned()][..]));
        let lines = remarks(&Store::default(), &servers(None));
        assert_eq!(lines.len(), 4, "neither is known: {lines:?}");
    }
}
