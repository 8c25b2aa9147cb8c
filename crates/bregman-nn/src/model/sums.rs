//! Gradients summed over ranks, in buckets that travel while the backward pass goes on.
//!
//! A backward pass reaches the last layers first. As soon as the weights of some layers have their gradients, these are
//! sent off together, and the pass goes on to the layers before; what is small (norms, biases) goes last.

use bregman_tensor::{Backend, GradientPart, PendingSum};

use super::params::Parameter;
use crate::{Context, Extent, ParamId, Result};

/// Gradients that travel together: 4 MB, where a message costs far more than its start.
const BUCKET: usize = 1 << 20;

/// The sums of one backward pass.
pub(crate) struct GradientSums {
    /// This rank's part of the batch.
    share: f32,
    /// Column blocks of each parameter whose gradients this pass has written.
    written: Vec<usize>,
    /// Parameters with all their gradients that wait for their bucket to be full.
    waiting: Vec<usize>,
    /// Buckets on their way.
    travelling: Vec<(Vec<usize>, Option<PendingSum>)>,
}

impl GradientSums {
    pub(super) fn new(share: f32, parameters: usize) -> Self {
        Self { share, written: vec![0; parameters], waiting: Vec::new(), travelling: Vec::new() }
    }

    /// This rank's part of the batch.
    pub(super) fn share(&self) -> f32 {
        self.share
    }

    /// Sends off what waits.
    fn send<B: Backend>(&mut self, backend: &B, parameters: &mut [Parameter<B>], extent: Extent) -> Result<()> {
        let bucket = std::mem::take(&mut self.waiting);
        if !bucket.is_empty() {
            let sum = backend.start_sum(self.share, &mut parts(parameters, &bucket, extent))?;
            self.travelling.push((bucket, sum));
        }
        Ok(())
    }

    /// Sends off all that is left, and waits until every parameter holds the gradient of the whole batch.
    fn finish<B: Backend>(mut self, backend: &B, parameters: &mut [Parameter<B>], extent: Extent) -> Result<()> {
        let sent: Vec<usize> = self.travelling.iter().flat_map(|(bucket, _)| bucket.iter().copied()).collect();
        self.waiting = (0..parameters.len()).rev().filter(|tensor| !sent.contains(tensor)).collect();
        self.send(backend, parameters, extent)?;
        for (bucket, sum) in self.travelling {
            backend.finish_sum(sum, &mut parts(parameters, &bucket, extent))?;
        }
        Ok(())
    }
}

/// The gradients of these parameters, in the order in which the parameters are listed in the network.
fn parts<'a, B: Backend>(
    parameters: &'a mut [Parameter<B>],
    bucket: &[usize],
    extent: Extent,
) -> Vec<GradientPart<'a, B>> {
    let listed = parameters.iter_mut().enumerate().filter(|(tensor, _)| bucket.contains(tensor));
    let part = |(_, parameter): (usize, &'a mut Parameter<B>)| {
        let Parameter { value, grad, sparse, .. } = parameter;
        let support = (*sparse && extent == Extent::Support).then_some(&*value);
        GradientPart { gradient: grad, support }
    };
    listed.map(part).collect()
}

impl<B: Backend> Context<B> {
    /// Waits until every parameter holds the gradient of the whole batch, where other ranks have parts of it.
    pub(super) fn finish_sums(&mut self) -> Result<()> {
        let Self { backend, params, sums, extent, .. } = self;
        sums.take().map_or(Ok(()), |sums| sums.finish(backend, params.all_mut(), *extent))
    }

    /// A layer has written the gradient of a column block of its weight; that weight's gradients may travel once all of
    /// them are written.
    pub(crate) fn wrote(&mut self, weight: ParamId) -> Result<()> {
        let (Some(sums), true) = (&mut self.sums, B::SUMS_OVERLAP) else { return Ok(()) };
        let (tensor, parameters) = (weight.index(), self.params.all_mut());
        sums.written[tensor] += 1;
        if sums.written[tensor] == parameters[tensor].block_count() {
            sums.waiting.push(tensor);
        }
        if sums.waiting.iter().map(|&tensor| parameters[tensor].param.len()).sum::<usize>() >= BUCKET {
            sums.send(&self.backend, parameters, self.extent)?;
        }
        Ok(())
    }
}
