//! Parameter groups: which penalty, λ-scale, learning-rate scale and initial sparsity a tensor gets.
//!
//! Rules are tried in order and the first match wins. What no rule of yours matches falls to the paper's set-up: ℓ1 and
//! 99 % initial zeros on weights, nothing on biases and normalisations. The latter are never thresholded, whatever a
//! pattern says of them: our reading of the paper (`docs/method.md`), and the one point where a rule is overruled.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, require};
use crate::param::{Param, Role};
use crate::pattern::Pattern;
use crate::penalty::{Penalty, Shrinkage};

/// Share of zeros a Bregman run starts from.
pub const INITIAL_SPARSITY: f64 = 0.99;

/// One rule: whom it is for, and what they get.
///
/// | setting | default | purpose | range |
/// | --- | --- | --- | --- |
/// | `pattern` | every name | glob (`layer*.weight`; `*` any text, `?` one character), or `re:REGEX` | |
/// | `roles` | every role | restricts the rule | |
/// | `penalty` | ℓ1 | see [`Penalty`] | |
/// | `lambda_scale` | 1 | a in λ_group = a·λ; the paper's "cls. 2λ" is 2 on the classifier | > 0 |
/// | `lr_scale` | 1 | multiplies the learning rate | > 0 |
/// | `initial_sparsity` | [`INITIAL_SPARSITY`], 0.99 | share of zeros at the start | [0, 1) |
/// | `initial_inputs` | 0 | at least this many non-zero inputs per output at the start, on average | ≥ 0 |
///
/// ```
/// use bregman::{GroupRule, Role};
/// let heavier_head = GroupRule { lambda_scale: 2.0, ..GroupRule::for_roles([Role::Classifier]) };
/// let structured = GroupRule { penalty: bregman::Penalty::GroupRow, ..GroupRule::for_names("layer1.*") };
/// # let _ = (heavier_head, structured);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupRule {
    /// Glob, or regular expression after `re:`.
    pub pattern: Option<String>,
    /// Roles the rule is restricted to; empty means all.
    pub roles: Vec<Role>,
    /// Structure of the zeros.
    pub penalty: Penalty,
    /// a in λ_group = a·λ.
    pub lambda_scale: f64,
    /// Factor on the learning rate.
    pub lr_scale: f64,
    /// Share of zeros at the start; `None` for [`INITIAL_SPARSITY`].
    pub initial_sparsity: Option<f64>,
    /// Inputs of every output that are non-zero at the start, at least; `None` for 0.
    pub initial_inputs: Option<f64>,
}

impl Default for GroupRule {
    fn default() -> Self {
        Self {
            pattern: None,
            roles: vec![],
            penalty: Penalty::L1,
            lambda_scale: 1.0,
            lr_scale: 1.0,
            initial_sparsity: None,
            initial_inputs: None,
        }
    }
}

impl GroupRule {
    /// The default rule for names that match `pattern`.
    pub fn for_names(pattern: impl Into<String>) -> Self {
        Self { pattern: Some(pattern.into()), ..Self::default() }
    }

    /// The default rule for these roles.
    pub fn for_roles(roles: impl Into<Vec<Role>>) -> Self {
        Self { roles: roles.into(), ..Self::default() }
    }

    /// Everything dense: no penalty, no initial zeros. The rule of the dense baselines.
    pub fn dense() -> Self {
        Self { penalty: Penalty::None, initial_sparsity: Some(0.0), ..Self::default() }
    }

    fn label(&self) -> String {
        self.pattern.clone().unwrap_or_else(|| format!("{:?}", self.roles))
    }

    fn check(&self) -> Result<()> {
        let field = |name: &str| format!("group `{}`: {name}", self.label());
        require(
            self.lambda_scale > 0.0 && self.lambda_scale.is_finite(),
            &field("lambda_scale"),
            self.lambda_scale,
            "a number > 0",
        )?;
        require(self.lr_scale > 0.0 && self.lr_scale.is_finite(), &field("lr_scale"), self.lr_scale, "a number > 0")?;
        let start = self.initial_sparsity.unwrap_or(INITIAL_SPARSITY);
        require((0.0..1.0).contains(&start), &field("initial_sparsity"), start, "a share in [0, 1)")?;
        let inputs = self.initial_inputs.unwrap_or(0.0);
        require(inputs >= 0.0 && inputs.is_finite(), &field("initial_inputs"), inputs, "a number ≥ 0")
    }

    fn matcher(&self) -> Result<impl Fn(&Param) -> bool> {
        let pattern = self.pattern.as_deref().map(Pattern::parse).transpose()?;
        Ok(move |param: &Param| {
            (self.roles.is_empty() || self.roles.contains(&param.role))
                && pattern.as_ref().is_none_or(|pattern| pattern.matches(&param.name))
        })
    }
}

/// Parameters with the rule that each fell to.
#[derive(Debug, Clone, PartialEq)]
pub struct Groups {
    params: Vec<Param>,
    /// The given rules, then the general ones.
    rules: Vec<GroupRule>,
    given: usize,
    rule_of: Vec<usize>,
}

impl Groups {
    /// Sorts the parameters into groups; the first matching rule wins, and what no rule matches falls to the paper's
    /// set-up.
    ///
    /// # Errors
    /// As [`Groups::resolve_over`].
    pub fn resolve(params: Vec<Param>, rules: Vec<GroupRule>) -> Result<Self> {
        Self::resolve_over(params, rules, vec![])
    }

    /// As [`Groups::resolve`], with `general` rules between the given ones and the paper's set-up: these may end up
    /// with nothing.
    ///
    /// # Errors
    /// A parameter that is empty or named twice, a setting out of range, and a rule that ends up with no parameter:
    /// because nothing has such a name (the error lists near misses) or because earlier rules took them all.
    pub fn resolve_over(params: Vec<Param>, rules: Vec<GroupRule>, general: Vec<GroupRule>) -> Result<Self> {
        check_params(&params)?;
        let given = rules.len();
        let rules: Vec<GroupRule> = rules.into_iter().chain(general).chain([GroupRule::default()]).collect();
        rules.iter().try_for_each(GroupRule::check)?;
        let matchers = rules.iter().map(GroupRule::matcher).collect::<Result<Vec<_>>>()?;
        let rule_of: Vec<usize> = params
            .iter()
            .map(|param| matchers.iter().position(|matches| matches(param)).unwrap_or(rules.len() - 1))
            .collect();

        let empty = (0..given).find(|index| !rule_of.contains(index));
        if let Some(index) = empty {
            let taken = params.iter().filter(|param| matchers[index](param)).count();
            let (reason, near) = match (taken, &rules[index].pattern) {
                (0, Some(pattern)) => (
                    "no parameter matches".into(),
                    Pattern::parse(pattern)?.near_misses(params.iter().map(|param| param.name.as_str())),
                ),
                (0, None) => ("no parameter matches".into(), vec![]),
                _ => (format!("earlier rules already took all {taken} matching parameters"), vec![]),
            };
            return Err(Error::EmptyGroup { group: rules[index].label(), reason, near });
        }
        drop(matchers);
        Ok(Self { params, rules, given, rule_of })
    }

    /// Parameters that come with their rule: who they are for (patterns and roles) is not asked.
    ///
    /// # Errors
    /// A parameter that is empty or named twice, a setting out of range.
    pub fn paired(params: Vec<(Param, GroupRule)>) -> Result<Self> {
        let (params, rules): (Vec<Param>, Vec<GroupRule>) = params.into_iter().unzip();
        check_params(&params)?;
        rules.iter().try_for_each(GroupRule::check)?;
        let (given, rule_of) = (rules.len(), (0..rules.len()).collect());
        Ok(Self { params, rules, given, rule_of })
    }

    /// The parameters, in the order given.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Number of groups, the general ones included.
    pub fn group_count(&self) -> usize {
        self.rules.len()
    }

    /// Which group (rule) a parameter belongs to.
    pub fn group_of(&self, tensor: usize) -> usize {
        self.rule_of[tensor]
    }

    /// What to call a group in tables: its pattern or roles, `default` for the general ones.
    pub fn group_label(&self, group: usize) -> String {
        if group >= self.given { "default".into() } else { self.rules[group].label() }
    }

    /// The rule a parameter fell to.
    pub fn rule(&self, tensor: usize) -> &GroupRule {
        &self.rules[self.rule_of[tensor]]
    }

    /// The penalty on a parameter, [`Shrinkage::Identity`] on biases and normalisations.
    pub fn shrinkage(&self, tensor: usize) -> Shrinkage {
        let param = &self.params[tensor];
        if param.role.is_weight() { self.rule(tensor).penalty.on(param) } else { Shrinkage::Identity }
    }

    /// Share of zeros a parameter starts from: its rule's, less where that would leave an output too few inputs.
    pub fn initial_sparsity(&self, tensor: usize) -> f64 {
        let (rule, param) = (self.rule(tensor), &self.params[tensor]);
        let inputs = (param.row_len() / param.kernel_len()) as f64;
        let most = 1.0 - rule.initial_inputs.unwrap_or(0.0) / inputs;
        rule.initial_sparsity.unwrap_or(INITIAL_SPARSITY).min(most).max(0.0)
    }

    /// The tensors with a penalty, whose zeros are counted and steered.
    pub fn controlled(&self) -> Vec<usize> {
        (0..self.params.len()).filter(|&tensor| self.shrinkage(tensor) != Shrinkage::Identity).collect()
    }
}

/// Refuses empty parameters and names that occur twice.
fn check_params(params: &[Param]) -> Result<()> {
    let mut names: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::DuplicateParameter { parameter: pair[0].into() });
    }
    params.iter().try_for_each(Param::check)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Vec<Param> {
        vec![
            Param::new("layer1.conv.weight", [8, 4, 3], Role::ConvWeight),
            Param::new("layer1.conv.bias", [8], Role::Bias),
            Param::new("layer1.bn.weight", [8], Role::Norm),
            Param::new("layer2.linear.weight", [4, 8], Role::LinearWeight),
            Param::new("head.weight", [10, 4], Role::Classifier),
        ]
    }

    #[test]
    fn the_first_matching_rule_wins_and_the_rest_falls_to_the_papers_setup() {
        let rules = vec![
            GroupRule { penalty: Penalty::GroupKernel, ..GroupRule::for_names("layer1.*") },
            GroupRule { lambda_scale: 2.0, ..GroupRule::for_roles([Role::Classifier]) },
        ];
        let groups = Groups::resolve(network(), rules).unwrap();
        assert_eq!((0..5).map(|t| groups.group_of(t)).collect::<Vec<_>>(), [0, 0, 0, 2, 1]);
        assert_eq!(groups.shrinkage(0), Shrinkage::Group(3));
        assert_eq!(groups.shrinkage(3), Shrinkage::Soft);
        assert_eq!(groups.rule(4).lambda_scale, 2.0);
        assert_eq!(groups.controlled(), [0, 3, 4]);
    }

    #[test]
    fn norms_and_biases_are_never_thresholded() {
        let groups = Groups::resolve(network(), vec![GroupRule::for_names("*")]).unwrap();
        assert_eq!(groups.shrinkage(1), Shrinkage::Identity);
        assert_eq!(groups.shrinkage(2), Shrinkage::Identity);
    }

    #[test]
    fn a_pattern_that_matches_nothing_lists_near_misses() {
        let error = Groups::resolve(network(), vec![GroupRule::for_names("layer1.conv.wieght")]).unwrap_err();
        assert!(error.to_string().contains("did you mean layer1.conv.weight"), "{error}");
    }

    #[test]
    fn a_rule_hidden_by_earlier_ones_is_an_error() {
        let rules = vec![GroupRule::for_names("*.weight"), GroupRule::for_names("head.weight")];
        let error = Groups::resolve(network(), rules).unwrap_err();
        assert!(error.to_string().contains("earlier rules already took all 1"), "{error}");
    }

    #[test]
    fn general_rules_take_what_is_left_and_may_get_nothing() {
        let heavier = GroupRule { lambda_scale: 2.0, ..GroupRule::for_roles([Role::ConvWeight]) };
        let general = ["layer1.conv.weight", "layer2.*"]
            .map(|names| GroupRule { initial_sparsity: Some(0.5), ..GroupRule::for_names(names) });
        let groups = Groups::resolve_over(network(), vec![heavier], general.into()).unwrap();
        assert_eq!((groups.rule(0).lambda_scale, groups.rule(0).initial_sparsity), (2.0, None));
        assert_eq!(groups.rule(3).initial_sparsity, Some(0.5));
        assert_eq!(
            (groups.group_label(groups.group_of(3)), groups.group_label(groups.group_of(4))),
            ("default".into(), "default".into())
        );
    }

    #[test]
    fn an_output_starts_with_the_asked_live_inputs_where_99_percent_would_leave_fewer() {
        let with = |inputs| {
            Groups::resolve(network(), vec![GroupRule { initial_inputs: Some(inputs), ..GroupRule::default() }])
                .unwrap()
        };
        // 4 inputs with kernels of 3, and 8 plain ones
        let start = |inputs| [0, 3].map(|tensor| with(inputs).initial_sparsity(tensor));
        assert_eq!(start(0.0), [0.99, 0.99]);
        assert_eq!(start(2.0), [0.5, 0.75]);
        assert_eq!(start(5.0), [0.0, 0.375]);
    }

    #[test]
    fn rules_that_come_with_their_parameters_are_theirs() {
        let penalties = [Penalty::GroupKernel, Penalty::L1, Penalty::L1, Penalty::None, Penalty::L1];
        let paired = |twice: bool| {
            let rule = |penalty| GroupRule { penalty, ..GroupRule::for_names("nobody") };
            let mut params: Vec<_> = network().into_iter().zip(penalties.map(rule)).collect();
            params.extend(twice.then(|| params[3].clone()));
            Groups::paired(params)
        };
        let groups = paired(false).unwrap();
        assert_eq!((groups.controlled(), groups.shrinkage(0)), (vec![0, 4], Shrinkage::Group(3)));
        assert!(paired(true).unwrap_err().to_string().contains("`layer2.linear.weight` occurs twice"));
    }

    #[test]
    fn bad_settings_and_parameters_are_named() {
        let with = |rule| Groups::resolve(network(), vec![rule]).unwrap_err().to_string();
        assert!(
            with(GroupRule { lambda_scale: 0.0, ..GroupRule::for_names("head*") })
                .contains("group `head*`: lambda_scale")
        );
        assert!(with(GroupRule { initial_sparsity: Some(1.0), ..GroupRule::default() }).contains("[0, 1)"));
        let empty = vec![Param::new("w", [3, 0], Role::LinearWeight)];
        assert!(Groups::resolve(empty, vec![]).unwrap_err().to_string().contains("`w` is empty"));
        let twice = vec![Param::new("w", [3], Role::Bias), Param::new("w", [3], Role::Bias)];
        assert!(Groups::resolve(twice, vec![]).unwrap_err().to_string().contains("`w` occurs twice"));
    }
}
