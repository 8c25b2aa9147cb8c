//! A network with its parameters and its loss: what a training loop or an embedding extractor holds.

use bregman_tensor::{Backend, FilterbankTables, Margin, Tensor};

use crate::{
    Builder, Context, CrossEntropy, Ecapa, EcapaConfig, Error, MarginClassifier, Mlp, Network, Outcome, Params, ResNet, ResNetConfig,
    Result,
};

/// Which network, and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// ECAPA-TDNN: speaker embeddings from frames.
    Ecapa(EcapaConfig),
    /// ResNet34 and its like: speaker embeddings from the time-frequency plane.
    ResNet(ResNetConfig),
    /// A perceptron of these sizes, whose outputs are the class scores.
    Mlp(Vec<usize>),
}

/// A batch of features: `batch × frames × features`, row-major. A model that [computes features itself](Model::set_filterbank) takes
/// `batch × samples` instead.
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
struct FrontEnd<B: Backend> {
    tables: FilterbankTables,
    filterbank: B::Filterbank,
}

enum Head<B: Backend> {
    None,
    Margin(MarginClassifier<B>),
    CrossEntropy(CrossEntropy<B>),
}

/// Network, parameters, loss.
pub struct Model<B: Backend> {
    architecture: Architecture,
    context: Context<B>,
    network: Box<dyn Network<B>>,
    head: Head<B>,
    classes: usize,
    front_end: Option<FrontEnd<B>>,
    /// One is in use while the other is filled with the next batch.
    inputs: [Tensor<B>; 2],
    current: usize,
    staged: Option<Staged>,
    /// The step on either input.
    recordings: [B::Recording; 2],
}

/// The batch that waits in the input not in use.
#[derive(Clone, Copy)]
struct Staged {
    batch: usize,
    frames: usize,
}

impl<B: Backend> Model<B> {
    /// A freshly initialised model. `classes` asks for a margin classifier on top of the embedding; a perceptron brings its own classes.
    pub fn new(backend: B, architecture: &Architecture, classes: Option<usize>, seed: u64) -> Result<Self> {
        let mut builder = Builder::new(&backend, seed);
        let network: Box<dyn Network<B>> = match architecture {
            Architecture::Ecapa(config) => Box::new(Ecapa::new(&mut builder, *config)?),
            Architecture::ResNet(config) => Box::new(ResNet::new(&mut builder, *config)?),
            Architecture::Mlp(sizes) => Box::new(Mlp::new(&mut builder, sizes)?),
        };
        let head = match (architecture, classes) {
            (Architecture::Mlp(_), _) => Head::CrossEntropy(CrossEntropy::new(&builder)?),
            (_, Some(0)) => return Err(Error::Config { field: "classes", value: 0, expected: "at least 1" }),
            (_, Some(classes)) => Head::Margin(MarginClassifier::new(&mut builder, network.outputs(), classes)?),
            (_, None) => Head::None,
        };
        let classes = classes.filter(|_| matches!(head, Head::Margin(_))).unwrap_or(network.outputs());
        let params = builder.finish()?;
        let inputs = [Tensor::empty(&backend)?, Tensor::empty(&backend)?];
        let (architecture, context) = (architecture.clone(), Context::new(backend, params));
        let (front_end, current, staged, recordings) = (None, 0, None, Default::default());
        Ok(Self { architecture, context, network, head, classes, front_end, inputs, current, staged, recordings })
    }

    /// The device.
    pub fn backend(&self) -> &B {
        &self.context.backend
    }

    /// Which network it is, and how large.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// All parameters, their gradients and the batch norms' state.
    pub fn params(&self) -> &Params<B> {
        &self.context.params
    }

    /// As [`Model::params`], to change; call [`Model::refresh`] after changing values.
    pub fn params_mut(&mut self) -> &mut Params<B> {
        &mut self.context.params
    }

    /// The device and the parameters together, for an optimizer; call [`Model::refresh`] after changing values.
    pub fn parts_mut(&mut self) -> (&B, &mut Params<B>) {
        (&self.context.backend, &mut self.context.params)
    }

    /// Lets the device compute the features: from now on inputs are samples, levelled as the network's features always were.
    ///
    /// # Errors
    /// A filterbank with another number of bins than the network has features, too little memory.
    pub fn set_filterbank(&mut self, tables: FilterbankTables) -> Result<()> {
        if tables.bins != self.network.features() {
            return Err(Error::Config { field: "filterbank bins", value: tables.bins, expected: "as many as the network has features" });
        }
        let filterbank = self.context.backend.filterbank(tables.clone())?;
        self.front_end = Some(FrontEnd { tables, filterbank });
        Ok(())
    }

    /// Brings the device's copies of the weights up to date: to be called after every optimizer step.
    pub fn refresh(&mut self) -> Result<()> {
        self.context.params.refresh(&self.context.backend)
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

    /// Forward, loss and backward for one batch: afterwards every parameter holds its gradient.
    ///
    /// The same as [`Model::stage`], [`Model::launch`] and [`Model::outcome`]; a loop that stages the next batch before it asks for the
    /// outcome keeps a GPU busy:
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
        let (backend, next) = (&self.context.backend, &mut self.inputs[1 - self.current]);
        next.resize(backend, self.network.input_shape(input.batch, frames))?;
        match &self.front_end {
            Some(front_end) => backend.write_samples_ahead(&front_end.filterbank, input.values, next.view_mut())?,
            None => backend.write_frames_ahead(input.values, next.view_mut())?,
        }
        self.staged = Some(Staged { batch: input.batch, frames });
        Ok(())
    }

    /// Starts forward, loss and backward for the batch staged last. Ask for the [`Model::outcome`] before the batch after the next is staged.
    pub fn launch(&mut self, labels: &[usize], margin: Margin) -> Result<()> {
        let nothing = || Error::Input { tensor: "features", problem: "no batch was staged".to_owned() };
        let Staged { batch, frames } = self.staged.take().ok_or_else(nothing)?;
        self.check_labels(batch, labels)?;
        self.current = 1 - self.current;
        self.set_labels(labels)?;
        self.context.begin(true);
        if self.context.check {
            return self.pass(margin); // looks at results on the way: cannot be recorded
        }
        let Margin { scale, margin: angle, easy } = margin;
        let key = [batch as u64, frames as u64, u64::from(scale.to_bits()), u64::from(angle.to_bits()), u64::from(easy)];
        loop {
            if self.context.backend.replay(&mut self.recordings[self.current], &key)? {
                return Ok(());
            }
            let result = self.pass(margin);
            if self.context.backend.recorded(&mut self.recordings[self.current], result.is_ok())? {
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

    /// Loss and hits of one batch in evaluation mode, as [`Model::gradients`] counts them. The gradients are void afterwards.
    pub fn evaluate(&mut self, input: Input, labels: &[usize], margin: Margin) -> Result<Outcome> {
        self.check_labels(input.batch, labels)?;
        self.run(input, false)?;
        self.set_labels(labels)?;
        let d = self.loss(margin)?;
        self.context.give(d);
        self.outcome()
    }

    /// What the loss of the last pass came to. Waits for the device.
    pub fn outcome(&self) -> Result<Outcome> {
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

    /// Scales all gradients to a joint ℓ2 norm of at most `limit`; returns the norm before.
    pub fn clip_gradients(&mut self, limit: f32) -> Result<f32> {
        let Context { backend, params, .. } = &mut self.context;
        let mut gradients: Vec<&mut B::Buffer> = params.all_mut().iter_mut().map(|parameter| &mut parameter.grad).collect();
        Ok(backend.clip(&mut gradients, limit)?)
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
            return fail(format!("{frames} frames, this network takes {} to {}", taken.start(), taken.end()));
        }
        let expected = batch * length * features;
        if values.len() != expected {
            return fail(format!("{} values, expected {batch} items × {length} {what} × {features} features = {expected}", values.len()));
        }
        Ok(frames)
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
