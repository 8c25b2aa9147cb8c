//! One step: the batch, forward, loss, backward.

use bregman_tensor::{Backend, Margin, Tensor};

use super::{Input, TrainableModel};
use crate::{BatchOutcome, Error, Extent, Head, LateOutcome, Result};

/// The batch that waits in the input not in use.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    batch: usize,
    frames: usize,
}

impl<B: Backend> TrainableModel<B> {
    /// Forward, loss and backward for one batch: afterwards every parameter holds its gradient.
    ///
    /// The same as [`Self::stage`], [`Self::launch`] and [`Self::outcome`]; a loop that stages the next batch before
    /// it asks for the outcome keeps a GPU busy:
    /// ```
    /// # use bregman_nn::{CrossEntropy, Input, Mlp, TrainableModel};
    /// # use bregman_tensor::{Cpu, Margin};
    /// # let mut model = TrainableModel::with_network(Cpu::new(), 0, |builder| {
    /// #     let network = Mlp::new(builder, &[2, 3])?;
    /// #     Ok((Box::new(network), Some(Box::new(CrossEntropy::new(builder, 3)?))))
    /// # })?;
    /// # let margin = Margin { scale: 1.0, margin: 0.0, easy: false };
    /// # let batches = [[0.5, 1.0], [2.0, 0.1]];
    /// let mut batches = batches.iter().map(|values| Input { values, batch: 1, frames: 1 });
    /// model.stage(batches.next().unwrap())?;
    /// model.launch(&[0], margin)?;
    /// model.stage(batches.next().unwrap())?; // while the first is worked on
    /// println!("{}", model.outcome()?.loss);
    /// # Ok::<(), bregman_nn::Error>(())
    /// ```
    pub fn gradients(&mut self, input: Input, labels: &[usize], margin: Margin) -> Result<BatchOutcome> {
        self.stage(input)?;
        self.launch(labels, margin)?;
        self.outcome()
    }

    /// Tells a loss that follows another network what that makes of the next batch, `[batch, outputs]`.
    ///
    /// # Errors
    /// A loss of labels, or none.
    pub fn set_targets(&mut self, targets: &[f32]) -> Result<()> {
        self.head.as_mut().ok_or_else(no_head)?.set_targets(targets)
    }

    /// Hands the next batch to the device, beside what it is working on.
    pub fn stage(&mut self, input: Input) -> Result<()> {
        let frames = self.check_input(&input)?;
        if self.unread > 1 {
            self.outcome()?; // the step before the last may still read what is overwritten now
        }
        let (backend, next) = (&self.context.backend, &mut self.inputs[1 - self.current]);
        next.resize(backend, self.network.input_shape(input.batch, frames))?;
        match &self.front_end {
            Some(front_end) => backend.write_samples_ahead(&front_end.filterbank, input.values, next.view_mut())?,
            None => backend.write_frames_ahead(input.values, next.view_mut())?,
        }
        self.staged = Some(Staged { batch: input.batch, frames });
        Ok(())
    }

    /// Starts forward, loss and backward for the batch staged last.
    pub fn launch(&mut self, labels: &[usize], margin: Margin) -> Result<()> {
        let nothing = || Error::Input { tensor: "features", problem: "no batch was staged".to_owned() };
        let Staged { batch, frames } = self.staged.take().ok_or_else(nothing)?;
        self.set_labels(batch, labels)?;
        self.current = 1 - self.current;
        self.unread += 1;
        self.context.begin(true);
        self.context.find_support()?;
        if self.context.check || self.head.as_ref().is_some_and(|head| head.waits_for_device()) {
            return self.pass(margin); // reads results back on the way: cannot be captured
        }
        let Margin { scale, margin: angle, easy } = margin;
        let share = self.context.sums.as_ref().map(|sums| sums.share());
        let numbers = [scale, angle, share.unwrap_or(0.0)].map(|number| u64::from(number.to_bits()));
        let key = [&[batch as u64, frames as u64, u64::from(easy)], &numbers[..]].concat();
        let [input, extent] = [self.current, usize::from(self.context.extent == Extent::Support)];
        loop {
            if self.context.backend.replay(&mut self.graphs[input][extent], &key)? {
                self.context.sums = None; // they are in the graph
                return Ok(());
            }
            if let Some(share) = share {
                self.set_share(share); // a capture that failed has used its sums up
            }
            let result = self.pass(margin);
            if self.context.backend.end_run(&mut self.graphs[input][extent], result.is_ok())? {
                return result;
            }
        }
    }

    fn pass(&mut self, margin: Margin) -> Result<()> {
        if self.context.sums.is_some() {
            return self.pass_here(margin); // waits for other ranks, which may need the threads of this one
        }
        B::run_kernels(|| self.pass_here(margin))
    }

    fn pass_here(&mut self, margin: Margin) -> Result<()> {
        let input = &self.inputs[self.current];
        self.context.checked(input.view(), "the feature extraction")?;
        self.network.forward(&mut self.context, input)?;
        let d = self.loss(margin)?;
        self.network.backward(&mut self.context, &self.inputs[self.current], d.view())?;
        self.context.give(d);
        self.context.finish_sums()
    }

    /// Loss and hits of one batch in evaluation mode, as [`Self::gradients`] counts them. The gradients are void
    /// afterwards.
    pub fn evaluate(&mut self, input: Input, labels: &[usize], margin: Margin) -> Result<BatchOutcome> {
        self.set_labels(input.batch, labels)?;
        self.run(input, false)?;
        let d = self.loss(margin)?;
        self.context.give(d);
        self.outcome()
    }

    /// What the loss of the last pass came to. Waits for the device.
    pub fn outcome(&mut self) -> Result<BatchOutcome> {
        self.unread = 0;
        self.head.as_ref().ok_or_else(no_head)?.outcome(&self.context.backend)
    }

    /// Begins to fetch what the loss of the last pass came to, for [`Self::arrived`]: a loop that asks one pass late
    /// never waits for the device while that has nothing to do.
    pub fn outcome_later(&self) -> Result<LateOutcome<B>> {
        self.head.as_ref().ok_or_else(no_head)?.outcome_later(&self.context.backend)
    }

    /// What the loss of an earlier pass came to, one after the other. Waits for that pass alone.
    pub fn arrived(&mut self, late: LateOutcome<B>) -> Result<BatchOutcome> {
        let outcome = late.arrived(&self.context.backend)?;
        self.unread = self.unread.saturating_sub(1);
        Ok(outcome)
    }

    /// The gradient of the last pass' loss to the network's outputs.
    fn loss(&mut self, margin: Margin) -> Result<Tensor<B>> {
        let (context, head) = (&mut self.context, self.head.as_mut().ok_or_else(no_head)?);
        let mut d = context.take(self.network.output().shape)?;
        head.backward(context, self.network.output(), margin, &mut d)?;
        Ok(d)
    }

    /// Hands the labels of a batch to the head.
    fn set_labels(&mut self, batch: usize, labels: &[usize]) -> Result<()> {
        let head = self.head.as_mut().ok_or_else(no_head)?;
        check_labels(&**head, batch, labels)?;
        head.set_labels(&self.context.backend, labels)
    }
}

fn no_head() -> Error {
    Error::Config { field: "classes", value: 0, expected: "a model built with classes, to train it" }
}

fn check_labels<B: Backend>(head: &dyn Head<B>, batch: usize, labels: &[usize]) -> Result<()> {
    let fail = |problem: String| Err(Error::Input { tensor: "labels", problem });
    if labels.len() != batch {
        return fail(format!("{} labels for {batch} items", labels.len()));
    }
    match labels.iter().position(|&label| label >= head.classes()) {
        Some(item) => fail(format!("item {item} has class {}, the model has {}", labels[item], head.classes())),
        None => Ok(()),
    }
}
