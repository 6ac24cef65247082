//! The lives of records that are made, changed and removed, from the first write to the last, and what everybody who takes part
//! is told.
//!
//! Two nodes want each: both make it, one of the two changes it over a revision that is gone, and both remove it at once. Of
//! each pair one is told that it did.

use std::time::Duration;

use engine::env::Mono;
use engine::store::Store;
use futures_util::future::join;

use super::account::{Rising, Said, Verdict, Wrong, holds, judged};
use super::context::{Context, said};
use super::node::Node;
use super::shelves::{Shelf, Told};

/// A record to be.
pub(super) struct Life<'a, S: Store> {
    pub(super) ctx: &'a Context<S>,
    pub(super) shelf: Shelf,
    pub(super) key: String,
    /// The two who want it.
    pub(super) nodes: [&'a Node<S>; 2],
    /// How often it is changed; not at all in a family that has no such change.
    pub(super) changes: u32,
    /// From one change to the next.
    pub(super) pause: Duration,
}

impl<S: Store> Life<'_, S> {
    /// Lives it from `due` on. It is left where it is when nobody can say any more how it stands, or when the run is over.
    pub(super) async fn live(self, due: Mono) {
        let mut record = Rising::default();
        if !self.make(&mut record, due).await {
            return;
        }
        self.look(&mut record).await;
        for change in 1..=self.changes {
            let at = due + self.pause * change;
            if self.ctx.over_by(at).await || !self.change(&mut record, at).await {
                return;
            }
        }
        if self.ctx.over_by(due + self.pause * (self.changes + 1)).await {
            return;
        }
        if self.remove(&mut record).await {
            self.look(&mut record).await;
        }
    }

    fn judge(&self, verdict: Verdict) {
        self.ctx.judge(verdict, format_args!("{:?} {}", self.shelf, self.key));
    }

    async fn make(&self, record: &mut Rising, due: Mono) -> bool {
        let Life { ctx, shelf, key, nodes: [one, other], .. } = self;
        let names = shelf.names();
        let numbers = [record.next().0, record.next().0];
        numbers.iter().for_each(|number| ctx.accounts.rolls.lock().sending(names.list, key, *number));
        let done = |told: &Told| matches!(told, Told::Done(_));
        let (first, second) = join(
            ctx.ask(names.create, due, done, shelf.create(one, key, numbers[0])),
            ctx.ask(names.create, due, done, shelf.create(other, key, numbers[1])),
        )
        .await;
        let answers = [(numbers[0], first), (numbers[1], second)];
        self.judge(first_written(record, &answers));
        let stands = record.stands().1 > 0;
        if stands {
            ctx.accounts.rolls.lock().stands(names.list, key, ctx.env.now());
        }
        // Of one that is without an answer nobody knows whether it will stand.
        stands && answers.iter().all(|(_, answer)| answer.is_ok())
    }

    async fn look(&self, record: &mut Rising) {
        let Life { ctx, shelf, key, nodes: [_, other], .. } = self;
        let Some(name) = shelf.names().get else { return };
        let answer = ctx.ask(name, ctx.env.now(), Option::is_some, shelf.get(other, key)).await;
        if let Ok(stands) = answer {
            let told = record.told(stands.unwrap_or_default());
            self.judge(told);
        }
    }

    async fn change(&self, record: &mut Rising, due: Mono) -> bool {
        let Life { ctx, shelf, key, nodes: [one, other], .. } = self;
        let names = shelf.names();
        let Some(name) = names.change else { return true };
        let (_, seen) = record.stands();
        for (node, due) in [(one, due), (other, ctx.env.now())] {
            let (number, _) = record.next();
            ctx.accounts.rolls.lock().sending(names.list, key, number);
            let done = |told: &Told| matches!(told, Told::Done(_));
            let verdict = match ctx.ask(name, due, done, shelf.change(node, key, number, seen)).await {
                Ok(Told::Done(revision)) if record.stands().1 == seen => record.stored(number, revision),
                Ok(Told::Done(_)) => Err(Wrong::WinnersDoubled),
                Ok(Told::Stands(stands)) => record.refused(number, seen, stands),
                Ok(Told::Absent) => Err(Wrong::Record),
                Err(_) => return false,
            };
            self.judge(verdict);
        }
        true
    }

    async fn remove(&self, record: &mut Rising) -> bool {
        let Life { ctx, shelf, key, nodes: [one, other], .. } = self;
        let names = shelf.names();
        let (_, seen) = record.stands();
        ctx.accounts.rolls.lock().leaving(names.list, key);
        let (done, now) = (|told: &Told| matches!(told, Told::Done(_)), ctx.env.now());
        let (first, second) = join(
            ctx.ask(names.remove, now, done, shelf.remove(one, key, seen)),
            ctx.ask(names.remove, now, done, shelf.remove(other, key, seen)),
        )
        .await;
        self.judge(judged(&[said(&first, done), said(&second, done)], false));
        // Nobody else writes it, so whoever came too late finds nothing.
        let other_stands = [&first, &second].iter().any(|answer| matches!(answer, Ok(Told::Stands(_))));
        self.judge(holds(!other_stands, Wrong::Record));
        record.removed();
        first.is_ok() && second.is_ok()
    }
}

/// Judges what was told to those who wrote the first number of a record at once: one wins, and everybody else is told of it.
pub(super) fn first_written<E>(record: &mut Rising, answers: &[(u64, Result<Told, E>)]) -> Verdict {
    let done = |told: &Told| matches!(told, Told::Done(_));
    let told: Vec<Said> = answers.iter().map(|(_, answer)| said(answer, done)).collect();
    judged(&told, false)?;
    for (number, answer) in answers {
        if let Ok(Told::Done(revision)) = answer {
            record.stored(*number, *revision)?;
        }
    }
    for (number, answer) in answers {
        if let Ok(Told::Stands(stands)) = answer {
            record.refused(*number, 0, *stands)?;
        }
    }
    Ok(())
}
