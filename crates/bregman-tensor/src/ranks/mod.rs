//! Several processes that train one network: who they are, and how numbers travel between them.
//!
//! Every rank computes a part of a batch and keeps all weights and duals. What travels are sums: of gradients, of the
//! statistics of batch norms, of losses. They arrive at every rank equal to the bit, so that every rank takes the same
//! step; what follows from them (λ, masks, the best epoch) never travels.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `mpi` (feature `mpi`) | processes on one or many machines, started by `mpirun` or `srun` |
//! | [`NcclRanks`](crate::NcclRanks) (feature `cuda`) | processes with a GPU each, as `torchrun` starts them |
//! | `threads` | threads of one process: for tests |

#[cfg(feature = "mpi")]
mod mpi;
mod threads;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use threads::thread_ranks;

use crate::{Error, Result};

/// How numbers travel between ranks. All ranks call the same methods in the same order.
pub trait Communicator: Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;
    /// How many there are.
    fn size(&self) -> usize;
    /// Begins to add the values of all ranks, element by element. The caller goes on meanwhile.
    fn start_sum(&self, values: Vec<f32>) -> PendingSum;
    /// Adds the values of all ranks, element by element.
    ///
    /// # Errors
    /// Ranks that are gone.
    fn sum(&self, values: &mut [f64]) -> Result<()>;
    /// What every rank hands in, by rank.
    ///
    /// # Errors
    /// As [`Communicator::sum`].
    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// Ends all ranks at once: this one has failed.
    fn abort(&self, code: i32) -> !;
    /// Says goodbye to the others before this process ends.
    fn leave(&self) {}
}

/// A sum on its way.
pub struct PendingSum(Receiver<Vec<f32>>);

impl PendingSum {
    /// A sum, and where it will be put when it is there.
    pub fn new() -> (Self, SyncSender<Vec<f32>>) {
        let (sender, receiver) = sync_channel(1);
        (Self(receiver), sender)
    }

    /// Waits for it.
    ///
    /// # Errors
    /// Ranks that are gone.
    pub fn wait(self) -> Result<Vec<f32>> {
        self.0.recv().map_err(|_| Error::RanksGone)
    }
}

/// All ranks that train one network, as one of them sees it. A process that trains alone is rank 0 of 1.
#[derive(Clone, Default)]
pub struct Ranks(Option<Arc<dyn Communicator>>);

impl Ranks {
    /// A process that trains alone.
    pub const ALONE: Self = Self(None);

    /// One of several.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        Self(Some(Arc::new(communicator)))
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, |ranks| ranks.rank())
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.0.as_ref().map_or(1, |ranks| ranks.size())
    }

    /// Whether this is the rank that writes files and talks to the user.
    pub fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// Whether this process was started without a launcher. A single process started by one does not count as alone: it
    /// still communicates, with itself.
    pub fn is_alone(&self) -> bool {
        self.0.is_none()
    }

    /// Which of `count` things, numbered from 0, are this rank's: a range as long as that of the others, or one longer
    /// or shorter.
    pub fn part_of(&self, count: usize) -> std::ops::Range<usize> {
        let (rank, size) = (self.rank(), self.size());
        count * rank / size..count * (rank + 1) / size
    }

    /// Begins to add the values of all ranks; see [`Communicator::start_sum`].
    pub fn start_sum(&self, values: Vec<f32>) -> PendingSum {
        match &self.0 {
            Some(ranks) => ranks.start_sum(values),
            None => {
                let (pending, done) = PendingSum::new();
                done.send(values).expect("the receiver is here");
                pending
            }
        }
    }

    /// Adds the values of all ranks, element by element. Counts up to 2⁵³ are exact.
    ///
    /// # Errors
    /// Ranks that are gone.
    pub fn sum(&self, values: &mut [f64]) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |ranks| ranks.sum(values))
    }

    /// What every rank hands in, by rank.
    ///
    /// # Errors
    /// Ranks that are gone.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.0.as_ref().map_or_else(|| Ok(vec![own.to_vec()]), |ranks| ranks.gather(own))
    }

    /// What rank 0 says, whatever this one would.
    ///
    /// # Errors
    /// Ranks that are gone.
    pub fn word_of_leader(&self, own: bool) -> Result<bool> {
        let words = self.gather(&[u8::from(own)])?;
        Ok(words[0] == [1])
    }

    /// Waits until every rank is here.
    ///
    /// # Errors
    /// Ranks that are gone.
    pub fn meet(&self) -> Result<()> {
        self.gather(&[]).map(|_| ())
    }

    /// The first rank whose `state`, such as a hash of all weights, is not that of rank 0; the same answer on every
    /// rank.
    ///
    /// # Errors
    /// Ranks that are gone.
    pub fn odd_one_out(&self, state: &[u8]) -> Result<Option<usize>> {
        let all = self.gather(state)?;
        Ok(all.iter().position(|other| *other != all[0]))
    }

    /// Ends all ranks at once, if there are others: this one has failed.
    pub fn abort(&self, code: i32) {
        if let Some(ranks) = &self.0 {
            ranks.abort(code);
        }
    }

    /// Says goodbye to the others, if there are some, before this process ends.
    pub fn leave(&self) {
        if let Some(ranks) = &self.0 {
            ranks.leave();
        }
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

/// The same place among as many.
impl PartialEq for Ranks {
    fn eq(&self, other: &Self) -> bool {
        (self.rank(), self.size()) == (other.rank(), other.size())
    }
}

impl Eq for Ranks {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_alone_sums_and_gathers_what_it_has() {
        let alone = Ranks::ALONE;
        assert!(alone.leads() && alone.is_alone() && alone == Ranks::default());
        assert_eq!(alone.start_sum(vec![1.0, 2.0]).wait().unwrap(), [1.0, 2.0]);
        assert_eq!(alone.gather(b"own").unwrap(), [b"own"]);
        assert_eq!(alone.odd_one_out(b"state").unwrap(), None);
        assert_eq!(alone.part_of(7), 0..7);
    }

    #[test]
    fn parts_are_even_and_leave_nothing_out() {
        let parts: Vec<_> = thread_ranks(3).iter().map(|ranks| ranks.part_of(8)).collect();
        assert_eq!(parts, [0..2, 2..5, 5..8]);
    }
}
