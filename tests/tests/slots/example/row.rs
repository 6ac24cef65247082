//! The row, as a constant: the table is one for all, and this family is in none.

use coordproto::slot::{Age, OnUnknown, Remover, Slot, days};

pub(crate) const GREETINGS: Slot = Slot {
    about: "Which newcomers were greeted",
    name: "greetings",
    age: Age::Fixed(days(30)),
    because: "nobody is a newcomer for longer",
    removed_by: Remover::Age,
    on_unknown: OnUnknown::Closed("nobody says hello"),
};
