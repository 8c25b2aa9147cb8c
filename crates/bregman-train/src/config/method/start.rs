//! The sparse start of Bregman optimizers.

use bregman::{GroupRule, Groups, INITIAL_SPARSITY, InitialMask, LinBreg, Param, Penalty, Role, Rule};

use crate::Result;

pub(super) fn linbreg() -> Rule {
    Rule::LinBreg(LinBreg::default())
}

/// Every step is full.
pub(super) fn freeze() -> u64 {
    1
}

/// While a network looks for its support, zero weights need all their gradients: docs/results.md.
pub(super) fn freeze_after() -> f64 {
    0.5
}

pub(super) fn initial_sparsity() -> f64 {
    INITIAL_SPARSITY
}

/// How a network starts sparse: which penalty and how many zeros each layer has.
pub(crate) struct SparseStart<'a> {
    groups: &'a [GroupRule],
    /// What holds for every layer that no rule of `groups` names.
    general: GroupRule,
    pub(crate) mask: InitialMask,
}

impl<'a> SparseStart<'a> {
    pub(super) fn new(
        groups: &'a [GroupRule],
        penalty: Penalty,
        sparsity: f64,
        initial_inputs: Option<f64>,
        mask: InitialMask,
    ) -> Self {
        let general = GroupRule { penalty, initial_sparsity: Some(sparsity), initial_inputs, ..GroupRule::default() };
        Self { groups, general, mask }
    }

    /// What holds for every layer that no rule of the recipe names.
    pub(crate) fn general(&self) -> &GroupRule {
        &self.general
    }

    /// The parameters in groups: by the rules of a recipe first, then by what it says of all.
    pub(crate) fn groups(&self, params: Vec<Param>) -> Result<Groups> {
        let general = &self.general;
        let start = |rule: &GroupRule| GroupRule {
            initial_sparsity: rule.initial_sparsity.or(general.initial_sparsity),
            initial_inputs: rule.initial_inputs.or(general.initial_inputs),
            ..rule.clone()
        };
        let convolutions = GroupRule { roles: vec![Role::ConvWeight], ..general.clone() };
        let others = GroupRule { penalty: Penalty::L1, ..general.clone() };
        Ok(Groups::resolve_over(params, self.groups.iter().map(start).collect(), vec![convolutions, others])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_recipe_inherit_its_sparse_start() {
        let params = vec![
            Param::new("conv.weight", [8, 20, 3], Role::ConvWeight),
            Param::new("linear.weight", [8, 40], Role::LinearWeight),
            Param::new("head.weight", [8, 20], Role::Classifier),
        ];
        let heavier = GroupRule { lambda_scale: 2.0, ..GroupRule::for_roles([Role::Classifier]) };
        let general = GroupRule { penalty: Penalty::GroupKernel, initial_inputs: Some(10.0), ..GroupRule::default() };
        let start = SparseStart { groups: &[heavier], general, mask: InitialMask::default() };
        let groups = start.groups(params).unwrap();
        assert_eq!([0, 1, 2].map(|tensor| groups.initial_sparsity(tensor)), [0.5, 0.75, 0.5]);
        assert_eq!(
            [0, 1, 2].map(|tensor| groups.rule(tensor).penalty),
            [Penalty::GroupKernel, Penalty::L1, Penalty::L1]
        );
        assert_eq!(groups.rule(2).lambda_scale, 2.0);
    }
}
