//! Sparsity accounting: s(θ) = zeros / count, per tensor, per group and for the network.
//!
//! This is the one place where zeros become a share. A weight counts as zero when it is exactly 0.0, which is what the
//! prox produces.

use serde::{Deserialize, Serialize};

use crate::groups::Groups;

/// What a step counted in one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TensorStats {
    /// Elements.
    pub len: u64,
    /// Elements that are exactly zero.
    pub zeros: u64,
    /// ‖θ‖₂².
    pub sum_squares: f64,
}

impl TensorStats {
    /// Counts in the elements of a tensor.
    pub fn of(values: &[f32]) -> Self {
        Self {
            len: values.len() as u64,
            zeros: bregman_base::lanes::zeros(values) as u64,
            sum_squares: values.iter().map(|&value| f64::from(value) * f64::from(value)).sum(),
        }
    }

    /// Share of zeros; 0 for an empty selection.
    pub fn sparsity(&self) -> f64 {
        if self.len == 0 { 0.0 } else { self.zeros as f64 / self.len as f64 }
    }

    /// Elements that are not zero.
    pub fn nonzeros(&self) -> u64 {
        self.len - self.zeros
    }

    /// Frobenius norm ‖θ‖₂.
    pub fn norm(&self) -> f64 {
        self.sum_squares.sqrt()
    }
}

/// The statistics of several tensors taken together.
impl<'a> std::iter::Sum<&'a TensorStats> for TensorStats {
    fn sum<I: Iterator<Item = &'a TensorStats>>(stats: I) -> Self {
        stats.fold(Self::default(), |a, b| Self {
            len: a.len + b.len,
            zeros: a.zeros + b.zeros,
            sum_squares: a.sum_squares + b.sum_squares,
        })
    }
}

/// Which tensors a figure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// s(θ), the figure the target is about: the weight tensors of convolutions and linear layers, the classifier
    /// included. Where some of them have a penalty (and others were exempted from it), those with one.
    #[default]
    Controlled,
    /// Every parameter, biases and normalisations too: the figure for the size of a file.
    All,
}

/// The sparsity of a network, looked at from all sides.
#[derive(Debug, Clone)]
pub struct Sparsity<'a> {
    groups: &'a Groups,
    stats: &'a [TensorStats],
}

impl<'a> Sparsity<'a> {
    /// An account of `stats`, one entry per parameter of `groups`.
    ///
    /// # Panics
    /// If the two do not belong together.
    pub fn new(groups: &'a Groups, stats: &'a [TensorStats]) -> Self {
        assert_eq!(groups.params().len(), stats.len(), "one entry per parameter");
        Self { groups, stats }
    }

    /// All tensors in a scope, taken together.
    pub fn total(&self, scope: Scope) -> TensorStats {
        if scope == Scope::All {
            return self.stats.iter().sum();
        }
        match self.groups.controlled() {
            none if none.is_empty() => self.select(|tensor| self.groups.params()[tensor].role.is_weight()),
            controlled => controlled.iter().map(|&tensor| &self.stats[tensor]).sum(),
        }
    }

    /// The tensors of one group that are weights.
    pub fn group(&self, group: usize) -> TensorStats {
        self.select(|tensor| self.groups.group_of(tensor) == group && self.groups.params()[tensor].role.is_weight())
    }

    /// Each parameter's name with its statistics.
    pub fn tensors(&self) -> impl Iterator<Item = (&'a str, &'a TensorStats)> {
        self.groups.params().iter().map(|param| param.name.as_str()).zip(self.stats)
    }

    /// Names of the weight tensors whose weights are all zero: nothing passes through them any more.
    pub fn all_zero(&self) -> Vec<&'a str> {
        let is_all_zero =
            |tensor: &usize| self.groups.params()[*tensor].role.is_weight() && self.stats[*tensor].nonzeros() == 0;
        (0..self.stats.len()).filter(is_all_zero).map(|tensor| self.groups.params()[tensor].name.as_str()).collect()
    }

    fn select(&self, keep: impl Fn(usize) -> bool) -> TensorStats {
        self.stats.iter().enumerate().filter(|(tensor, _)| keep(*tensor)).map(|(_, stats)| stats).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GroupRule;
    use crate::param::{Param, Role};

    #[test]
    fn scopes_and_groups_count_what_their_names_say() {
        let params = vec![
            Param::new("a.weight", [10, 10], Role::LinearWeight),
            Param::new("a.bias", [10], Role::Bias),
            Param::new("head.weight", [5, 10], Role::Classifier),
        ];
        let groups = Groups::resolve(params, vec![GroupRule::for_roles([Role::Classifier])]).unwrap();
        let of = |len, zeros| TensorStats { len, zeros, sum_squares: 4.0 };
        let stats = [of(100, 90), of(10, 10), of(50, 50)];
        let account = Sparsity::new(&groups, &stats);
        assert_eq!(account.total(Scope::Controlled).sparsity(), 140.0 / 150.0);
        assert_eq!(account.total(Scope::All).sparsity(), 150.0 / 160.0);
        assert_eq!(account.group(0).sparsity(), 1.0);
        assert_eq!(account.group(1), of(100, 90), "the bias of the default group is no weight");
        assert_eq!(account.all_zero(), ["head.weight"], "a bias of zeros is no layer");
        assert_eq!(account.total(Scope::Controlled).norm(), 8f64.sqrt());
    }

    #[test]
    fn weights_without_a_penalty_count_only_where_no_weight_has_one() {
        let params = || {
            let names = [("a.weight", Role::LinearWeight), ("head.weight", Role::Classifier)];
            names.map(|(name, role)| Param::new(name, [10, 10], role)).to_vec()
        };
        let stats = [TensorStats::of(&[0.0; 100]), TensorStats::of(&[2.0; 100])];
        let sparsity = |rules| {
            let groups = Groups::resolve(params(), rules).unwrap();
            Sparsity::new(&groups, &stats).total(Scope::Controlled).sparsity()
        };
        assert_eq!(sparsity(vec![]), 0.5);
        assert_eq!(sparsity(vec![GroupRule::dense()]), 0.5, "pruning and dense training have no penalty");
        let exempt = GroupRule { roles: vec![Role::Classifier], ..GroupRule::dense() };
        assert_eq!(sparsity(vec![exempt]), 1.0);
        assert_eq!((stats[1].nonzeros(), stats[1].norm()), (100, 20.0));
    }
}
