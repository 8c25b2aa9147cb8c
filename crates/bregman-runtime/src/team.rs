//! Threads that stay awake for the layers of one execution.
//!
//! A layer of a sparse network takes a tenth of a millisecond: a thread that goes to sleep after each is woken too late
//! to be of use. So the helpers of an execution look for the next layer until it is over. A helper that comes late, or
//! never because its core is busy, is not waited for: others take its share.
//!
//! Each thread begins with its own share of the blocks, the same in every layer, whose activations its cache has.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often a thread looks before it lets others have its core.
const LOOKS: u32 = 1 << 12;

/// `turn` of a team whose execution is over.
const OVER: usize = usize::MAX;

/// What the threads of an execution share.
pub(crate) struct Team {
    /// Odd while there is a layer to compute; [`OVER`] at the end.
    turn: AtomicUsize,
    /// The layer, written only while `turn` is even and no helper is inside.
    layer: UnsafeCell<Layer>,
    /// Helpers that may be using the layer.
    inside: AtomicUsize,
    /// Of each thread's share, the next block.
    next: Vec<Line>,
}

/// A counter with a line of the cache for itself.
#[repr(align(64))]
struct Line(AtomicUsize);

#[derive(Clone, Copy)]
struct Layer {
    count: usize,
    work: *const (dyn Fn(usize) + Sync),
}

// SAFETY: `layer` is written by the leader only, while no helper is inside; its `work` may be called by all threads.
unsafe impl Sync for Team {}

impl Team {
    /// Calls `lead` with a team of as many threads as the pool has.
    pub(crate) fn of<T: Send>(pool: &rayon::ThreadPool, lead: impl FnOnce(&Self) -> T + Send) -> T {
        let team = Self {
            turn: AtomicUsize::new(0),
            layer: UnsafeCell::new(Layer { count: 0, work: &|_| () }),
            inside: AtomicUsize::new(0),
            next: (0..pool.current_num_threads()).map(|_| Line(AtomicUsize::new(0))).collect(),
        };
        let team = &team;
        pool.scope(|helpers| {
            for number in 1..team.next.len() {
                helpers.spawn(move |_| team.help(number));
            }
            let _over = Finally(|| team.turn.store(OVER, Ordering::SeqCst));
            lead(team)
        })
    }

    pub(crate) fn threads(&self) -> usize {
        self.next.len()
    }

    /// Calls `work` for every number below `count`, on all threads.
    pub(crate) fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; the pointer is used until this function returns, and not after it.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let layer = Layer { count, work };
        for (share, next) in self.next.iter().enumerate() {
            next.0.store(self.begin(share, count), Ordering::Relaxed);
        }
        // SAFETY: the last call has waited until no helper was inside, and none enters while `turn` is even.
        unsafe { *self.layer.get() = layer };
        self.turn.fetch_add(1, Ordering::SeqCst);
        // also if `work` panics: helpers may be using it
        let _closed = Finally(|| {
            self.turn.fetch_add(1, Ordering::SeqCst);
            let mut patience = Patience::default();
            while self.inside.load(Ordering::SeqCst) > 0 {
                patience.wait();
            }
        });
        self.compute(0, layer);
    }

    fn help(&self, number: usize) {
        let (mut done, mut patience) = (0, Patience::default());
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            if turn == OVER {
                return;
            }
            if turn % 2 == 1 && turn != done {
                self.inside.fetch_add(1, Ordering::SeqCst);
                let _outside = Finally(|| {
                    self.inside.fetch_sub(1, Ordering::SeqCst);
                });
                // either the leader sees this helper inside and waits, or this helper sees that the layer is over
                if self.turn.load(Ordering::SeqCst) == turn {
                    // SAFETY: the leader does not write it before this helper is outside again.
                    self.compute(number, unsafe { *self.layer.get() });
                }
                (done, patience) = (turn, Patience::default());
            } else {
                patience.wait();
            }
        }
    }

    /// The own share, then what is left of the others'.
    fn compute(&self, number: usize, layer: Layer) {
        let shares = self.next.len();
        for share in (0..shares).map(|i| (number + i) % shares) {
            let end = self.begin(share + 1, layer.count);
            loop {
                let block = self.next[share].0.fetch_add(1, Ordering::Relaxed);
                if block >= end {
                    break;
                }
                // SAFETY: valid until `each` returns, which waits for whoever is inside.
                unsafe { (*layer.work)(block) };
            }
        }
    }

    fn begin(&self, share: usize, count: usize) -> usize {
        share * count / self.next.len()
    }
}

/// Waits for another thread: first awake, then so that others can have the core, which may be who is waited for.
#[derive(Default)]
struct Patience {
    looks: u32,
}

impl Patience {
    fn wait(&mut self) {
        if self.looks < LOOKS {
            self.looks += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Calls a function at the end of its life, also when that comes by a panic.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    #[test]
    fn every_block_of_every_layer_is_computed_once() {
        for threads in [1, 2, 3, 5] {
            let pool = pool(threads);
            for _ in 0..20 {
                Team::of(&pool, |team| {
                    for count in [0, 1, 2, 3, 7, 100, 1000] {
                        let calls: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
                        team.each(count, &|block| {
                            calls[block].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 1), "{count} blocks");
                    }
                });
            }
        }
    }

    #[test]
    fn several_executions_share_the_threads_of_a_pool() {
        let pool = pool(2);
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        Team::of(&pool, |team| {
                            for _ in 0..8 {
                                team.each(10, &|_| {
                                    total.fetch_add(1, Ordering::Relaxed);
                                });
                            }
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 25 * 8 * 10);
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_lives_on() {
        let pool = pool(3);
        for block in [0, 50, 99] {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                Team::of(&pool, |team| {
                    team.each(100, &|at| assert_ne!(at, block, "a block that fails"));
                });
            }));
            assert!(panicked.is_err());
        }
        assert_eq!(Team::of(&pool, |_| 7), 7);
    }
}
