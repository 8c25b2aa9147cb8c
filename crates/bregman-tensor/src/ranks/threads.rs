//! Ranks that are threads of one process: what tests take, which cannot count on MPI.

use std::sync::{Arc, Barrier, Mutex, PoisonError};

use super::{Communicator, PendingSum, Ranks};
use crate::Result;

/// As many ranks, each for a thread of its own.
pub fn thread_ranks(size: usize) -> Vec<Ranks> {
    let room = Arc::new(Room { handed_in: Mutex::new(vec![Vec::new(); size]), barrier: Barrier::new(size) });
    (0..size).map(|rank| Ranks::new(ThreadRank { rank, size, room: room.clone() })).collect()
}

/// Where the threads meet.
struct Room {
    handed_in: Mutex<Vec<Vec<u8>>>,
    barrier: Barrier,
}

struct ThreadRank {
    rank: usize,
    size: usize,
    room: Arc<Room>,
}

impl ThreadRank {
    /// Everybody's values, added in the order of ranks.
    fn add<T: Copy + std::ops::AddAssign + bytemuck::Pod>(&self, values: &mut [T]) {
        let all = self.exchange(bytemuck::cast_slice(values));
        let numbers =
            |bytes: &'_ [u8]| bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>).collect();
        let [first, others @ ..] = &all[..] else { return };
        values.copy_from_slice(&numbers(first) as &Vec<T>);
        for other in others {
            values.iter_mut().zip(numbers(other)).for_each(|(sum, value)| *sum += value);
        }
    }

    fn exchange(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let handed_in = || self.room.handed_in.lock().unwrap_or_else(PoisonError::into_inner);
        handed_in()[self.rank] = own.to_vec();
        self.room.barrier.wait();
        let all = handed_in().clone();
        self.room.barrier.wait();
        all
    }
}

impl Communicator for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn start_sum(&self, mut values: Vec<f32>) -> PendingSum {
        self.add(&mut values);
        let (pending, done) = PendingSum::new();
        done.send(values).expect("the receiver is here");
        pending
    }

    fn sum(&self, values: &mut [f64]) -> Result<()> {
        self.add(values);
        Ok(())
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.exchange(own))
    }

    fn abort(&self, code: i32) -> ! {
        panic!("rank {} has failed with {code}", self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sum_gather_and_find_the_odd_one() {
        std::thread::scope(|scope| {
            for ranks in thread_ranks(3) {
                scope.spawn(move || {
                    let own = ranks.rank() as f32;
                    assert_eq!(ranks.start_sum(vec![own, 1.0]).wait().unwrap(), [3.0, 3.0]);
                    let mut values = [f64::from(own)];
                    ranks.sum(&mut values).unwrap();
                    assert_eq!(values, [3.0]);
                    assert_eq!(ranks.gather(&[ranks.rank() as u8; 2]).unwrap(), [[0, 0], [1, 1], [2, 2]]);
                    assert_eq!(ranks.odd_one_out(&[u8::from(ranks.rank() == 2)]).unwrap(), Some(2));
                });
            }
        });
    }
}
