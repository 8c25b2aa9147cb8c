//! All of an optimizer but its arrays: its settings in the words of the recipes, and what is saved.

use bregman::controller::LoopState;
use bregman::{ControllerConfig, GroupRule, Groups, OptimizerState, Param, Penalty, Role, Rule, TensorStats};
use serde::{Deserialize, Serialize};

/// All of an optimizer but its arrays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) rule: Rule,
    /// Absent where λ stays.
    pub(crate) controller: Option<ControllerConfig>,
    /// λ₀; the rule's own where absent.
    pub(crate) lambda: Option<f64>,
    pub(crate) params: Vec<ParamSettings>,
}

/// A parameter and its group's settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParamSettings {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// Whether it may have a penalty; biases and normalisations may not.
    pub(crate) weight: bool,
    pub(crate) penalty: Penalty,
    pub(crate) lambda_scale: f64,
}

impl From<ParamSettings> for (Param, GroupRule) {
    fn from(settings: ParamSettings) -> Self {
        let ParamSettings { name, shape, weight, penalty, lambda_scale } = settings;
        let role = role(weight, &shape);
        (Param { name, shape, role }, GroupRule { penalty, lambda_scale, ..GroupRule::default() })
    }
}

/// The role of a parameter of which only the shape is known, and whether it is a weight.
pub(crate) fn role(weight: bool, shape: &[usize]) -> Role {
    match (weight, shape.len()) {
        (false, _) => Role::Bias,
        (true, ..=2) => Role::LinearWeight,
        (true, _) => Role::ConvWeight,
    }
}

/// Everything that is remembered between steps and is not an array.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saved {
    /// The rule's name; absent in states that were saved before it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    pub(crate) step: u64,
    /// λ of every tensor, before its λ-scale.
    pub(crate) lambda: Vec<f64>,
    /// The control loops; empty where λ stays.
    pub(crate) loops: Vec<LoopState>,
}

/// The same as the state of an optimizer over these arrays.
pub(crate) fn state<A>(saved: &Saved, tensors: A) -> OptimizerState<A> {
    OptimizerState { step: saved.step, lambda: saved.lambda.clone(), tensors }
}

/// Of tensors in which nothing was counted yet.
pub(crate) fn stats(groups: &Groups) -> Vec<TensorStats> {
    groups.params().iter().map(|param| TensorStats { len: param.len() as u64, ..TensorStats::default() }).collect()
}
