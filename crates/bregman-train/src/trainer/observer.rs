//! Who watches a run: the program draws a bar, tests and libraries pass `&()`.

use bregman_speaker::Progress;
use bregman_tensor::Precision;

use crate::run::{EpochRecord, StepRecord};

/// Receives what happens in a run.
pub trait Observer {
    /// Watches the preparation of the data.
    fn preparing(&self) -> &dyn Progress {
        &()
    }
    /// The run computes there: the device, and its precision.
    fn device(&self, _description: &str, _precision: Precision) {}
    /// How the run will train: what the recipe says and what follows from the network and the length of the run.
    fn plan(&self, _text: &str) {}
    /// Training begins or continues: steps taken, and steps in all.
    fn begin(&self, _step: u64, _total: u64) {}
    /// A step was taken.
    fn step(&self, _record: &StepRecord) {}
    /// An epoch is over; `best` tells whether it is the best so far.
    fn epoch(&self, _record: &EpochRecord, _best: bool) {}
    /// Something the user should know.
    fn warning(&self, _text: &str) {}
}

/// Nobody watches.
impl Observer for () {}
