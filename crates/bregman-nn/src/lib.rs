//! Networks with explicit forward and backward passes: ECAPA-TDNN, ResNet34 and a perceptron, their losses and their
//! checkpoints.
//!
//! Everything is written once, generic over a [`bregman_tensor::Backend`]. Parameters carry the names of WeSpeaker's
//! `state_dict`.
#![forbid(unsafe_code)]

mod checkpoint;
mod context;
mod conv;
mod ecapa;
mod error;
mod head;
mod mlp;
mod model;
mod network;
mod norm;
mod onnx;
mod params;
mod pool;
mod recognise;
mod resnet;
mod rng;
mod state;
mod tdnn;

pub use checkpoint::{Array, Checkpoint, Values};
pub use context::Context;
pub use conv::{ConvLayer, InputGradient};
pub use ecapa::{Ecapa, EcapaConfig};
pub use error::{Error, Result};
pub use head::{CrossEntropy, MarginClassifier, Outcome};
pub use mlp::Mlp;
pub use model::{Architecture, Input, Model};
pub use network::Network;
pub use norm::NormLayer;
pub use params::{Builder, NormState, Parameter, Params, Role};
pub use pool::{AttentiveStatistics, TemporalStatistics};
pub use resnet::{ResNet, ResNetConfig};
pub use rng::Rng;
pub use tdnn::{ConvReluNorm, Res2, SeRes2Block, SqueezeExcite};
