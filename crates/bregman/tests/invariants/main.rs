//! What must hold whatever the numbers: properties of the optimizers, of the closed loop, and of saving and resuming.

mod frozen;
mod lent;
mod properties;
mod refusals;
mod resume;
mod setup;
