//! A training step on any device as the trainer takes it, without a trainer: one batch again and again.

use std::time::{Duration, Instant};

use bregman::{AdaBreg, Groups, Optimizer, Rule};
use bregman_nn::{Architecture, Extent, Input, LateOutcome, TrainableModel};
use bregman_tensor::{Device, Margin};

/// A network and AdaBreg, ℓ1 on all weights.
pub struct BareStep<B: Device> {
    /// The network.
    pub model: TrainableModel<B>,
    optimizer: Optimizer<B::Arrays>,
    staged: bool,
}

/// The numbers of a step that are on their way to the host.
struct Late<B: Device>(LateOutcome<B>, B::Late);

const MARGIN: Margin = Margin { scale: 32.0, margin: 0.2, easy: false };
const LR: f64 = 1e-3;

impl<B: Device> BareStep<B> {
    /// With so many classes.
    pub fn new(device: B, architecture: &Architecture, classes: usize) -> Self {
        let mut model = TrainableModel::new(device, architecture, Some(classes), 0).expect("a valid network");
        let params = model.params().described();
        let weights: Vec<Vec<f32>> = (model.params().all().iter())
            .map(|parameter| {
                let mut values = vec![0.0; parameter.param.len()];
                model.backend().download(&parameter.value, &mut values).expect("weights");
                values
            })
            .collect();
        let groups = Groups::resolve(params.clone(), vec![]).expect("groups");
        let optimizer = Optimizer::new(Rule::AdaBreg(AdaBreg::default()), groups, 1e-4, &weights).expect("settings");
        let optimizer = optimizer.place(|arrays| model.backend().place(arrays, &params)).expect("memory");
        model.set_extent(Extent::All);
        Self { model, optimizer, staged: false }
    }

    /// Milliseconds of forward and backward, the next batch copied meanwhile, and of the optimizer with its counts,
    /// each waited for.
    pub fn parts(&mut self, input: Input, labels: &[usize]) -> [f64; 2] {
        if !self.staged {
            self.model.stage(input).expect("memory");
        }
        let start = Instant::now();
        self.model.launch(labels, MARGIN).expect("a pass");
        self.model.stage(input).expect("memory");
        self.staged = true;
        self.model.outcome().expect("a loss");
        let between = start.elapsed();
        let (mut theta, grads) = self.model.parts_mut().1.values_and_gradients();
        self.optimizer.step_on(&mut theta, &grads, LR).expect("a step");
        self.model.refresh().expect("a refresh");
        [between, start.elapsed() - between].map(|time| 1e3 * time.as_secs_f64())
    }

    /// So many steps as the trainer takes them: the next batch is copied and the numbers of the last step are read
    /// while the device works on this one. The time until all is done.
    pub fn run(&mut self, input: Input, labels: &[usize], steps: usize) -> Duration {
        let start = Instant::now();
        let mut before = None;
        self.model.stage(input).expect("memory");
        self.staged = false;
        for step in 0..steps {
            self.model.launch(labels, MARGIN).expect("a pass");
            if let Some(late) = before.take() {
                self.read(late);
            }
            if step + 1 < steps {
                self.model.stage(input).expect("memory");
            }
            let outcome = self.model.outcome_later().expect("a loss");
            let norm = self.model.clip_later(1.0).expect("a norm");
            let (mut theta, grads) = self.model.parts_mut().1.values_and_gradients();
            self.optimizer.launch_on(&mut theta, &grads, LR).expect("a step");
            self.model.refresh().expect("a refresh");
            before = Some(Late(outcome, norm));
        }
        if let Some(late) = before {
            self.read(late);
        }
        start.elapsed()
    }

    fn read(&mut self, Late(outcome, norm): Late<B>) {
        self.model.arrived(outcome).expect("a loss");
        self.optimizer.settle::<B::Buffer>().expect("counts");
        self.model.backend().arrived(norm).expect("a norm");
    }
}
