//! A module's parameters by name, taken out of it and put back.

use std::collections::HashMap;

use bregman::{GroupRule, Groups, InitialMask, Role};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, MultiGradientsParams};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};

/// Modules whose parameters never have a penalty, whatever their shape.
const DENSE: [&str; 6] = ["Embedding", "BatchNorm", "LayerNorm", "GroupNorm", "RmsNorm", "InstanceNorm"];

/// A parameter on the host.
pub(crate) struct Taken {
    pub(crate) id: ParamId,
    pub(crate) param: bregman::Param,
    pub(crate) values: Vec<f32>,
    /// Empty where there is none: then the parameter rests.
    pub(crate) gradient: Vec<f32>,
}

/// The gradients of a step, from one device or several.
pub(crate) enum Gradients {
    /// None are asked for.
    None,
    /// Of one device.
    Single(GradientsParams),
    /// Of several devices.
    Multi(MultiGradientsParams),
}

impl Gradients {
    fn remove<B: Backend, const D: usize>(&mut self, id: ParamId) -> Option<Tensor<B, D>> {
        match self {
            Gradients::None => None,
            Gradients::Single(gradients) => gradients.remove(id),
            Gradients::Multi(gradients) => gradients.remove(id).map(|(gradient, _)| gradient),
        }
    }
}

/// Where a walk through a module stands: the names on the way, and the kinds of modules.
#[derive(Default)]
struct Path(Vec<(String, String)>);

impl Path {
    fn enter(&mut self, name: &str, kind: &str) {
        self.0.push((name.to_owned(), kind.to_owned()));
    }

    fn exit(&mut self) {
        self.0.pop();
    }

    fn param(&self, shape: &[usize]) -> bregman::Param {
        let name = self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(".");
        let dense = self.0.iter().any(|(_, kind)| DENSE.iter().any(|dense| kind.ends_with(dense)));
        let role = match shape.len() {
            _ if dense => Role::Norm,
            ..2 => Role::Bias,
            2 => Role::LinearWeight,
            _ => Role::ConvWeight,
        };
        bregman::Param::new(name, shape, role)
    }
}

struct Take {
    path: Path,
    gradients: Gradients,
    taken: Vec<Taken>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Take {
    fn enter_module(&mut self, name: &str, kind: &str) {
        self.path.enter(name, kind);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        if !tensor.is_require_grad() {
            return; // a running mean, or a frozen layer
        }
        let values = on_host(tensor.clone().inner());
        let gradient = self.gradients.remove::<B::InnerBackend, D>(param.id);
        let gradient = gradient.map_or_else(Vec::new, on_host);
        let param_of_method = self.path.param(&tensor.dims());
        self.taken.push(Taken { id: param.id, param: param_of_method, values, gradient });
    }
}

fn on_host<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().into_vec().expect("was just converted")
}

/// All parameters that are trained, in the module's order, with their gradients.
pub(crate) fn take<B: AutodiffBackend>(module: &impl Module<B>, gradients: Gradients) -> Vec<Taken> {
    let mut take = Take { path: Path::default(), gradients, taken: vec![] };
    module.visit(&mut take);
    take.taken
}

struct Put(HashMap<ParamId, Vec<f32>>);

impl<B: AutodiffBackend> ModuleMapper<B> for Put {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let Some(values) = self.0.remove(&id) else { return Param::from_mapped_value(id, tensor, mapper) };
        let (device, shape) = (tensor.device(), tensor.dims());
        let inner = Tensor::<B::InnerBackend, D>::from_data(TensorData::new(values, shape), &device);
        Param::from_mapped_value(id, Tensor::from_inner(inner).require_grad(), mapper)
    }
}

/// The module with these values in place of its own.
pub(crate) fn put<B: AutodiffBackend, M: Module<B>>(module: M, values: impl Iterator<Item = (ParamId, Vec<f32>)>) -> M {
    module.map(&mut Put(values.collect()))
}

/// Parameters and what applies to their weights.
pub(crate) fn groups(taken: &[Taken], rule: &GroupRule) -> bregman::Result<Groups> {
    let rule_of = |param: &bregman::Param| if param.role.is_weight() { rule.clone() } else { GroupRule::dense() };
    Groups::paired(taken.iter().map(|taken| (taken.param.clone(), rule_of(&taken.param))).collect())
}

/// Sets a random share of every weight to zero, as a Bregman run begins; the same seed gives the same zeros.
///
/// # Panics
/// A share outside [0, 1).
pub fn sparse_init<B: AutodiffBackend, M: Module<B>>(module: M, sparsity: f64, seed: u64) -> M {
    let mut taken = take(&module, Gradients::None);
    let rule = GroupRule { initial_sparsity: Some(sparsity), ..GroupRule::default() };
    let mut values: Vec<&mut [f32]> = taken.iter_mut().map(|taken| taken.values.as_mut_slice()).collect();
    let described = take(&module, Gradients::None);
    let groups = groups(&described, &rule).unwrap_or_else(|error| panic!("{error}"));
    let drawn = bregman::sparse_init(&groups, &mut values, InitialMask::default(), seed);
    drawn.unwrap_or_else(|error| panic!("{error}"));
    put(module, taken.into_iter().map(|taken| (taken.id, taken.values)))
}

/// The share of weights that are exactly zero. Biases, norms and embeddings do not count.
pub fn sparsity<B: AutodiffBackend>(module: &impl Module<B>) -> f64 {
    let weights = take(module, Gradients::None).into_iter().filter(|taken| taken.param.role.is_weight());
    let (zeros, all) = weights.fold((0, 0), |(zeros, all), taken| {
        (zeros + taken.values.iter().filter(|x| **x == 0.0).count(), all + taken.values.len())
    });
    zeros as f64 / (all as f64).max(1.0)
}
