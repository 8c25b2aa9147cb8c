//! The networks, from features to an embedding.

mod ecapa;
mod resnet;

use std::time::{Duration, Instant};

use pulp::Arch;
use rayon::prelude::*;

use crate::file::{Contents, StoredLayer};
use crate::kernels::{Offsets, Store, Weights};
use crate::{Architecture, Result};

/// A network in the form in which it is executed.
pub(crate) enum Network {
    Ecapa(Box<ecapa::Ecapa>),
    ResNet(Box<resnet::ResNet>),
}

/// The memory of one execution, kept for the next.
pub(crate) enum Workspace {
    Ecapa(Box<ecapa::Workspace>),
    ResNet(Box<resnet::Workspace>),
}

/// A layer as it is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) dense: bool,
    /// Bytes of its weights in memory.
    pub(crate) bytes: usize,
    /// Weights that are not zero.
    pub(crate) live: usize,
}

impl Network {
    pub(crate) fn new(contents: &Contents) -> Result<Self> {
        let mut layers = contents.layers.iter();
        Ok(match contents.architecture {
            Architecture::Ecapa { channels, features, global_context, .. } => {
                Self::Ecapa(Box::new(ecapa::Ecapa::new(channels, features, global_context, &mut layers)?))
            }
            Architecture::ResNet { blocks, channels, features, .. } => {
                Self::ResNet(Box::new(resnet::ResNet::new(blocks, channels, features, &mut layers)?))
            }
        })
    }

    pub(crate) fn workspace(&self) -> Workspace {
        match self {
            Self::Ecapa(_) => Workspace::Ecapa(Box::default()),
            Self::ResNet(_) => Workspace::ResNet(Box::default()),
        }
    }

    /// The embedding of `features` (frames × bins).
    pub(crate) fn forward(&self, run: &mut Run, workspace: &mut Workspace, features: &[f32], embedding: &mut [f32]) {
        match (self, workspace) {
            (Self::Ecapa(network), Workspace::Ecapa(workspace)) => network.forward(run, workspace, features, embedding),
            (Self::ResNet(network), Workspace::ResNet(workspace)) => {
                network.forward(run, workspace, features, embedding)
            }
            _ => unreachable!("a workspace belongs to its network"),
        }
    }

    /// Every layer with weights, in the order of the file.
    pub(crate) fn costs(&self) -> Vec<Cost> {
        match self {
            Self::Ecapa(network) => network.costs(),
            Self::ResNet(network) => network.costs(),
        }
    }
}

impl Workspace {
    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Ecapa(workspace) => workspace.bytes(),
            Self::ResNet(workspace) => workspace.bytes(),
        }
    }
}

/// How one execution goes: with which instructions, on how many threads, and whether anybody wants to know where the
/// time goes.
pub(crate) struct Run<'a> {
    pub(crate) arch: Arch,
    pub(crate) threads: usize,
    /// Time per layer, in the order of the file.
    pub(crate) times: Option<&'a mut [Duration]>,
}

impl Run<'_> {
    /// Calls `work` for every number below `count`, on all threads.
    pub(crate) fn each(&self, count: usize, work: impl Fn(usize) + Sync + Send) {
        if self.threads == 1 || count < 2 {
            (0..count).for_each(work);
        } else {
            (0..count).into_par_iter().with_max_len(1).for_each(work);
        }
    }

    /// As [`Run::each`]; the time counts for layer `layer`.
    pub(crate) fn layer(&mut self, layer: usize, count: usize, work: impl Fn(usize) + Sync + Send) {
        self.timed(layer, |run| run.each(count, work));
    }

    /// The time of `work` counts for layer `layer`.
    pub(crate) fn timed(&mut self, layer: usize, work: impl FnOnce(&Self)) {
        let start = self.times.is_some().then(Instant::now);
        work(self);
        if let (Some(times), Some(start)) = (&mut self.times, start) {
            times[layer] += start.elapsed();
        }
    }
}

/// A convolution with what happens to its sums.
struct Conv {
    /// Its number in the file.
    layer: usize,
    weights: Weights,
    bias: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
}

impl Conv {
    fn new(layer: usize, stored: &StoredLayer) -> Result<Self> {
        let columns = stored.spec.shape[1..].iter().product();
        Self::of_columns(layer, stored, 0..columns)
    }

    fn of_columns(layer: usize, stored: &StoredLayer, columns: std::ops::Range<usize>) -> Result<Self> {
        let [bias, scale, shift] = stored.vectors()?;
        Ok(Self { layer, weights: Weights::new(stored, columns)?, bias, scale, shift })
    }

    fn offsets(&self, offset: impl Fn(usize) -> usize) -> Offsets {
        let mut offsets = Offsets::default();
        self.weights.resolve(offset, &mut offsets);
        offsets
    }

    fn store<'a>(&'a self, relu: bool, residual: Option<&'a [f32]>) -> Store<'a> {
        Store { bias: &self.bias, residual, relu, norm: [&self.scale, &self.shift] }
    }

    fn cost(&self) -> Cost {
        let vectors = self.bias.len() + self.scale.len() + self.shift.len();
        Cost { dense: self.weights.is_dense(), bytes: self.weights.bytes() + 4 * vectors, live: self.weights.live() }
    }
}

/// Takes the stored layers one by one.
struct Layers<'a, 'b> {
    stored: &'a mut std::slice::Iter<'b, StoredLayer<'b>>,
    next: usize,
}

impl<'b> Layers<'_, 'b> {
    fn take(&mut self) -> (usize, &'b StoredLayer<'b>) {
        self.next += 1;
        (self.next - 1, self.stored.next().expect("a file has the layers of its architecture"))
    }

    fn conv(&mut self) -> Result<Conv> {
        let (layer, stored) = self.take();
        Conv::new(layer, stored)
    }
}
