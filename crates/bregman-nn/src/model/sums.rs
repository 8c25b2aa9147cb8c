//! Gradients summed over ranks, in buckets that travel while the backward pass goes on.
//!
//! A backward pass reaches the last layers first. As soon as the weights of some layers have their gradients, these are
//! sent off together, and the pass goes on to the layers before; what is small (norms, biases) goes last. In a pass on
//! the support little travels, all of it at the end.

use bregman_tensor::{Backend, PendingSum, SupportPart};

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
    fn send<B: Backend>(&mut self, backend: &B, parameters: &mut [Parameter<B>]) -> Result<()> {
        let bucket = std::mem::take(&mut self.waiting);
        if !bucket.is_empty() {
            let sum = backend.start_sum(self.share, &mut gradients(parameters, &bucket))?;
            self.travelling.push((bucket, sum));
        }
        Ok(())
    }

    /// Sends off all that is left, and waits until every parameter holds the gradient of the whole batch.
    fn finish<B: Backend>(mut self, backend: &B, parameters: &mut [Parameter<B>]) -> Result<()> {
        let sent: Vec<usize> = self.travelling.iter().flat_map(|(bucket, _)| bucket.iter().copied()).collect();
        self.waiting = (0..parameters.len()).rev().filter(|tensor| !sent.contains(tensor)).collect();
        self.send(backend, parameters)?;
        for (bucket, sum) in self.travelling {
            backend.finish_sum(sum, &mut gradients(parameters, &bucket))?;
        }
        Ok(())
    }
}

/// The gradients of these parameters, in the order in which the parameters are listed in the network.
fn gradients<'a, B: Backend>(parameters: &'a mut [Parameter<B>], bucket: &[usize]) -> Vec<&'a mut B::Buffer> {
    let listed = parameters.iter_mut().enumerate().filter(|(tensor, _)| bucket.contains(tensor));
    listed.map(|(_, parameter)| &mut parameter.grad).collect()
}

/// All parameters, for sums on the support.
pub(super) fn support_parts<'a, B: Backend>(parameters: &'a mut [Parameter<B>]) -> Vec<SupportPart<'a, B>> {
    parameters.iter_mut().map(Parameter::support_part).collect()
}

impl<B: Backend> Context<B> {
    /// Where gradients on the support are summed next: looks where that is, unless it is known. To be called before the
    /// pass, which may be one that was captured.
    pub(super) fn find_support(&mut self) -> Result<()> {
        if self.sums.is_some() && self.extent == Extent::Support {
            return self.params.find_support(&self.backend);
        }
        Ok(())
    }

    /// Waits until every parameter holds the gradient of the whole batch, where other ranks have parts of it.
    pub(super) fn finish_sums(&mut self) -> Result<()> {
        let Self { backend, params, sums, extent, .. } = self;
        match (sums.take(), *extent) {
            (None, _) => Ok(()),
            (Some(sums), Extent::All) => sums.finish(backend, params.all_mut()),
            (Some(sums), Extent::Support) => params.sum_support(backend, sums.share),
        }
    }

    /// A layer has written the gradient of a column block of its weight; that weight's gradients may travel once all of
    /// them are written.
    pub(crate) fn wrote(&mut self, weight: ParamId) -> Result<()> {
        let (Some(sums), true) = (&mut self.sums, B::SUMS_OVERLAP && self.extent == Extent::All) else {
            return Ok(());
        };
        let (tensor, parameters) = (weight.index(), self.params.all_mut());
        sums.written[tensor] += 1;
        if sums.written[tensor] == parameters[tensor].block_count() {
            sums.waiting.push(tensor);
        }
        if sums.waiting.iter().map(|&tensor| parameters[tensor].param.len()).sum::<usize>() >= BUCKET {
            sums.send(&self.backend, parameters)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::SyncSender;
    use std::sync::{Arc, Mutex};

    use bregman_tensor::{Communicator, Cpu, Ranks};

    use super::*;
    use crate::{Input, Mlp, TrainableModel};

    /// Messages, and where their sums are waited for.
    type Mail = Vec<(Vec<f32>, SyncSender<Vec<f32>>)>;

    /// One of two ranks that have the same gradients. Sums arrive once all of them are asked for.
    struct Late {
        messages: usize,
        held: Arc<Mutex<Mail>>,
    }

    impl Communicator for Late {
        fn rank(&self) -> usize {
            0
        }

        fn size(&self) -> usize {
            2
        }

        fn start_sum(&self, values: Vec<f32>) -> PendingSum {
            let (pending, done) = PendingSum::new();
            let mut held = self.held.lock().unwrap();
            held.push((values, done));
            if held.len() == self.messages {
                for (values, done) in held.drain(..) {
                    done.send(values.iter().map(|value| 2.0 * value).collect()).unwrap();
                }
            }
            pending
        }

        fn sum(&self, _: &mut [f64]) -> bregman_tensor::Result<()> {
            unreachable!("gradients are f32")
        }

        fn gather(&self, _: &[u8]) -> bregman_tensor::Result<Vec<Vec<u8>>> {
            unreachable!("gradients are summed")
        }

        fn abort(&self, code: i32) -> ! {
            panic!("{code}")
        }
    }

    /// The gradients of a network whose two last layers fill a bucket each, after a pass at whose end so many messages
    /// are `travelling`.
    fn backward(ranks: Option<Ranks>, held: &Mutex<Mail>, travelling: usize) -> Vec<Vec<f32>> {
        let backend = Cpu::new().with_ranks(ranks.clone().unwrap_or_default());
        let sizes = [8, 1024, 1024, BUCKET / 1024];
        let mut model =
            TrainableModel::with_network(backend, 1, |builder| Ok((Box::new(Mlp::new(builder, &sizes)?), None)))
                .unwrap();
        if ranks.is_some() {
            model.set_share(0.5);
        }
        model.forward_training(Input { values: &[1.0; 8], batch: 1, frames: 1 }).unwrap();
        model.backward(&[1.0; BUCKET / 1024]).unwrap();
        assert_eq!(held.lock().unwrap().len(), travelling);
        model.context.finish_sums().unwrap();
        model.params().all().iter().map(|parameter| parameter.grad.to_vec()).collect()
    }

    #[test]
    fn the_last_layers_gradients_travel_while_those_of_the_first_are_computed() {
        let held = Arc::default();
        let alone = backward(None, &held, 0);
        let ranks = Ranks::new(Late { messages: 3, held: held.clone() });
        // what is left for the third message: the first layer's weight, and biases
        let together = backward(Some(ranks), &held, 2);
        assert!(together == alone, "the gradients of the whole batch");
        assert!(alone.iter().flatten().any(|gradient| *gradient != 0.0));
    }
}
