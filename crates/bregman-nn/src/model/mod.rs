//! A network with its parameters and its loss: what a training loop or an embedding extractor holds.

pub(crate) mod context;
pub(crate) mod params;

mod step;
mod sums;

use bregman_network::Architecture;
use bregman_tensor::{Backend, FilterbankTables, Tensor};

use crate::{
    Builder, Context, Distillation, Error, Extent, Head, MarginClassifier, Network, Params, Result, TaughtClassifier,
    networks,
};

/// A batch of features: `batch × frames × features`, row-major. A model that [computes features
/// itself](TrainableModel::set_filterbank) takes `batch × samples` instead.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The values.
    pub values: &'a [f32],
    /// Items.
    pub batch: usize,
    /// Frames, or samples, of each item.
    pub frames: usize,
}

/// Features computed where the network is.
struct DeviceFilterbank<B: Backend> {
    tables: FilterbankTables,
    filterbank: B::Filterbank,
}

/// What a model is built of; without a head it only embeds.
pub type NetworkAndHead<B> = (Box<dyn Network<B>>, Option<Box<dyn Head<B>>>);

/// Network, parameters, loss.
pub struct TrainableModel<B: Backend> {
    context: Context<B>,
    network: Box<dyn Network<B>>,
    head: Option<Box<dyn Head<B>>>,
    front_end: Option<DeviceFilterbank<B>>,
    /// One is in use while the other is filled with the next batch.
    inputs: [Tensor<B>; 2],
    current: usize,
    staged: Option<step::Staged>,
    /// The step on either input, captured, in either extent.
    graphs: [[B::Graph; 2]; 2],
    /// Steps that nobody asked for the outcome of.
    unread: u32,
}

impl<B: Backend> TrainableModel<B> {
    /// A freshly initialised model. `classes` asks for a margin classifier on top of the embedding.
    pub fn new(backend: B, architecture: &Architecture, classes: Option<usize>, seed: u64) -> Result<Self> {
        architecture.check()?;
        if classes == Some(0) {
            return Err(Error::Config { field: "classes", value: 0, expected: "at least 1" });
        }
        Self::with_network(backend, seed, |builder| {
            let network = networks::build(builder, architecture)?;
            let head = match classes {
                Some(classes) => {
                    Some(Box::new(MarginClassifier::new(builder, network.outputs(), classes)?) as Box<dyn Head<B>>)
                }
                None => None,
            };
            Ok((network, head))
        })
    }

    /// A freshly initialised network that [follows another](Distillation) instead of labels.
    ///
    /// # Errors
    /// As [`TrainableModel::new`].
    pub fn student(backend: B, architecture: &Architecture, seed: u64) -> Result<Self> {
        architecture.check()?;
        Self::with_network(backend, seed, |builder| {
            let network = networks::build(builder, architecture)?;
            let head = Distillation::new(network.outputs());
            Ok((network, Some(Box::new(head))))
        })
    }

    /// A freshly initialised network that learns labels and [follows another](crate::TaughtClassifier), `distance`
    /// times as strongly.
    ///
    /// # Errors
    /// As [`TrainableModel::new`].
    pub fn taught(backend: B, architecture: &Architecture, classes: usize, distance: f32, seed: u64) -> Result<Self> {
        architecture.check()?;
        Self::with_network(backend, seed, |builder| {
            let network = networks::build(builder, architecture)?;
            let head = TaughtClassifier::new(builder, network.outputs(), classes, distance)?;
            Ok((network, Some(Box::new(head))))
        })
    }

    /// A freshly initialised model of any network, with a loss where it is to be trained.
    ///
    /// ```
    /// # use bregman_nn::{CrossEntropy, Mlp, TrainableModel};
    /// # use bregman_tensor::Cpu;
    /// let model = TrainableModel::with_network(Cpu::new(), 1, |builder| {
    ///     let network = Mlp::new(builder, &[20, 32, 3])?;
    ///     let head = CrossEntropy::new(builder, 3)?;
    ///     Ok((Box::new(network), Some(Box::new(head))))
    /// })?;
    /// assert_eq!((model.features(), model.outputs()), (20, 3));
    /// # Ok::<(), bregman_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `build` refuses, and too little memory.
    pub fn with_network(
        backend: B,
        seed: u64,
        build: impl FnOnce(&mut Builder<B>) -> Result<NetworkAndHead<B>>,
    ) -> Result<Self> {
        let mut builder = Builder::new(&backend, seed);
        let (network, head) = build(&mut builder)?;
        let params = builder.finish()?;
        let inputs = [Tensor::empty(&backend)?, Tensor::empty(&backend)?];
        Ok(Self {
            context: Context::new(backend, params),
            network,
            head,
            front_end: None,
            inputs,
            current: 0,
            staged: None,
            graphs: Default::default(),
            unread: 0,
        })
    }

    /// The device.
    pub fn backend(&self) -> &B {
        &self.context.backend
    }

    /// All parameters, their gradients and the batch norms' state.
    pub fn params(&self) -> &Params<B> {
        &self.context.params
    }

    /// As [`Self::params`], to change; call [`Self::refresh`] after changing values.
    pub fn params_mut(&mut self) -> &mut Params<B> {
        &mut self.context.params
    }

    /// The device and the parameters together, for an optimizer; call [`Self::refresh`] after changing values.
    pub fn parts_mut(&mut self) -> (&B, &mut Params<B>) {
        (&self.context.backend, &mut self.context.params)
    }

    /// Lets the device compute the features: from now on inputs are samples, levelled as the network's features always
    /// were.
    ///
    /// # Errors
    /// A filterbank with another number of bins than the network has features, too little memory.
    pub fn set_filterbank(&mut self, tables: FilterbankTables) -> Result<()> {
        if tables.bins != self.network.features() {
            return Err(Error::Config {
                field: "filterbank bins",
                value: tables.bins,
                expected: "as many as the network has features",
            });
        }
        let filterbank = self.context.backend.filterbank(tables.clone())?;
        self.front_end = Some(DeviceFilterbank { tables, filterbank });
        Ok(())
    }

    /// Brings the device's copies of the weights up to date: to be called after every optimizer step.
    pub fn refresh(&mut self) -> Result<()> {
        self.refresh_after(Extent::All)
    }

    /// As [`Self::refresh`] after a step of this extent: after one on the support, zeros are where they were.
    pub fn refresh_after(&mut self, extent: Extent) -> Result<()> {
        self.context.params.refresh_after(extent, &self.context.backend)
    }

    /// Which weights get a gradient in the backward passes from now on.
    pub fn set_extent(&mut self, extent: Extent) {
        self.context.extent = extent;
    }

    /// The network.
    pub fn network(&self) -> &dyn Network<B> {
        &*self.network
    }

    /// Values of an embedding.
    pub fn outputs(&self) -> usize {
        self.network.outputs()
    }

    /// Feature values per frame.
    pub fn features(&self) -> usize {
        self.network.features()
    }

    /// Look for NaN and infinity in the input and after every layer: slow, for debugging.
    pub fn check_finite(&mut self, on: bool) {
        self.context.check = on;
    }

    /// The network's outputs (`batch × outputs`) in evaluation mode: embeddings, or a perceptron's scores.
    pub fn embed(&mut self, input: Input) -> Result<Vec<f32>> {
        self.forward(input, false)
    }

    /// The network's outputs in training mode: batch norms use, and learn from, the statistics of this batch.
    pub fn forward_training(&mut self, input: Input) -> Result<Vec<f32>> {
        self.forward(input, true)
    }

    /// Gradients of all network parameters from that of the outputs (`batch × outputs`) of the last training pass.
    pub fn backward(&mut self, doutput: &[f32]) -> Result<()> {
        let mut d = self.context.take(self.network.output().shape)?;
        self.context.backend.write(doutput, d.view_mut())?;
        self.network.backward(&mut self.context, &self.inputs[self.current], d.view())?;
        self.context.give(d);
        Ok(())
    }

    /// The next pass is over this rank's part of a batch, `share` of it: it leaves the gradients of the whole batch. To
    /// be called before every pass, where there are several ranks.
    pub fn set_share(&mut self, share: f32) {
        self.context.sums = Some(sums::GradientSums::new(share, self.context.params.all().len()));
    }

    /// Scales all gradients to a joint ℓ2 norm of at most `limit`; returns the norm before.
    pub fn clip_gradients(&mut self, limit: f32) -> Result<f32> {
        let norm = self.clip_later(limit)?;
        Ok(self.context.backend.arrived(norm)?[0])
    }

    /// As [`Self::clip_gradients`], without waiting for the norm: the one value of
    /// [`arrived`](bregman_tensor::DeviceMemory::arrived).
    pub fn clip_later(&mut self, limit: f32) -> Result<B::Late> {
        let Context { backend, params, .. } = &mut self.context;
        let mut gradients: Vec<&mut B::Buffer> =
            params.all_mut().iter_mut().map(|parameter| &mut parameter.grad).collect();
        Ok(backend.clip_later(&mut gradients, limit)?)
    }

    fn forward(&mut self, input: Input, training: bool) -> Result<Vec<f32>> {
        self.run(input, training)?;
        let mut values = vec![0.0; input.batch * self.network.outputs()];
        self.context.backend.read(self.network.output(), &mut values)?;
        Ok(values)
    }

    fn run(&mut self, input: Input, training: bool) -> Result<()> {
        let frames = self.check_input(&input)?;
        let context = &mut self.context;
        let tensor = &mut self.inputs[self.current];
        tensor.resize(&context.backend, self.network.input_shape(input.batch, frames))?;
        match &self.front_end {
            Some(front_end) => context.backend.write_samples(&front_end.filterbank, input.values, tensor.view_mut())?,
            None => context.backend.write_frames(input.values, tensor.view_mut())?,
        }
        context.checked(tensor.view(), "the feature extraction")?;
        context.begin(training);
        self.network.forward(context, tensor)
    }

    /// The frames of each item.
    fn check_input(&self, input: &Input) -> Result<usize> {
        let fail = |problem: String| Err(Error::Input { tensor: "features", problem });
        let (taken, Input { values, batch, frames: length }) = (self.network.frames(), input);
        if *batch == 0 {
            return fail("the batch is empty".to_owned());
        }
        let (frames, features, what) = match &self.front_end {
            Some(front_end) => (front_end.tables.frames(*length), 1, "samples"),
            None => (*length, self.network.features(), "frames"),
        };
        if !taken.contains(&frames) {
            let (least, most) = (taken.start(), taken.end());
            let takes = if *most == usize::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
            return fail(format!("{frames} frames, this network takes {takes}"));
        }
        let expected = batch * length * features;
        if values.len() != expected {
            return fail(format!(
                "{} values, expected {batch} items × {length} {what} × {features} features = {expected}",
                values.len()
            ));
        }
        Ok(frames)
    }
}
