//! What a network is: its layers with their names, shapes and norms, and what reads what. No arithmetic.
//!
//! Everything that must agree on a network derives it from here: training builds its parameters from the layers, the
//! runtime finds stored layers by their names, the ONNX export walks the [`Graph`], a checkpoint is recognised by the
//! shapes of its tensors, and the `[model]` table of a recipe is a [`NetworkConfig`].
//!
//! A network is one file: its settings, their check, its layers, its graph, and how to read the settings off a
//! checkpoint. Add it to [`NetworkConfig`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod architecture;
mod campplus;
mod ecapa;
mod graph;
mod layer;
mod resnet;
mod size;
mod speechbrain;

pub use architecture::{Architecture, NetworkConfig, TensorShapes, UnknownNetwork};
pub use campplus::{CampPlusConfig, CampPlusHead, CampPlusLayers, DenseBlockLayers, DenseLayer};
pub use ecapa::{AttentionLayers, EcapaConfig, EcapaLayers, SeRes2Layers};
pub use graph::{Deviation, Extent, Graph, Node, Operation, Value};
pub use layer::{LayerKind, LayerSpec, NormSpec, Padding, Pointwise};
pub use resnet::{BasicBlockLayers, ResNetConfig, ResNetLayers, ResNetStage};
pub use size::SizeError;
pub use speechbrain::SpeechBrainEcapaConfig;
