//! The threads behind a stream of batches: one lock, two condition variables, no channel.
//!
//! Workers take the next batch number while fewer than `ahead` batches are pending, compute it and store it as
//! finished; the trainer takes finished batches in order. Used feature buffers come back through [`Batches::recycle`],
//! so training allocates no new ones after the start.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{Batch, BatchMaker, BatchPosition};
use crate::{Error, Result};

/// A stream of batches, epoch after epoch, in order. It ends after an error, or at the end of [`super::Loader::epoch`].
pub struct Batches {
    shared: Arc<BatchQueue>,
    threads: Vec<JoinHandle<()>>,
    failed: bool,
}

struct BatchQueue {
    inner: Arc<BatchMaker>,
    ahead: u64,
    /// Batches in the stream.
    total: u64,
    state: Mutex<QueueState>,
    /// Signals workers: there is room, or the stream has stopped.
    room: Condvar,
    /// Signals the trainer: a batch is ready.
    ready: Condvar,
}

struct QueueState {
    /// The next batch to compute.
    next: BatchPosition,
    order: Arc<Vec<u32>>,
    /// Batches given to workers, and batches taken by the trainer, since the start.
    issued: u64,
    taken: u64,
    finished: BTreeMap<u64, Result<Batch>>,
    used: Vec<Vec<f32>>,
    stop: bool,
}

impl BatchQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, epoch: u64) -> Arc<Vec<u32>> {
        let config = &self.inner.config;
        Arc::new(config.order.epoch(self.inner.source.labels(), config.seed, epoch))
    }

    /// What a worker thread does until the stream is dropped.
    fn work(&self) {
        let mut reader = self.inner.source.reader();
        loop {
            let mut state = self.lock();
            while !state.stop && state.issued < self.total && state.issued - state.taken >= self.ahead {
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stop || state.issued == self.total {
                drop(state);
                self.room.notify_all(); // the other waiting workers must stop too
                return;
            }
            let (number, position, order) = (state.issued, state.next, state.order.clone());
            let buffer = state.used.pop().unwrap_or_default();
            state.issued += 1;
            state.next = self.inner.after(position);
            if state.next.epoch != position.epoch {
                state.order = self.order(state.next.epoch);
            }
            drop(state);
            let batch = catch_unwind(AssertUnwindSafe(|| self.inner.batch(reader.as_mut(), &order, position, buffer)));
            let batch = batch.unwrap_or_else(|panic| {
                reader = self.inner.source.reader();
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied());
                Err(Error::Worker(text.unwrap_or("unknown reason").to_owned()))
            });
            self.lock().finished.insert(number, batch);
            self.ready.notify_one();
        }
    }
}

impl Batches {
    pub(super) fn start(inner: Arc<BatchMaker>, from: BatchPosition, total: u64) -> Result<Self> {
        let workers = inner.config.workers;
        let ahead = inner.config.ahead.unwrap_or(workers + 2) as u64;
        let state = QueueState {
            next: from,
            order: Arc::default(),
            issued: 0,
            taken: 0,
            finished: BTreeMap::new(),
            used: Vec::new(),
            stop: false,
        };
        let shared = Arc::new(BatchQueue {
            inner,
            ahead,
            total,
            state: Mutex::new(state),
            room: Condvar::new(),
            ready: Condvar::new(),
        });
        shared.lock().order = shared.order(from.epoch);
        let mut batches = Self { shared, threads: Vec::new(), failed: false };
        for number in 0..workers {
            let shared = batches.shared.clone();
            let thread = std::thread::Builder::new().name(format!("loader-{number}")).spawn(move || shared.work());
            batches.threads.push(thread.map_err(|error| Error::Worker(format!("cannot start: {error}")))?);
        }
        Ok(batches)
    }

    /// Returns a batch whose memory can be reused for the next one.
    pub fn recycle(&self, batch: Batch) {
        self.shared.lock().used.push(batch.features);
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.shared.lock();
        let number = state.taken;
        if self.failed || number == self.shared.total {
            return None;
        }
        let batch = loop {
            if let Some(batch) = state.finished.remove(&number) {
                break batch;
            }
            state = self.shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.taken += 1;
        self.failed = batch.is_err();
        drop(state);
        self.shared.room.notify_one();
        Some(batch)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic was already caught and reported as an error
        }
    }
}
