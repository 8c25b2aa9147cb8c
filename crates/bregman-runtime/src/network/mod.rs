//! The networks, from features to an embedding.

mod basic_block;
mod campplus;
mod ecapa;
#[cfg(feature = "audio")]
mod incremental;
mod maps;
mod resnet;
mod wave;

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use bregman_base::Disjoint;
use bregman_network::{LayerSpec, NetworkConfig};
use pulp::Arch;

use crate::Result;
use crate::file::{Contents, StoredLayer};
use crate::kernels::{Epilogue, KernelCosts, Linear, Offsets, Place, Runs, Weights};
use crate::ranges::Watches;
use crate::team::Team;
#[cfg(feature = "audio")]
pub(crate) use incremental::Incremental;

/// From the list of networks: what is executed, and the memory of it.
macro_rules! networks {
    ($($kind:ident: $network:ty, $workspace:ty, of $($config:ident)+;)+) => {
        /// A network in the form in which it is executed.
        pub(crate) enum Network {
            $($kind(Box<$network>),)+
        }

        /// The memory of one execution, kept for the next.
        pub(crate) enum Workspace {
            $($kind(Box<$workspace>),)+
        }

        impl Network {
            /// The network, and how each layer of the file is executed; with `watches`, in f32 and so that they see
            /// the inputs of layers that can be executed in whole numbers.
            pub(crate) fn new(
                contents: &Contents,
                watches: Option<&Watches>,
                kernels: &KernelCosts,
            ) -> Result<(Self, Vec<Cost>)> {
                let (mut layers, features) = (Layers::new(contents, watches, kernels), contents.architecture.features);
                let network = match &contents.architecture.network {
                    $($(NetworkConfig::$config(config) => {
                        Self::$kind(Box::new(<$network>::new(&config.describe(features), features, &mut layers)?))
                    })+)+
                };
                Ok((network, layers.costs))
            }

            pub(crate) fn workspace(&self) -> Workspace {
                match self {
                    $(Self::$kind(_) => Workspace::$kind(Box::default()),)+
                }
            }

            /// The embedding of `features` (frames × bins).
            pub(crate) fn forward(
                &self,
                run: &mut Execution,
                workspace: &mut Workspace,
                features: &[f32],
                embedding: &mut [f32],
            ) {
                match (self, workspace) {
                    $((Self::$kind(network), Workspace::$kind(workspace)) => {
                        network.forward(run, workspace, features, embedding)
                    })+
                    _ => unreachable!("a workspace belongs to its network"),
                }
            }
        }

        impl Workspace {
            /// Bytes of its buffers.
            pub(crate) fn bytes(&self) -> usize {
                match self {
                    $(Self::$kind(workspace) => workspace.bytes(),)+
                }
            }
        }
    };
}

networks! {
    Ecapa: ecapa::Ecapa, ecapa::EcapaWorkspace, of Ecapa SpeechBrainEcapa;
    ResNet: resnet::ResNet, resnet::ResNetWorkspace, of ResNet;
    CampPlus: campplus::CampPlus, campplus::CampPlusWorkspace, of CampPlus;
}

/// A layer as it is executed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) runs: Runs,
    /// Bytes of its weights in memory.
    pub(crate) bytes: usize,
    /// Weights that are not zero.
    pub(crate) live: usize,
}

/// How one execution goes: with which instructions, on how many threads, and whether layers are timed.
pub(crate) struct Execution<'a> {
    pub(crate) arch: Arch,
    /// Of several threads.
    pub(crate) team: Option<&'a Team>,
    /// Time per layer, in the order of the file.
    pub(crate) times: Option<&'a mut [Duration]>,
}

impl Execution<'_> {
    pub(crate) fn threads(&self) -> usize {
        self.team.map_or(1, Team::threads)
    }

    /// Calls `work` for every number below `count`, on all threads.
    pub(crate) fn each(&self, count: usize, work: impl Fn(usize) + Sync + Send) {
        match self.team.filter(|_| count > 1) {
            Some(team) => team.each(count, &work),
            None => (0..count).for_each(work),
        }
    }

    /// As [`Execution::each`]; the time counts for layer `layer`.
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
    relu: bool,
    scale: Vec<f32>,
    shift: Vec<f32>,
    /// Sees its input.
    watches: Option<Watches>,
}

impl Conv {
    fn offsets(&self, offset: impl Fn(usize) -> usize) -> Offsets {
        let mut offsets = Offsets::default();
        self.weights.resolve(offset, &mut offsets);
        offsets
    }

    /// One block, from x to y, by way of `codes` in whole numbers.
    ///
    /// # Safety
    /// As [`Weights::apply`].
    unsafe fn apply(&self, arch: Arch, offsets: &Offsets, x: &[f32], codes: &mut [u8], place: Place, y: Disjoint) {
        // SAFETY: as the caller promises.
        unsafe { self.apply_with(arch, offsets, x, codes, place, &self.epilogue(None), y) };
    }

    /// As [`Conv::apply`], with an epilogue of the caller's.
    ///
    /// # Safety
    /// As [`Weights::apply`].
    #[expect(clippy::too_many_arguments, reason = "two buffers and where they are read")]
    unsafe fn apply_with(
        &self,
        arch: Arch,
        offsets: &Offsets,
        x: &[f32],
        codes: &mut [u8],
        place: Place,
        epilogue: &Epilogue,
        y: Disjoint,
    ) {
        self.take(arch, &x[offsets.window(place.x)], codes);
        // SAFETY: as the caller promises.
        unsafe { self.weights.apply(arch, offsets, x, codes, place, epilogue, y) };
    }

    /// Takes note of the numbers that a block reads, or makes codes of them, as far as that is wanted.
    fn take(&self, arch: Arch, x: &[f32], codes: &mut [u8]) {
        if let Some(watches) = &self.watches {
            watches.see(self.layer, x);
        }
        self.weights.encode(arch, x, codes);
    }

    fn epilogue<'a>(&'a self, residual: Option<&'a [f32]>) -> Epilogue<'a> {
        Epilogue {
            bias: &self.bias,
            residual: residual.map(Into::into),
            relu: self.relu,
            norm: [&self.scale, &self.shift],
        }
    }
}

/// A linear layer of one vector, and its number in the file.
struct Product {
    layer: usize,
    linear: Linear,
}

impl Product {
    fn apply(&self, run: &mut Execution, x: &[f32], y: &mut [f32]) {
        run.timed(self.layer, |_| self.linear.apply(x, y));
    }
}

/// The layers of a file by name, while a network is made of them.
struct Layers<'a> {
    stored: &'a [StoredLayer<'a>],
    numbers: HashMap<&'a str, usize>,
    costs: Vec<Cost>,
    watches: Option<&'a Watches>,
    kernels: &'a KernelCosts,
}

impl<'a> Layers<'a> {
    fn new(contents: &'a Contents, watches: Option<&'a Watches>, kernels: &'a KernelCosts) -> Self {
        let stored = &contents.layers[..];
        let numbers = stored.iter().enumerate().map(|(number, layer)| (&*layer.spec.name, number)).collect();
        Self { stored, numbers, costs: vec![Cost::default(); stored.len()], watches, kernels }
    }

    fn find(&self, spec: &LayerSpec) -> (usize, &'a StoredLayer<'a>) {
        let number = self.numbers[&*spec.name]; // a file with another set of layers was refused
        (number, &self.stored[number])
    }

    /// A convolution in f32.
    fn conv(&mut self, spec: &LayerSpec) -> Result<Conv> {
        self.convolution(spec, 0..spec.matrix()[1], None)
    }

    /// A convolution, in whole numbers if the file has the range of its input. The network calls [`Conv::take`] on
    /// what it reads.
    fn coded_conv(&mut self, spec: &LayerSpec) -> Result<Conv> {
        self.coded_conv_of(spec, 0..spec.matrix()[1])
    }

    /// Some columns of such a convolution.
    fn coded_conv_of(&mut self, spec: &LayerSpec, columns: Range<usize>) -> Result<Conv> {
        let range = self.find(spec).1.input_range.filter(|_| self.watches.is_none());
        Ok(Conv { watches: self.watches.cloned(), ..self.convolution(spec, columns, range)? })
    }

    fn convolution(&mut self, spec: &LayerSpec, columns: Range<usize>, input_range: Option<f32>) -> Result<Conv> {
        let (layer, stored) = self.find(spec);
        let [bias, scale, shift] = stored.vectors()?;
        let weights = Weights::new(stored, columns, input_range, self.kernels)?;
        let vectors = bias.len() + scale.len() + shift.len();
        self.add(layer, weights.runs(), weights.bytes() + 4 * vectors, weights.live());
        Ok(Conv { layer, weights, bias, relu: spec.relu(), scale, shift, watches: None })
    }

    /// Scale and shift of the norm in front of a layer that a ReLU follows.
    fn before(&mut self, spec: &LayerSpec) -> Result<[Vec<f32>; 2]> {
        let (layer, stored) = self.find(spec);
        let before = stored.before()?;
        self.costs[layer].bytes += 4 * before.iter().map(Vec::len).sum::<usize>();
        Ok(before)
    }

    fn linear(&mut self, spec: &LayerSpec) -> Result<Product> {
        self.linear_of(spec, 0..spec.matrix()[1], true)
    }

    /// Some columns of a layer, with its bias or without, as a linear layer.
    fn linear_of(&mut self, spec: &LayerSpec, columns: Range<usize>, bias: bool) -> Result<Product> {
        let (layer, stored) = self.find(spec);
        let linear = Linear::new(stored, columns, bias)?;
        self.add(layer, linear.runs(), linear.bytes(), linear.live());
        Ok(Product { layer, linear })
    }

    fn add(&mut self, layer: usize, runs: Runs, bytes: usize, live: usize) {
        let cost = &mut self.costs[layer];
        cost.runs = cost.runs.max(runs);
        cost.bytes += bytes;
        cost.live += live;
    }
}
