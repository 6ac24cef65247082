//! Work that can be done any number of times, its inputs made beforehand so that only the work itself is measured.

use std::hint::black_box;

use crate::plant::Dearer;

/// Something to measure, with everything it needs at hand.
pub trait Work {
    /// Makes the inputs of so many runs.
    fn prepare(&mut self, times: usize);

    /// Does it as often as was prepared for. What comes out is dropped within.
    fn run(&mut self);
}

/// A way of the code that is measured: by criterion, by the gate, and in instructions, all from the same text.
#[derive(Clone, Copy)]
pub struct Path {
    /// What every table calls it.
    pub name: &'static str,
    /// How often it is done where instructions are counted: as often as makes the counting's own few disappear.
    pub counted: usize,
    dearer: bool,
    make: fn() -> Box<dyn Work>,
}

impl Path {
    /// A path that is quick, and counted many times.
    pub const fn quick(name: &'static str, make: fn() -> Box<dyn Work>) -> Path {
        Path { name, counted: 64, dearer: false, make }
    }

    /// A path over so much that once is enough.
    pub const fn long(name: &'static str, make: fn() -> Box<dyn Work>) -> Path {
        Path { name, counted: 1, dearer: false, make }
    }

    /// The same path, every tenth run of which is done twice.
    pub fn planted(self) -> Path {
        Path { dearer: true, ..self }
    }

    /// The path made ready, and done once: what the first run sets up for all later ones is done.
    pub fn warm(&self) -> Box<dyn Work> {
        let mut work = (self.make)();
        if self.dearer {
            work = Box::new(Dearer::of(work));
        }
        work.prepare(1);
        work.run();
        work
    }

    /// The path made ready for what is counted: one run of the work is all of it.
    pub fn ready(&self) -> Box<dyn Work> {
        let mut work = self.warm();
        work.prepare(self.counted);
        work
    }
}

struct Each<I, Make, Do> {
    inputs: Vec<I>,
    make: Make,
    work: Do,
}

impl<I, O, Make: FnMut(usize) -> I, Do: FnMut(I) -> O> Work for Each<I, Make, Do> {
    fn prepare(&mut self, times: usize) {
        self.inputs.clear();
        self.inputs.extend((0..times).map(&mut self.make));
    }

    fn run(&mut self) {
        for input in self.inputs.drain(..) {
            black_box((self.work)(black_box(input)));
        }
    }
}

/// Work on inputs that each run consumes; `make` is told their numbers.
pub fn each<I: 'static, O: 'static>(
    make: impl FnMut(usize) -> I + 'static,
    work: impl FnMut(I) -> O + 'static,
) -> Box<dyn Work> {
    Box::new(Each { inputs: Vec::new(), make, work })
}

/// Work on one input that every run only looks at.
pub fn on<T: 'static>(input: T, mut work: impl FnMut(&T) + 'static) -> Box<dyn Work> {
    each(|_| (), move |()| work(black_box(&input)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn it_is_done_as_often_as_was_prepared_for() {
        let done = Rc::new(Cell::new(0));
        let sum = done.clone();
        let mut work = each(|n| n, move |n| sum.set(sum.get() + n + 1));
        work.prepare(4);
        assert_eq!(done.get(), 0, "making ready is not doing");
        work.run();
        work.run();
        assert_eq!(done.get(), 10);
    }
}
