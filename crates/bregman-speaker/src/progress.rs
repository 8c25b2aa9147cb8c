//! Progress of long work: the program draws a bar, tests and libraries pass `&()`.

/// Notified of each finished step, from any thread.
pub trait Progress: Sync {
    /// The work has `total` steps.
    fn begin(&self, total: usize);
    /// One step is done.
    fn step(&self);
}

/// No progress shown.
impl Progress for () {
    fn begin(&self, _: usize) {}
    fn step(&self) {}
}
