//! Processes that `mpirun` or `srun` started: MPI carries the numbers.
//!
//! One thread makes all calls of MPI, in the order in which they are asked for. A sum therefore travels while the
//! threads that compute go on, and MPI needs no locks (`MPI_THREAD_FUNNELED`).

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _};
use mpi::{Count, Threading};

use super::{Communicator, PendingSum};
use crate::{Error, Result};

/// One process of an MPI job.
pub struct Mpi {
    rank: usize,
    size: usize,
    requests: Sender<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread of MPI is asked, and where the answer goes.
enum Request {
    Sum32(Vec<f32>, SyncSender<Vec<f32>>),
    Sum64(Vec<f64>, SyncSender<Vec<f64>>),
    Gather(Vec<u8>, SyncSender<Vec<Vec<u8>>>),
    Abort(i32),
    Leave,
}

impl Mpi {
    /// Joins the job that this process was started for. To be called once.
    ///
    /// # Errors
    /// A process that has joined already.
    pub fn join() -> Result<Self> {
        let (requests, asked) = channel();
        let (place, told) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("mpi".to_owned())
            .spawn(move || {
                let universe = mpi::initialize_with_threading(Threading::Funneled).map(|(universe, _)| universe);
                let world = universe.as_ref().map(Universe::world);
                let _ = place.send(world.as_ref().map(|world| (world.rank() as usize, world.size() as usize)));
                if let Some(world) = world {
                    answer(&world, &asked);
                }
            })
            .map_err(|error| Error::Device(format!("the thread of MPI cannot be started: {error}")))?;
        let joined = told.recv().map_err(|_| Error::RanksGone)?;
        let (rank, size) =
            joined.ok_or_else(|| Error::Device("MPI was initialised before in this process".to_owned()))?;
        Ok(Self { rank, size, requests, thread: Mutex::new(Some(thread)) })
    }

    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Result<T> {
        let (answer, answered) = sync_channel(1);
        self.requests.send(request(answer)).map_err(|_| Error::RanksGone)?;
        answered.recv().map_err(|_| Error::RanksGone)
    }
}

/// Answers until this process leaves. An answer that nobody waits for any more is dropped.
fn answer(world: &SimpleCommunicator, requests: &Receiver<Request>) {
    let (mut spare32, mut spare64) = (Vec::new(), Vec::new());
    for request in requests {
        match request {
            Request::Sum32(values, to) => drop(to.send(sum(world, values, &mut spare32))),
            Request::Sum64(values, to) => drop(to.send(sum(world, values, &mut spare64))),
            Request::Gather(own, to) => drop(to.send(gather(world, &own))),
            Request::Abort(code) => world.abort(code),
            Request::Leave => break,
        }
    }
}

/// The longest message of one rank: MPI counts with `int`, and messages far below that keep memory small.
const MESSAGE: usize = 1 << 24;

/// The sums of all ranks' values. They are put into `spare`, whose memory `values` becomes: nothing is allocated.
fn sum<T: mpi::traits::Equivalence + Copy + Default>(
    world: &SimpleCommunicator,
    values: Vec<T>,
    spare: &mut Vec<T>,
) -> Vec<T>
where
    [T]: mpi::traits::Buffer + mpi::traits::BufferMut,
{
    spare.resize(values.len(), T::default());
    for (values, sums) in values.chunks(MESSAGE).zip(spare.chunks_mut(MESSAGE)) {
        world.all_reduce_into(values, sums, SystemOperation::sum());
    }
    std::mem::replace(spare, values)
}

fn gather(world: &SimpleCommunicator, own: &[u8]) -> Vec<Vec<u8>> {
    let ranks = world.size() as usize;
    let mut lengths = vec![0u64; ranks];
    world.all_gather_into(&(own.len() as u64), &mut lengths[..]);
    let piece = MESSAGE.min(i32::MAX as usize / 2 / ranks); // of all ranks together
    let pieces = (lengths.iter().max().map_or(0, |&most| most as usize)).div_ceil(piece);
    let mut all = vec![Vec::new(); ranks];
    for piece in (0..pieces).map(|number| number * piece..(number + 1) * piece) {
        let own = &own[piece.start.min(own.len())..piece.end.min(own.len())];
        all.iter_mut().zip(gather_piece(world, own)).for_each(|(all, part)| all.extend(part));
    }
    all
}

/// What every rank hands in, where that is short and not empty for all of them, which Open MPI refuses.
fn gather_piece(world: &SimpleCommunicator, own: &[u8]) -> Vec<Vec<u8>> {
    let mut lengths = vec![0 as Count; world.size() as usize];
    world.all_gather_into(&(own.len() as Count), &mut lengths[..]);
    let starts: Vec<Count> = lengths.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect();
    let mut all = vec![0u8; lengths.iter().map(|&len| len as usize).sum()];
    world.all_gather_varcount_into(own, &mut PartitionMut::new(&mut all[..], &lengths[..], &starts[..]));
    let part = |(&start, &len): (&Count, &Count)| all[start as usize..][..len as usize].to_vec();
    starts.iter().zip(&lengths).map(part).collect()
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn start_sum(&self, values: Vec<f32>) -> PendingSum {
        let (pending, done) = PendingSum::new();
        // where the thread is gone, `pending` says so
        let _ = self.requests.send(Request::Sum32(values, done));
        pending
    }

    fn sum(&self, values: &mut [f64]) -> Result<()> {
        let sums = self.ask(|to| Request::Sum64(values.to_vec(), to))?;
        values.copy_from_slice(&sums);
        Ok(())
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.ask(|to| Request::Gather(own.to_vec(), to))
    }

    fn abort(&self, code: i32) -> ! {
        let _ = self.requests.send(Request::Abort(code));
        // the thread may be waiting for ranks that never come: then the launcher ends the others
        std::thread::sleep(std::time::Duration::from_secs(2));
        std::process::exit(code)
    }

    fn leave(&self) {
        let _ = self.requests.send(Request::Leave);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
