//! What the state log may delete, and what a change of a log's size waits for: seven classes in the `positions` bucket, each
//! behind a type of its own. The eighth are the [paused seats](super::pauses).
//!
//! No record here ever expires, because each has to outlive any clock: a position that was forgotten reads as a node that
//! has applied nothing, an operation as nobody in the way of those who publish, an acknowledgement as a node that did not
//! restart. What goes, goes because somebody removed it, at the revision that was seen.
//!
//! A listing is of one class, and a row that cannot be read fails it, by name: a trim is a minimum over rows, and a row that
//! was left out deletes what a node still needs. No row is left out for what it says either, so all that a listing from a
//! member that is behind can do is to show an earlier value of a row. Positions, pins, covers and floors rise, and the
//! earlier one keeps more than it has to. Whoever goes back, or widens a hold, takes another hold before that: a new row is in
//! every listing that begins after it. An operation and an admission count by their being there, whatever step or run they
//! name.

use bytes::Bytes;
use coordproto::answer::{Cause, Error, Unknown};
use coordproto::record::keyed::Keyed;
use coordproto::record::position::{Admission, Backup, Floor, Hold, Kind, Maintenance, MaintenanceAck, NodePosition};
use coordproto::slot::POSITIONS;

use crate::slots::Settings;
use crate::slots::rows::{Change, Create, Remove, Row, Rows, good};
use crate::store::create::back_off;
use crate::store::modify::{Begin, Step, modify};
use crate::store::{Bucket, OpenError, Store, Write};

/// How often a run may be admitted anew while it is forgotten before the answer is unknown.
const ROUNDS: u32 = 16;

/// The seven classes of a fleet, over one bucket. Clones are handles to the same.
#[derive(Clone)]
pub struct Positions<S: Store> {
    /// Where every node stands.
    pub nodes: Nodes<S>,
    /// What has to be kept for now.
    pub holds: Holds<S>,
    /// What is covered by backups.
    pub backups: Backups<S>,
    /// What the trim published.
    pub floors: Floors<S>,
    /// The changes under way.
    pub maintenance: MaintenanceOperations<S>,
    /// Who may publish.
    pub admitted: Admissions<S>,
    /// Who has restarted for a change.
    pub acks: MaintenanceAcks<S>,
}

impl<S: Store> Positions<S> {
    /// Opens the bucket, adopting what exists.
    ///
    /// # Errors
    /// A setting that no broker can keep, fewer replicas than configured, or unknown.
    pub async fn open(store: &S, settings: &Settings) -> Result<Positions<S>, OpenError> {
        let bucket = settings.open(store, &POSITIONS).await?;
        Ok(Positions {
            nodes: Nodes(Rows::new(bucket.clone())),
            holds: Holds(Rows::new(bucket.clone())),
            backups: Backups(Rows::new(bucket.clone())),
            floors: Floors(Rows::new(bucket.clone())),
            maintenance: MaintenanceOperations(Rows::new(bucket.clone())),
            admitted: Admissions(Rows::new(bucket.clone())),
            acks: MaintenanceAcks(Rows::new(bucket)),
        })
    }
}

/// Where every node stands, by node and domain. A row is never removed: a node that comes back is judged by it.
#[derive(Clone)]
pub struct Nodes<S: Store>(Rows<S::Bucket, NodePosition>);

impl<S: Store> Nodes<S> {
    /// Records where a node stands, in place of the revision that was read; 0 is where nothing is recorded.
    ///
    /// # Errors
    /// An empty name or one too long, before anything is sent. Unknown, which says whether it may still land; also when what
    /// stands there cannot be read.
    pub async fn record(&self, position: &NodePosition, revision: u64) -> Result<Change<NodePosition>, Error> {
        self.0.record("record_position", position, revision).await
    }

    /// Where a node stands, or none.
    ///
    /// # Errors
    /// An empty name or one too long, before anything is sent. Unknown, also for a row that cannot be read.
    pub async fn get(&self, node: &str, domain: &str) -> Result<Option<Row<NodePosition>>, Error> {
        Ok(self.0.get("position", &NodePosition::key_of(node, domain)?).await?)
    }

    /// Where every node stands in every domain.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Row<NodePosition>>, Unknown> {
        self.0.list("list_positions", &Kind::Node.class().filter()).await
    }
}

/// What backups and joining nodes need kept. A hold ends when it is released and not before.
#[derive(Clone)]
pub struct Holds<S: Store>(Rows<S::Bucket, Hold>);

impl<S: Store> Holds<S> {
    /// Takes a hold that is not taken.
    ///
    /// # Errors
    /// An empty id or one too long, before anything is sent. Unknown, which says whether it may still land; also when what
    /// stands there cannot be read.
    pub async fn take(&self, hold: &Hold) -> Result<Create<Hold>, Error> {
        self.0.create("take_hold", hold).await
    }

    /// Moves the pins of the hold of this revision.
    ///
    /// # Errors
    /// As [`Holds::take`].
    pub async fn update(&self, hold: &Hold, revision: u64) -> Result<Change<Hold>, Error> {
        self.0.change("update_hold", hold, revision).await
    }

    /// Releases the hold of this revision.
    ///
    /// # Errors
    /// As [`Holds::take`].
    pub async fn release(&self, id: &str, revision: u64) -> Result<Remove<Hold>, Error> {
        Ok(self.0.remove("release_hold", &Kind::Hold.key("id", id)?, revision).await?)
    }

    /// Every hold.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Row<Hold>>, Unknown> {
        self.0.list("list_holds", &Kind::Hold.class().filter()).await
    }
}

/// What each owner's newest backup covers.
#[derive(Clone)]
pub struct Backups<S: Store>(Rows<S::Bucket, Backup>);

impl<S: Store> Backups<S> {
    /// Records a newer backup, in place of the one of the revision that was read; 0 is where none is recorded. Whoever loses
    /// is told the one that stands, and whether its own is still the newer.
    ///
    /// # Errors
    /// An empty owner or one too long, before anything is sent. Unknown, which says whether it may still land; also when
    /// what stands there cannot be read.
    pub async fn record(&self, backup: &Backup, revision: u64) -> Result<Change<Backup>, Error> {
        self.0.record("record_backup", backup, revision).await
    }

    /// Every owner's newest backup.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Row<Backup>>, Unknown> {
        self.0.list("list_backups", &Kind::Backup.class().filter()).await
    }
}

/// The floors that the trim published, by domain.
#[derive(Clone)]
pub struct Floors<S: Store>(Rows<S::Bucket, Floor>);

impl<S: Store> Floors<S> {
    /// Publishes a floor, in place of the one of the revision that was read; 0 is where none is published. A trim that was
    /// overtaken by another node's is told so.
    ///
    /// # Errors
    /// A floor that contradicts itself, or an empty domain or one too long, before anything is sent. Unknown, which says
    /// whether it may still land; also when what stands there cannot be read.
    pub async fn publish(&self, floor: &Floor, revision: u64) -> Result<Change<Floor>, Error> {
        self.0.record("publish_floor", floor, revision).await
    }

    /// The floor of a domain, or none.
    ///
    /// # Errors
    /// An empty domain or one too long, before anything is sent. Unknown, also for a floor that cannot be read.
    pub async fn get(&self, domain: &str) -> Result<Option<Row<Floor>>, Error> {
        Ok(self.0.get("floor", &Kind::Floor.key("domain", domain)?).await?)
    }

    /// Every floor.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Row<Floor>>, Unknown> {
        self.0.list("list_floors", &Kind::Floor.class().filter()).await
    }
}

/// The changes of logs' sizes under way, one for a log at most.
#[derive(Clone)]
pub struct MaintenanceOperations<S: Store>(Rows<S::Bucket, Maintenance>);

impl<S: Store> MaintenanceOperations<S> {
    /// Opens an operation, unless one is open for the log; answers the one that is.
    ///
    /// # Errors
    /// An empty log or operation, or a log too long, before anything is sent. Unknown, which says whether it may still land;
    /// also when what stands there cannot be read.
    pub async fn open(&self, operation: &Maintenance) -> Result<Create<Maintenance>, Error> {
        self.0.create("open_maintenance", operation).await
    }

    /// Takes the operation of this revision a step on.
    ///
    /// # Errors
    /// As [`MaintenanceOperations::open`].
    pub async fn update(&self, operation: &Maintenance, revision: u64) -> Result<Change<Maintenance>, Error> {
        self.0.change("update_maintenance", operation, revision).await
    }

    /// Closes the operation of this revision.
    ///
    /// # Errors
    /// As [`MaintenanceOperations::open`].
    pub async fn close(&self, log: &str, revision: u64) -> Result<Remove<Maintenance>, Error> {
        Ok(self.0.remove("close_maintenance", &Kind::Maintenance.key("log", log)?, revision).await?)
    }

    /// The operation that is open for a log, or none.
    ///
    /// # Errors
    /// An empty log or one too long, before anything is sent. Unknown, also for a row that cannot be read. Nobody publishes
    /// on that.
    pub async fn get(&self, log: &str) -> Result<Option<Row<Maintenance>>, Error> {
        Ok(self.0.get("maintenance", &Kind::Maintenance.key("log", log)?).await?)
    }

    /// Every operation that is open.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Row<Maintenance>>, Unknown> {
        self.0.list("list_maintenance", &Kind::Maintenance.class().filter()).await
    }
}

/// The definite answer to forgetting an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "another run of the node may be admitted"]
pub enum Forget {
    /// This call ended the admission.
    Forgotten,
    /// Another run of the node is admitted, and stays so.
    Another(Row<Admission>),
    /// No run of the node is admitted.
    NotAdmitted,
}

/// Which run of each node is admitted to publish.
#[derive(Clone)]
pub struct Admissions<S: Store>(Rows<S::Bucket, Admission>);

impl<S: Store> Admissions<S> {
    /// Admits a run of a node, in place of whichever run was. One that is admitted already stays as it is.
    ///
    /// # Errors
    /// An empty node or incarnation, or a node too long, before anything is sent. Unknown, which says whether it may still
    /// land; also when what stands there cannot be read.
    pub async fn admit(&self, admission: &Admission) -> Result<(), Error> {
        let key = good(admission)?;
        modify(self.0.bucket(), &key, Begin::Writing, ("admit", key.as_str()), |stands: Option<&Bytes>| {
            if let Some(value) = stands
                && Admission::decode(&key, value)?.incarnation == admission.incarnation
            {
                return Ok(Step::Keep(()));
            }
            Ok(Step::Put(Write::Value(admission.encode()), ()))
        })
        .await
    }

    /// Forgets the admission of a run, which says so itself when it ends. The admission of another run is left alone.
    ///
    /// # Errors
    /// An empty node or one too long, before anything is sent. Unknown, which says whether it may still be forgotten; also
    /// when what stands there cannot be read, or when the run was admitted anew 16 times meanwhile.
    pub async fn forget(&self, node: &str, incarnation: &str) -> Result<Forget, Error> {
        const OP: &str = "forget_admission";
        let key = Kind::Admitted.key("node", node)?;
        let mut at = match self.0.get(OP, &key).await? {
            Some(row) if row.record.incarnation == incarnation => row.revision,
            Some(another) => return Ok(Forget::Another(another)),
            None => return Ok(Forget::NotAdmitted),
        };
        for round in 0..ROUNDS {
            at = match self.0.remove(OP, &key, at).await? {
                Remove::Removed => return Ok(Forget::Forgotten),
                // It was forgotten and admitted anew since what was read, which may be long ago, and it is admitted still.
                Remove::Changed(row) if row.record.incarnation == incarnation => row.revision,
                Remove::Changed(another) => return Ok(Forget::Another(another)),
                Remove::Gone => return Ok(Forget::NotAdmitted),
            };
            back_off(self.0.bucket().env(), round).await;
        }
        Err(Unknown::settled(OP, key.as_str(), Cause::Contended { rounds: ROUNDS }).into())
    }

    /// Every admission.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Row<Admission>>, Unknown> {
        self.0.list("list_admissions", &Kind::Admitted.class().filter()).await
    }
}

/// Which nodes have restarted for which operation.
#[derive(Clone)]
pub struct MaintenanceAcks<S: Store>(Rows<S::Bucket, MaintenanceAck>);

impl<S: Store> MaintenanceAcks<S> {
    /// Says that a node has restarted for an operation. Said again, the first stays.
    ///
    /// # Errors
    /// An empty operation or node, or names too long, before anything is sent. Unknown, which says whether it may still
    /// land; also when what stands there cannot be read.
    pub async fn acknowledge(&self, ack: &MaintenanceAck) -> Result<Create<MaintenanceAck>, Error> {
        self.0.create("acknowledge_maintenance", ack).await
    }

    /// Removes the word of this revision. Only for an operation that is closed: a barrier that has run is open again without
    /// it.
    ///
    /// # Errors
    /// As [`MaintenanceAcks::acknowledge`].
    pub async fn forget(&self, operation: &str, node: &str, revision: u64) -> Result<Remove<MaintenanceAck>, Error> {
        Ok(self.0.remove("forget_maintenance_ack", &MaintenanceAck::key_of(operation, node)?, revision).await?)
    }

    /// Every node's word for every operation.
    ///
    /// # Errors
    /// Unknown, also for one row that cannot be read, which the error names; never a shorter list.
    pub async fn list(&self) -> Result<Vec<Row<MaintenanceAck>>, Unknown> {
        self.0.list("list_maintenance_acks", &Kind::MaintenanceAck.class().filter()).await
    }
}
