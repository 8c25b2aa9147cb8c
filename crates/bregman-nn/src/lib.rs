//! Networks with explicit forward and backward passes: ECAPA-TDNN, ResNet34 and a perceptron, their losses and their
//! checkpoints.
//!
//! Everything is written once, generic over a [`bregman_tensor::Backend`]. Parameters carry the names of WeSpeaker's
//! `state_dict`.
#![forbid(unsafe_code)]

mod error;
mod files;
mod heads;
mod layers;
mod model;
mod networks;

pub use bregman_base::Rng;
pub use error::{Error, Result};
pub use files::checkpoint::{Array, Checkpoint, Values};
pub use heads::{CrossEntropy, MarginClassifier, Outcome};
pub use layers::conv::{ConvLayer, InputGradient};
pub use layers::norm::NormLayer;
pub use layers::pool::{AttentiveStatistics, TemporalStatistics};
pub use layers::tdnn::{ConvReluNorm, Res2, SeRes2Block, SqueezeExcite};
pub use model::context::Context;
pub use model::params::{Builder, NormState, Parameter, Params, Role};
pub use model::{Architecture, Input, Model};
pub use networks::Network;
pub use networks::ecapa::{Ecapa, EcapaConfig};
pub use networks::mlp::Mlp;
pub use networks::resnet::{ResNet, ResNetConfig};
