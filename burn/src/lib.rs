//! Bregman optimizers for [Burn](https://burn.dev): train any module to the sparsity you ask for.
//!
//! [`Bregman`] is an [`Optimizer`](burn::optim::Optimizer) like Burn's own. It steers one λ over all weights of the
//! module, by the crate `bregman`, and after every step tells how sparse the module is ([`Bregman::report`]).
//!
//! ```no_run
//! # use burn::backend::{Autodiff, NdArray};
//! # type B = Autodiff<NdArray>;
//! use bregman_burn::{Bregman, BregmanConfig, sparse_init, sparsity};
//! use burn::nn::{Linear, LinearConfig};
//! use burn::optim::{GradientsParams, Optimizer};
//!
//! # let device = Default::default();
//! # let batch = || burn::tensor::Tensor::<B, 2>::zeros([32, 64], &device);
//! let model: Linear<B> = LinearConfig::new(64, 10).init(&device);
//! let mut model = sparse_init(model, 0.99, 0);                       // weights switch on when the data asks for them
//! let mut optimizer: Bregman<Linear<B>, B> = BregmanConfig::adabreg(0.95).init();
//! for _ in 0..300 {
//!     let loss = model.forward(batch()).square().mean();
//!     let gradients = GradientsParams::from_grads(loss.backward(), &model);
//!     model = optimizer.step(0.01, model, gradients);               // weights and λ move together
//! }
//! assert!((sparsity(&model) - 0.95).abs() < 0.01);
//! ```
//!
//! Parameters of two dimensions or more are weights; biases, norms and embeddings are trained without a penalty. The
//! arithmetic is on the CPU, in single precision: weights and gradients of other devices are copied there and back.

mod config;
mod module;
mod optimizer;

pub use config::BregmanConfig;
pub use module::{sparse_init, sparsity};
pub use optimizer::{Bregman, BregmanRecord};
