//! The method.
#![forbid(unsafe_code)]

mod adaptive;
pub mod book;
mod budget;
pub mod controller;
mod error;
mod groups;
mod init;
mod lanes;
pub mod optimizer;
mod param;
mod pattern;
mod penalty;
mod pruning;
mod rng;
mod schedule;
pub mod select;
mod sparsity;

pub use adaptive::{AdaptiveOptimizer, StepReport};
pub use budget::{Budget, LayerLimit, Sharing};
pub use controller::{Controller, ControllerConfig, Damping, Density, Law, Multiplicative, Quantile};
pub use error::{Error, Result};
pub use groups::{GroupRule, Groups, INITIAL_SPARSITY};
pub use init::{Survivors, sparse_init};
pub use optimizer::{AdaBreg, AdamW, Duals, LinBreg, Optimizer, OptimizerState, ProxSgd, Rule, Sgd, Variant};
pub use param::{Param, Role};
pub use penalty::{Penalty, Shrinkage};
pub use pruning::{GradualPruning, Pruning, Structure};
pub use schedule::{Ramp, Shape};
pub use sparsity::{Scope, Sparsity, TensorStats};
