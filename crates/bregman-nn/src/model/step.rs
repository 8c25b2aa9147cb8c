//! One step: the batch, forward, loss, backward.

use bregman_tensor::{Backend, Margin, Tensor};

use super::{Head, Input, Model};
use crate::{Error, Outcome, Result};

/// The batch that waits in the input not in use.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    batch: usize,
    frames: usize,
}

impl<B: Backend> Model<B> {
    /// Forward, loss and backward for one batch: afterwards every parameter holds its gradient.
    ///
    /// The same as [`Model::stage`], [`Model::launch`] and [`Model::outcome`]; a loop that stages the next batch before
    /// it asks for the outcome keeps a GPU busy:
    /// ```
    /// # use bregman_nn::{Architecture, Input, Model};
    /// # use bregman_tensor::{Cpu, Margin};
    /// # let mut model = Model::new(Cpu::new(), &Architecture::Mlp(vec![2, 3]), None, 0)?;
    /// # let margin = Margin { scale: 1.0, margin: 0.0, easy: false };
    /// # let batches = [[0.5, 1.0], [2.0, 0.1]];
    /// let mut batches = batches.iter().map(|values| Input { values, batch: 1, frames: 1 });
    /// model.stage(batches.next().unwrap())?;
    /// model.launch(&[0], margin)?;
    /// model.stage(batches.next().unwrap())?; // while the first is worked on
    /// println!("{}", model.outcome()?.loss);
    /// # Ok::<(), bregman_nn::Error>(())
    /// ```
    pub fn gradients(&mut self, input: Input, labels: &[usize], margin: Margin) -> Result<Outcome> {
        self.stage(input)?;
        self.launch(labels, margin)?;
        self.outcome()
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
        self.check_labels(batch, labels)?;
        self.current = 1 - self.current;
        self.unread += 1;
        self.set_labels(labels)?;
        self.context.begin(true);
        if self.context.check {
            return self.pass(margin); // reads results back on the way: cannot be captured
        }
        let Margin { scale, margin: angle, easy } = margin;
        let key =
            [batch as u64, frames as u64, u64::from(scale.to_bits()), u64::from(angle.to_bits()), u64::from(easy)];
        loop {
            if self.context.backend.replay(&mut self.graphs[self.current], &key)? {
                return Ok(());
            }
            let result = self.pass(margin);
            if self.context.backend.end_run(&mut self.graphs[self.current], result.is_ok())? {
                return result;
            }
        }
    }

    fn pass(&mut self, margin: Margin) -> Result<()> {
        let input = &self.inputs[self.current];
        self.context.checked(input.view(), "the feature extraction")?;
        self.network.forward(&mut self.context, input)?;
        let d = self.loss(margin)?;
        self.network.backward(&mut self.context, &self.inputs[self.current], d.view())?;
        self.context.give(d);
        Ok(())
    }

    /// Loss and hits of one batch in evaluation mode, as [`Model::gradients`] counts them. The gradients are void
    /// afterwards.
    pub fn evaluate(&mut self, input: Input, labels: &[usize], margin: Margin) -> Result<Outcome> {
        self.check_labels(input.batch, labels)?;
        self.run(input, false)?;
        self.set_labels(labels)?;
        let d = self.loss(margin)?;
        self.context.give(d);
        self.outcome()
    }

    /// What the loss of the last pass came to. Waits for the device.
    pub fn outcome(&mut self) -> Result<Outcome> {
        self.unread = 0;
        match &self.head {
            Head::Margin(head) => head.outcome(&self.context.backend),
            Head::CrossEntropy(head) => head.outcome(&self.context.backend),
            Head::None => Err(Self::no_classes()),
        }
    }

    fn no_classes() -> Error {
        Error::Config { field: "classes", value: 0, expected: "a model built with classes, to train it" }
    }

    fn set_labels(&mut self, labels: &[usize]) -> Result<()> {
        match &mut self.head {
            Head::Margin(head) => head.set_labels(&self.context.backend, labels),
            Head::CrossEntropy(head) => head.set_labels(&self.context.backend, labels),
            Head::None => Err(Self::no_classes()),
        }
    }

    /// The gradient of the last pass' loss to the network's outputs.
    fn loss(&mut self, margin: Margin) -> Result<Tensor<B>> {
        let context = &mut self.context;
        let mut d = context.take(self.network.output().shape)?;
        match &mut self.head {
            Head::Margin(head) => head.backward(context, self.network.output(), margin, &mut d)?,
            Head::CrossEntropy(head) => head.backward(context, self.network.output(), &mut d)?,
            Head::None => return Err(Self::no_classes()),
        }
        Ok(d)
    }

    fn check_labels(&self, batch: usize, labels: &[usize]) -> Result<()> {
        let fail = |problem: String| Err(Error::Input { tensor: "labels", problem });
        if labels.len() != batch {
            return fail(format!("{} labels for {batch} items", labels.len()));
        }
        match labels.iter().position(|&label| label >= self.classes) {
            Some(item) => fail(format!("item {item} has class {}, the model has {}", labels[item], self.classes)),
            None => Ok(()),
        }
    }
}
