//! What every layer gets passed: the device, the parameters, scratch tensors and the mode.

use bregman_tensor::{Backend, Shape, Tensor, View};

use super::sums::GradientSums;
use crate::{Error, Params, Result};

/// Which weights get a gradient in a backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All.
    #[default]
    All,
    /// Of tensors whose zeros stay for now ([`Parameter::sparse`](crate::Parameter::sparse)) those that are not zero,
    /// or those of the mask where there is one; the gradient of the others is 0.
    Support,
}

/// Passed to every `forward` and `backward`.
pub struct Context<B: Backend> {
    /// The device.
    pub backend: B,
    /// The weights.
    pub params: Params<B>,
    /// Batch norms use and update the statistics of the batch, rather than the running ones; unless they are
    /// [fixed](Params::fix_norms).
    pub training: bool,
    /// Which weights get a gradient.
    pub extent: Extent,
    /// Look for NaN and infinity after every layer: slow, for debugging.
    pub check: bool,
    /// Where several ranks train: the sums over their gradients.
    pub(super) sums: Option<GradientSums>,
    spare: Vec<Tensor<B>>,
}

impl<B: Backend> Context<B> {
    /// In evaluation mode, without checks.
    pub fn new(backend: B, params: Params<B>) -> Self {
        Self { backend, params, training: false, extent: Extent::All, check: false, sums: None, spare: Vec::new() }
    }

    /// Begins a pass over the network.
    pub fn begin(&mut self, training: bool) {
        self.training = training;
        if training && !self.params.norms_are_fixed() {
            self.params.norms_mut().iter_mut().for_each(|norm| norm.batches += 1);
        }
    }

    /// A scratch tensor with unspecified values: the smallest spare one that is large enough, else the largest, grown.
    pub fn take(&mut self, shape: Shape) -> Result<Tensor<B>> {
        let bytes = Tensor::bytes(&self.backend, shape);
        let fits = |tensor: &Tensor<B>| {
            if tensor.capacity() >= bytes { (0, tensor.capacity()) } else { (1, usize::MAX - tensor.capacity()) }
        };
        let best = (0..self.spare.len()).min_by_key(|&i| fits(&self.spare[i]));
        let mut tensor = match best {
            Some(i) => self.spare.swap_remove(i),
            None => Tensor::empty(&self.backend)?,
        };
        tensor.resize(&self.backend, shape)?;
        Ok(tensor)
    }

    /// Gives a scratch tensor back.
    pub fn give(&mut self, tensor: Tensor<B>) {
        self.spare.push(tensor);
    }

    /// With checking on: an error naming the layer whose output is not finite.
    pub fn checked(&self, view: View<B>, layer: &str) -> Result<()> {
        if self.check && !self.backend.all_finite(view)? {
            return Err(Error::NotFinite { tensor: format!("output of {layer}") });
        }
        Ok(())
    }
}
