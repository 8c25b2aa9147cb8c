//! Steps on tensors of a GPU by the crate's kernel, on addresses that torch lends. Without the feature `cuda` there is
//! no such place, and torch's own operations compute.

#[cfg(feature = "cuda")]
pub(crate) use with_cuda::CudaPlace;
#[cfg(not(feature = "cuda"))]
pub(crate) use without_cuda::CudaPlace;

#[cfg(feature = "cuda")]
mod with_cuda {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bregman::Result;
    use bregman::optimizer::{Arrays, Correction, Counted, Deferred, DualKey, Duals, Engine, TensorStep};
    use bregman_tensor::cuda::{DeviceArrays, DeviceBuffer, StepDevice};

    use crate::engine::LentState;
    use crate::lent::Lent;

    /// A GPU and an optimizer's arrays on it.
    pub(crate) struct CudaPlace {
        device: StepDevice,
        arrays: DeviceArrays,
        /// Whether the kernel of the next pass is in a graph that is replayed.
        replayed: AtomicBool,
    }

    impl CudaPlace {
        pub(crate) fn open(ordinal: usize, states: &[LentState]) -> Result<Self> {
            let device = StepDevice::open(ordinal).map_err(bregman::Error::from)?;
            let tensors = states.iter().map(|state| state.arrays().map(|array| lend(&device, &array))).collect();
            let arrays = device.arrays(tensors);
            Ok(Self { device, arrays, replayed: AtomicBool::new(false) })
        }

        #[allow(unsafe_code)]
        pub(crate) fn follow(&self, stream: u64) {
            // SAFETY: the Python side passes torch's current stream of this GPU, which is in the primary context, at
            // the beginning of every call that computes. Torch's streams live as long as the process.
            unsafe { self.device.follow(stream) };
        }

        pub(crate) fn replays(&self, replayed: bool) {
            self.replayed.store(replayed, Ordering::Relaxed);
        }

        /// The kernel alone, into a stream that is being captured.
        pub(crate) fn capture(&self) -> Result<()> {
            self.arrays.run().map_err(bregman::Error::from)
        }

        /// After the replay of a graph with the kernel in it: begins to fetch what it counts.
        pub(crate) fn count(&self) -> Result<()> {
            self.arrays.count().map_err(bregman::Error::from)
        }

        pub(crate) fn launch(&mut self, theta: &[&mut Lent], grads: &[&Lent], steps: &[TensorStep]) -> Result<()> {
            let mut theta: Vec<DeviceBuffer> = theta.iter().map(|theta| lend(&self.device, theta)).collect();
            let grads: Vec<DeviceBuffer> = grads.iter().map(|g| lend(&self.device, g)).collect();
            let mut theta: Vec<&mut DeviceBuffer> = theta.iter_mut().collect();
            let grads = grads.iter().collect::<Vec<_>>();
            match self.replayed.load(Ordering::Relaxed) {
                true => self.arrays.prepare(&theta, &grads, steps).map_err(bregman::Error::from),
                false => self.arrays.launch(&mut theta, &grads, steps),
            }
        }

        pub(crate) fn settle(&mut self) -> Result<Vec<Counted>> {
            self.arrays.settle()
        }

        pub(crate) fn correct(&mut self, theta: &[&Lent], corrections: &[Option<Correction>]) -> Result<()> {
            let theta: Vec<DeviceBuffer> = theta.iter().map(|theta| lend(&self.device, theta)).collect();
            self.arrays.correct(&theta.iter().collect::<Vec<_>>(), corrections)
        }

        pub(crate) fn pull(&mut self, theta: &Lent, gradient: &Lent) -> Result<f64> {
            self.arrays.pull(&lend(&self.device, theta), &lend(&self.device, gradient))
        }

        pub(crate) fn duals(&mut self, keys: Vec<DualKey>) -> Result<Box<dyn Duals + '_>> {
            Ok(Box::new(self.arrays.duals(keys)?))
        }
    }

    #[allow(unsafe_code)]
    fn lend(device: &StepDevice, lent: &Lent) -> DeviceBuffer {
        let (address, len) = lent.place();
        // SAFETY: the Python side holds the tensor, on this GPU and aligned, during the call, and torch gives memory to
        // others in the order of its stream, which is ours.
        unsafe { device.lend(address as u64, len) }
    }
}

#[cfg(not(feature = "cuda"))]
mod without_cuda {
    use bregman::optimizer::{Correction, Counted, DualKey, Duals, TensorStep};
    use bregman::{Error, Result};

    use crate::engine::LentState;
    use crate::lent::Lent;

    /// There is none.
    pub(crate) enum CudaPlace {}

    impl CudaPlace {
        pub(crate) fn open(_: usize, _: &[LentState]) -> Result<Self> {
            Err(Error::Engine { problem: "this build of bregman has no CUDA kernels".into() })
        }

        pub(crate) fn follow(&self, _: u64) {
            match *self {}
        }

        pub(crate) fn replays(&self, _: bool) {
            match *self {}
        }

        pub(crate) fn capture(&self) -> Result<()> {
            match *self {}
        }

        pub(crate) fn count(&self) -> Result<()> {
            match *self {}
        }

        pub(crate) fn launch(&mut self, _: &[&mut Lent], _: &[&Lent], _: &[TensorStep]) -> Result<()> {
            match *self {}
        }

        pub(crate) fn settle(&mut self) -> Result<Vec<Counted>> {
            match *self {}
        }

        pub(crate) fn correct(&mut self, _: &[&Lent], _: &[Option<Correction>]) -> Result<()> {
            match *self {}
        }

        pub(crate) fn pull(&mut self, _: &Lent, _: &Lent) -> Result<f64> {
            match *self {}
        }

        pub(crate) fn duals(&mut self, _: Vec<DualKey>) -> Result<Box<dyn Duals + '_>> {
            match *self {}
        }
    }
}
