//! Networks with explicit forward and backward passes: ECAPA-TDNN, ResNet34, CAM++ and a perceptron, their losses and
//! their checkpoints.
//!
//! Everything is written once, generic over a [`bregman_tensor::Backend`]. What the networks are made of, and what
//! their parameters are called, `bregman-network` describes.
//!
//! A network of one's own is a type that implements [`Network`], of these layers or of others that call the backend;
//! [`TrainableModel::with_network`] trains it. `examples/own-network` does both.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod files;
mod heads;
mod layers;
mod model;
mod networks;

pub use bregman_base::Rng;
pub use bregman_network::{
    Architecture, CampPlusConfig, EcapaConfig, NetworkConfig, ResNetConfig, SpeechBrainEcapaConfig,
};
pub use error::{Error, Result};
pub use files::checkpoint::{Array, Checkpoint, Values};
pub use heads::cross_entropy::CrossEntropy;
pub use heads::distillation::Distillation;
pub use heads::margin::MarginClassifier;
pub use heads::taught::TaughtClassifier;
pub use heads::{BatchOutcome, Head, Labels, LateOutcome};
pub use layers::attentive::AttentiveStatistics;
pub use layers::basic_block::BasicBlock;
pub use layers::context_mask::ContextMask;
pub use layers::conv::{ConvLayer, InputGradient};
pub use layers::conv_norm::ConvNorm;
pub use layers::dense_block::DenseBlock;
pub use layers::norm::NormLayer;
pub use layers::res2::Res2;
pub use layers::residual_stack::ResidualStack;
pub use layers::se_res2_block::SeRes2Block;
pub use layers::squeeze_excite::SqueezeExcite;
pub use layers::temporal::TemporalStatistics;
pub use model::context::{Context, Extent};
pub use model::params::{Builder, NormId, NormState, ParamId, Parameter, Params};
pub use model::{Input, NetworkAndHead, TrainableModel};
pub use networks::Network;
pub use networks::campplus::CampPlus;
pub use networks::ecapa::Ecapa;
pub use networks::mlp::Mlp;
pub use networks::resnet::ResNet;
