//! The method.
#![forbid(unsafe_code)]

mod error;
mod groups;
mod lanes;
pub mod optimizer;
mod param;
mod penalty;
mod rng;
pub mod select;
mod sparsity;

pub use error::{Error, Result};
pub use groups::{GroupRule, Groups, INITIAL_SPARSITY};
pub use optimizer::{AdaBreg, AdamW, Duals, LinBreg, Optimizer, OptimizerState, ProxSgd, Rule, Sgd, Variant};
pub use param::{Param, Role};
pub use penalty::{Penalty, Shrinkage};
pub use sparsity::{Scope, Sparsity, TensorStats};
