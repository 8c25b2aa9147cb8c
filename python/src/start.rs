//! What happens to weights before the first step: sparse initialisation, first duals, counts.

use bregman::{GroupRule, Groups, InitialMask, Optimizer, Param, Penalty, Rule};
use pyo3::prelude::*;

use crate::lent::{Lent, check_apart};
use crate::settings::role;
use crate::{raise, read_settings};

/// p⁰ = θ⁰/δ + λ·∂R(θ⁰) of one tensor on the CPU, written to `dual`. `lambda` is without the λ-scale.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one tensor with its group's settings, from Python")]
#[pyo3(signature = (rule, name, shape, weight, penalty, lambda_scale, lambda_, theta, dual))]
pub(crate) fn initial_dual(
    py: Python<'_>,
    rule: &str,
    name: String,
    shape: Vec<usize>,
    weight: bool,
    penalty: &str,
    lambda_scale: f64,
    lambda_: f64,
    theta: usize,
    dual: usize,
) -> PyResult<()> {
    let (rule, penalty): (Rule, Penalty) = (read_settings(rule)?, read_settings(penalty)?);
    let param = Param { role: role(weight, &shape), name, shape };
    let (theta, dual) = (Lent::new(theta, param.len()), Lent::new(dual, param.len()));
    py.detach(|| {
        check_apart([(param.name.as_str(), theta), (param.name.as_str(), dual)].into_iter())?;
        let groups = Groups::paired(vec![(param, GroupRule { penalty, lambda_scale, ..GroupRule::default() })])?;
        let optimizer = Optimizer::new(rule, groups, lambda_, &[theta.values()])?;
        dual.values_mut().copy_from_slice(&optimizer.state().tensors[0].p);
        Ok(())
    })
    .map_err(raise)
}

/// Masks one weight tensor on the CPU at random, as the program does for a parameter of this name.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one tensor with its group's settings, from Python")]
pub(crate) fn sparse_init(
    py: Python<'_>,
    name: String,
    shape: Vec<usize>,
    penalty: &str,
    sparsity: f64,
    inputs: f64,
    unit: &str,
    survivors: &str,
    seed: u64,
    theta: usize,
) -> PyResult<()> {
    let penalty: Penalty = read_settings(penalty)?;
    let mask = InitialMask { unit: read_settings(unit)?, survivors: read_settings(survivors)? };
    let param = Param { role: role(true, &shape), name, shape };
    let theta = Lent::new(theta, param.len());
    py.detach(|| {
        let (initial_sparsity, initial_inputs) = (Some(sparsity), Some(inputs));
        let rule = GroupRule { penalty, initial_sparsity, initial_inputs, ..GroupRule::default() };
        bregman::sparse_init(&Groups::paired(vec![(param, rule)])?, &mut [theta.values_mut()], mask, seed)
    })
    .map_err(raise)
}
