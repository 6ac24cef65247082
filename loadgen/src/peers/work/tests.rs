use std::sync::atomic::AtomicU64;

use super::*;
use crate::recorder::Recorder;

const CLASS: &str = "list_5";

/// Acknowledges writes, and does nothing else.
#[derive(Clone, Default)]
struct Writes(Arc<AtomicU64>);

impl Peer for Writes {
    type Held = ();

    async fn claim(&self, _node: usize, _seat: &str) -> Result<Option<()>, Failed> {
        unreachable!()
    }

    async fn is_mine(&self, _node: usize, _seat: &str) -> Result<bool, Failed> {
        unreachable!()
    }

    fn renews_apart(&self) -> bool {
        unreachable!()
    }

    async fn renew(&self, _node: usize, _held: &mut [()]) -> Renewed {
        unreachable!()
    }

    async fn write(&self, _class: &str, _key: &str) -> Result<u64, Failed> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    async fn list(&self, _class: &str) -> Result<Vec<Listed>, Failed> {
        unreachable!()
    }

    async fn charge(&self, _client: usize) -> Result<Charged, Failed> {
        unreachable!()
    }

    async fn charged(&self) -> Result<u64, Failed> {
        unreachable!()
    }
}

/// The keys of the class at the revisions that they have after it was written `times` times, one key after another.
fn written(times: u64) -> Vec<Listed> {
    (0..5).map(|number| Listed { key: key(number), revision: 5 * (times - 1) + number as u64 + 1 }).collect()
}

/// What three listings come to that answer so, of a class that was written twice before.
async fn listings(answer: impl AsyncFn(&Work<Writes>) -> Result<Vec<Listed>, Failed>) -> Piece {
    let env = Env::seeded(1);
    let mut recorder = Recorder::new(env.now());
    let (op, (heartbeat, slice)) = (recorder.declare("listing"), (Duration::ZERO, Duration::ZERO));
    let params = Params { seats: 5, nodes: 1, claimers: 1, heartbeat, rounds: 1, slice, charges: 1 };
    let work = Work { env, params, peer: Writes::default(), account: Account::default() };
    for _ in 0..2 {
        work.load(CLASS, 5).await.unwrap();
    }
    work.listings(&op, CLASS, false, async || Ok(()), async |()| answer(&work).await).await
}

#[tokio::test]
async fn a_listing_that_lies_is_wrong_whatever_it_lies_about() {
    type Lie = fn(&mut Vec<Listed>);
    let lies: [(Lie, Wrongs); 5] = [
        (|_| {}, Wrongs::default()),
        (|listed| drop(listed.pop()), Wrongs { short: 3, ..Wrongs::default() }),
        (|listed| listed.push(listed[2].clone()), Wrongs { double: 3, ..Wrongs::default() }),
        (|listed| listed[4] = written(1).remove(4), Wrongs { old: 3, ..Wrongs::default() }),
        (|listed| *listed = vec![written(1).remove(0); 2], Wrongs { short: 3, double: 3, old: 3 }),
    ];
    for (lie, expected) in lies {
        let piece = listings(async |_| {
            let mut listed = written(2);
            lie(&mut listed);
            Ok(listed)
        });
        let piece = piece.await;
        let wrong = if expected == Wrongs::default() { 0 } else { 3 };
        assert_eq!((piece.ok, piece.wrong, piece.listed), (3, wrong, Some(expected)));
    }
}

#[tokio::test]
async fn what_is_written_while_it_lists_may_be_in_it_or_not() {
    let came_to = |piece: Piece| (piece.ok, piece.wrong, piece.listed);
    let meanwhile = AtomicU64::new(2);
    let before = listings(async |work| {
        work.load(CLASS, 5).await?;
        Ok(written(meanwhile.fetch_add(1, Ordering::Relaxed)))
    });
    assert_eq!(came_to(before.await), (3, 0, Some(Wrongs::default())));
    let meanwhile = AtomicU64::new(3);
    let after = listings(async |work| {
        work.load(CLASS, 5).await?;
        Ok(written(meanwhile.fetch_add(1, Ordering::Relaxed)))
    });
    assert_eq!(came_to(after.await), (3, 0, Some(Wrongs::default())));
    let stale = listings(async |work| {
        work.load(CLASS, 5).await?;
        Ok(written(2))
    });
    let old = Some(Wrongs { old: 2, ..Wrongs::default() });
    assert_eq!(
        came_to(stale.await),
        (3, 2, old),
        "the first listing alone began before those writes were acknowledged"
    );
}

#[tokio::test]
async fn a_listing_without_an_answer_is_neither_right_nor_wrong() {
    let piece = listings(async |_| Err("no answer".to_owned())).await;
    assert_eq!((piece.ok, piece.wrong, piece.unknown, piece.listed), (0, 0, 3, Some(Wrongs::default())));
}
