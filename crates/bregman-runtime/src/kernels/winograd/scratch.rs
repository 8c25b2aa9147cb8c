//! Memory for what is transformed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bregman_base::Buffer;

/// The memory of each thread of an execution, which layers use one after the other.
#[derive(Default)]
pub(crate) struct Scratch {
    own: Vec<Mutex<Own>>,
}

/// The memory of a thread.
#[derive(Default)]
pub(super) struct Own {
    pub(super) values: Buffer,
    /// Whether it has what the thread needs for every task of the layer.
    pub(super) prepared: bool,
}

impl Scratch {
    /// Prepares for a layer.
    pub(super) fn reserve(&mut self, length: usize, threads: usize) {
        self.own.resize_with(threads.max(self.own.len()), Mutex::default);
        for own in self.own.iter_mut().take(threads) {
            let own = own.get_mut().unwrap_or_else(PoisonError::into_inner);
            own.values.grow(length);
            own.prepared = false;
        }
    }

    /// The memory of a thread that has no task now. There is one for every thread, so none waits.
    pub(super) fn any(&self) -> MutexGuard<'_, Own> {
        let free = self.own.iter().find_map(|own| own.try_lock().ok());
        free.unwrap_or_else(|| self.own[0].lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn bytes(&self) -> usize {
        let own = |own: &Mutex<Own>| own.lock().unwrap_or_else(PoisonError::into_inner).values.bytes();
        self.own.iter().map(own).sum()
    }
}
