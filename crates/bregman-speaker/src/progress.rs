//! How long work tells that it advances; the program draws a bar, tests and libraries pass `&()`.

/// Receives the steps of a long piece of work, from any thread.
pub trait Progress: Sync {
    /// The work has `total` steps.
    fn begin(&self, total: usize);
    /// One step is done.
    fn step(&self);
}

/// Nobody watches.
impl Progress for () {
    fn begin(&self, _: usize) {}
    fn step(&self) {}
}
