//! Steps on tensors of a GPU by the crate's kernel, on addresses that torch lends. Without the feature `cuda` there is
//! no such place, and torch's own operations compute.

#[cfg(feature = "cuda")]
pub(crate) use with_cuda::CudaPlace;
#[cfg(not(feature = "cuda"))]
pub(crate) use without_cuda::CudaPlace;

#[cfg(feature = "cuda")]
mod with_cuda {
    use bregman::Result;
    use bregman::optimizer::{Arrays, Correction, Counted, DualKey, Duals, Engine, TensorStep};
    use bregman_tensor::cuda::{DeviceArrays, DeviceBuffer, StepDevice};

    use crate::engine::LentState;
    use crate::lent::Lent;

    /// A GPU and an optimizer's arrays on it.
    pub(crate) struct CudaPlace {
        device: StepDevice,
        arrays: DeviceArrays,
        keeps_duals: bool,
    }

    impl CudaPlace {
        pub(crate) fn open(ordinal: usize, states: &[LentState], keeps_duals: bool) -> Result<Self> {
            let device = StepDevice::open(ordinal).map_err(bregman::Error::from)?;
            let tensors = states.iter().map(|state| state.arrays().map(|array| lend(&device, &array))).collect();
            let arrays = device.arrays(tensors);
            Ok(Self { device, arrays, keeps_duals })
        }

        pub(crate) fn keeps_duals(&self) -> bool {
            self.keeps_duals
        }

        #[allow(unsafe_code)]
        pub(crate) fn begin_after(&self, stream: u64) -> Result<()> {
            // SAFETY: the Python side passes torch's current stream of this GPU, which is in the primary context.
            unsafe { self.device.begin_after(stream) }.map_err(bregman::Error::from)
        }

        pub(crate) fn finish(&self) -> Result<()> {
            self.device.finish().map_err(bregman::Error::from)
        }

        pub(crate) fn pass(
            &mut self,
            theta: &[&mut Lent],
            grads: &[&Lent],
            steps: &[TensorStep],
        ) -> Result<Vec<Counted>> {
            let mut theta: Vec<DeviceBuffer> = theta.iter().map(|theta| lend(&self.device, theta)).collect();
            let grads: Vec<DeviceBuffer> = grads.iter().map(|g| lend(&self.device, g)).collect();
            let mut theta: Vec<&mut DeviceBuffer> = theta.iter_mut().collect();
            self.arrays.pass(&mut theta, &grads.iter().collect::<Vec<_>>(), steps)
        }

        pub(crate) fn correct(&mut self, theta: &[&Lent], corrections: &[Option<Correction>]) -> Result<()> {
            let theta: Vec<DeviceBuffer> = theta.iter().map(|theta| lend(&self.device, theta)).collect();
            self.arrays.correct(&theta.iter().collect::<Vec<_>>(), corrections)
        }

        pub(crate) fn duals(&mut self, keys: Vec<DualKey>) -> Result<Box<dyn Duals + '_>> {
            Ok(Box::new(self.arrays.duals(keys)?))
        }
    }

    #[allow(unsafe_code)]
    fn lend(device: &StepDevice, lent: &Lent) -> DeviceBuffer {
        let (address, len) = lent.place();
        // SAFETY: the Python side holds the tensor, on this GPU and aligned, during the call, and waits for its end.
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
        pub(crate) fn open(_: usize, _: &[LentState], _: bool) -> Result<Self> {
            Err(Error::Engine { problem: "this build of bregman has no CUDA kernels".into() })
        }

        pub(crate) fn keeps_duals(&self) -> bool {
            match *self {}
        }

        pub(crate) fn begin_after(&self, _: u64) -> Result<()> {
            match *self {}
        }

        pub(crate) fn finish(&self) -> Result<()> {
            match *self {}
        }

        pub(crate) fn pass(&mut self, _: &[&mut Lent], _: &[&Lent], _: &[TensorStep]) -> Result<Vec<Counted>> {
            match *self {}
        }

        pub(crate) fn correct(&mut self, _: &[&Lent], _: &[Option<Correction>]) -> Result<()> {
            match *self {}
        }

        pub(crate) fn duals(&mut self, _: Vec<DualKey>) -> Result<Box<dyn Duals + '_>> {
            match *self {}
        }
    }
}
