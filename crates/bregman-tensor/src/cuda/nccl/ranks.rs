//! Ranks with a GPU each that find each other by an address, as `torchrun` starts them: NCCL carries everything.

use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaSlice, DevicePtr as _, DevicePtrMut as _};
use cudarc::nccl::{result, sys};

use super::super::driver::{driver, probe};
use super::{Nccl, nccl};
use crate::device::gpu_of_local_rank;
use crate::ranks::{Communicator, PendingSum};
use crate::{Error, Result};

/// Where NCCL's own handshake looks for the address at which the first rank listens.
const ADDRESS: &str = "NCCL_COMM_ID";

/// One process of several, each with a GPU.
pub struct NcclRanks {
    rank: usize,
    size: usize,
    room: Mutex<Room>,
}

/// Where numbers are while they travel.
struct Room {
    nccl: Nccl,
    from: CudaSlice<u8>,
    to: CudaSlice<u8>,
}

impl NcclRanks {
    /// Joins `size` processes, this one with the GPU of rank `local_rank` of its machine: rank 0 listens at `address`,
    /// `host:port`.
    ///
    /// To be called at the start of a process, while it has one thread: the address reaches NCCL as a variable of the
    /// environment.
    ///
    /// # Errors
    /// No such GPU, NCCL is missing, ranks that cannot reach each other.
    pub fn join(local_rank: usize, rank: usize, size: usize, address: &str) -> Result<Self> {
        let gpu = gpu_of_local_rank(local_rank, probe)?;
        let context = CudaContext::new(gpu).map_err(driver)?;
        // SAFETY: no other thread reads or writes the environment: the caller's promise.
        unsafe { std::env::set_var(ADDRESS, address) };
        let joined = Nccl::identifier().and_then(|identifier| Nccl::join(context, identifier, rank, size));
        // SAFETY: as above; NCCL's threads read the environment before `join` returns. Later groups of ranks find each
        // other through this one.
        unsafe { std::env::remove_var(ADDRESS) };
        let nccl = joined?;
        let [from, to] = [nccl.stream.alloc_zeros(1), nccl.stream.alloc_zeros(1)];
        let room = Room { from: from.map_err(driver)?, to: to.map_err(driver)?, nccl };
        Ok(Self { rank, size, room: Mutex::new(room) })
    }

    /// What becomes of `own` when all ranks have done `together` with a copy of it on the GPU.
    fn exchange<T: Pod>(&self, own: &[T], results: usize, together: Together) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); results];
        if results == 0 {
            return Ok(values);
        }
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let Room { nccl, from, to } = &mut *room;
        let stream = nccl.stream.clone();
        for (memory, bytes) in [(&mut *from, size_of_val(own)), (&mut *to, size_of_val(&values[..]))] {
            if memory.len() < bytes {
                *memory = stream.alloc_zeros(bytes.next_power_of_two()).map_err(driver)?;
            }
        }
        stream.memcpy_htod(bytemuck::cast_slice::<T, u8>(own), from).map_err(driver)?;
        {
            let ((source, _read), (target, _written)) = (from.device_ptr(&stream), to.device_ptr_mut(&stream));
            together(nccl, source, target)?;
        }
        let results = bytemuck::cast_slice_mut::<T, u8>(&mut values);
        stream.memcpy_dtoh(&to.slice(..results.len()), results).map_err(driver)?;
        stream.synchronize().map_err(|_| Error::RanksGone)?;
        Ok(values)
    }

    fn gather_alike<T: Pod>(&self, own: &[T], kind: sys::ncclDataType_t) -> Result<Vec<T>> {
        self.exchange(own, own.len() * self.size, &|nccl_of, from, to| {
            let (communicator, stream) = (nccl_of.communicator, nccl_of.stream.cu_stream().cast());
            // SAFETY: `to` has room for what every rank hands in, as much as `from` holds.
            unsafe { result::all_gather(from as _, to as _, own.len(), kind, communicator, stream) }.map_err(nccl)?;
            Ok(())
        })
    }

    fn sums<T: Pod>(&self, own: &[T], kind: sys::ncclDataType_t) -> Result<Vec<T>> {
        self.exchange(own, own.len(), &|nccl_of, from, to| {
            let (communicator, stream) = (nccl_of.communicator, nccl_of.stream.cu_stream().cast());
            let sum = sys::ncclRedOp_t::ncclSum;
            // SAFETY: both are as long.
            unsafe { result::all_reduce(from as _, to as _, own.len(), kind, sum, communicator, stream) }
                .map_err(nccl)?;
            Ok(())
        })
    }
}

/// A collective from one array on the GPU to another.
type Together<'a> = &'a dyn Fn(&Nccl, u64, u64) -> Result<()>;

impl Communicator for NcclRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    /// At once: gradients on GPUs do not come this way.
    fn start_sum(&self, values: Vec<f32>) -> PendingSum {
        let (pending, done) = PendingSum::new();
        if let Ok(sums) = self.sums(&values, sys::ncclDataType_t::ncclFloat32) {
            done.send(sums).expect("the receiver is here");
        }
        pending
    }

    fn sum(&self, values: &mut [f64]) -> Result<()> {
        let sums = self.sums(values, sys::ncclDataType_t::ncclFloat64)?;
        values.copy_from_slice(&sums);
        Ok(())
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let lengths = self.gather_alike(&[own.len() as u64], sys::ncclDataType_t::ncclUint64)?;
        let longest = lengths.iter().max().map_or(0, |&longest| longest as usize);
        let mut padded = own.to_vec();
        padded.resize(longest, 0);
        let all = self.gather_alike(&padded, sys::ncclDataType_t::ncclUint8)?;
        Ok(lengths.iter().enumerate().map(|(rank, &len)| all[rank * longest..][..len as usize].to_vec()).collect())
    }

    /// Whoever started the ranks ends the others: a launcher does that when one fails.
    fn abort(&self, code: i32) -> ! {
        std::process::exit(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ranks;

    #[test]
    fn a_gpu_finds_itself_at_an_address_sums_and_gathers() {
        if let Err(error) = probe(0) {
            assert!(error.means_no_gpu(), "{error}");
            return bregman_skip::no_gpu(&error);
        }
        let ranks = Ranks::new(NcclRanks::join(0, 0, 1, "127.0.0.1:29517").unwrap());
        assert!((ranks.rank(), ranks.size()) == (0, 1) && !ranks.is_alone());
        let mut values = [1.5, (1u64 << 53) as f64];
        ranks.sum(&mut values).unwrap();
        assert_eq!(values, [1.5, (1u64 << 53) as f64]);
        assert_eq!(ranks.gather(b"own").unwrap(), [b"own"]);
        assert_eq!(ranks.gather(b"").unwrap(), [b""]);
        assert_eq!(ranks.start_sum(vec![2.0; 7]).wait().unwrap(), [2.0; 7]);
    }
}
