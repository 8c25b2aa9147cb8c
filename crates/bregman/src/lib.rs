//! Train neural networks to an exact sparsity.
//!
//! Bregman optimizers train a network sparse from the start: every weight has a *dual* that collects what the gradients
//! say of it, and the weight itself is the dual pushed through a threshold λ, so it switches on only when the data asks
//! for it. What nobody knows beforehand is which λ gives which sparsity. This crate steers λ during training until the
//! network sits at the sparsity you asked for: the method of "Adaptive Regularization for Sparsity Control in
//! Bregman-Based Optimizers", with every baseline beside it.
//!
//! It works on plain slices and knows no tensor library. Two lines put it into a training loop, the one that builds the
//! optimizer and the one that steps it. A logistic regression with 1000 features, of which 40 matter, asked for 95 %
//! zeros:
//!
//! ```
//! use bregman::{AdaptiveOptimizer, ControllerConfig, Density, Groups, Law, LinBreg, Param, Role, Rule};
//!
//! # const SAMPLES: usize = 1000;
//! # const FEATURES: usize = 1000;
//! # let mut rng = bregman_base::Rng::new(1);
//! # let mut sample = || (0..FEATURES).map(|_| rng.symmetric(1.0)).collect::<Vec<f32>>();
//! # let x: Vec<Vec<f32>> = (0..SAMPLES).map(|_| sample()).collect();
//! # let y: Vec<f32> = x.iter().map(|x| f32::from(x[..40].iter().sum::<f32>() > 0.0)).collect();
//! # let gradient = |w: &[f32]| {
//! #     let (mut g, mut right) = (vec![0.0; w.len()], 0);
//! #     for (x, &y) in x.iter().zip(&y) {
//! #         let score: f32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
//! #         let residual = (1.0 / (1.0 + (-score).exp()) - y) / SAMPLES as f32;
//! #         g.iter_mut().zip(x).for_each(|(g, x)| *g += residual * x);
//! #         right += usize::from((score > 0.0) == (y > 0.5));
//! #     }
//! #     (g, right as f32 / SAMPLES as f32)
//! # };
//! let groups = Groups::resolve(vec![Param::new("w", [1, 1000], Role::LinearWeight)], vec![])?;
//! let mut weights = vec![vec![0.0f32; 1000]];
//! let config = ControllerConfig { law: Law::Density(Density::default()), period: 1, ..ControllerConfig::new(0.95) };
//! let mut optimizer = AdaptiveOptimizer::new(Rule::LinBreg(LinBreg::default()), groups, config, &weights)?;
//! # let (mut accuracy, mut sparsity) = (0.0, 0.0);
//! for _ in 0..150 {
//!     let (g, right) = gradient(&weights[0]);                   // your engine's business
//!     let report = optimizer.step(&mut weights, &[g], 2.0)?;    // λ moves with it
//! #   (accuracy, sparsity) = (right, report.sparsity);
//! }
//! assert!((sparsity - 0.95f64).abs() < 0.01);
//! assert!(accuracy > 0.9);
//! # Ok::<(), bregman::Error>(())
//! ```
//!
//! (`cargo run --release -p bregman --example logistic` is the same in full.)
//!
//! # The book
//!
//! 1. [One step](book::step): duals, thresholds, penalties, optimizers.
//! 2. [Closing the loop](book::control): the λ controllers and how to choose.
//! 3. [Stability](book::stability): which gains oscillate, which error remains; measured.
//! 4. [Layers](book::layers): groups, budgets, accounting, pruning.
//! 5. [Your own engine](book::engine): slices in, slices out, saving, resuming.
//!
//! # Notation
//!
//! θ weights, p duals, g gradients, λ threshold, τ learning rate, δ elastic-net factor, R penalty, s(θ) share of zeros
//! among the controlled tensors, s* target, ε = s* − s, a non-zero weights, f update period, α and κ gains.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod adaptive;
pub mod book;
mod budget;
pub mod controller;
mod error;
mod freeze;
mod groups;
mod init;
pub mod optimizer;
mod param;
mod pattern;
mod penalty;
mod schedule;
pub mod select;
mod sparsity;
pub mod topology;

pub use adaptive::{AdaptiveOptimizer, StepReport};
pub use budget::{Budget, LayerLimit, Sharing};
pub use controller::{Controller, ControllerConfig, Damping, Density, Law, Multiplicative, Quantile};
pub use error::{Error, Result};
pub use freeze::Freeze;
pub use groups::{GroupRule, Groups, INITIAL_SPARSITY};
pub use init::{InitialMask, MaskUnit, Survivors, sparse_init};
pub use optimizer::rule::*;
pub use optimizer::{Duals, HostArrays, Optimizer, OptimizerState};
pub use param::{Param, Role};
pub use penalty::{Penalty, Shrinkage};
pub use schedule::{Ramp, RampShape};
pub use sparsity::{Scope, Sparsity, TensorStats};
pub use topology::{Pruning, Structure, Topology};
