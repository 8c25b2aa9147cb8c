//! No sparsity.

use bregman::{Rule, Sgd};
use serde::{Deserialize, Serialize};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenseConfig {
    /// The optimizer.
    #[serde(default = "sgd")]
    pub optimizer: Rule,
}

pub(super) fn sgd() -> Rule {
    Rule::Sgd(Sgd::default())
}
