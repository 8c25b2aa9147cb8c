//! Networks: forward and backward of what `bregman-network` describes.

pub(crate) mod campplus;
pub(crate) mod ecapa;
pub(crate) mod mlp;
pub(crate) mod resnet;

use std::ops::RangeInclusive;

use bregman_network::{Architecture, Graph, NetworkConfig};
use bregman_tensor::{Backend, Shape, Tensor, View};

use crate::{Builder, CampPlus, Context, Ecapa, ResNet, Result};

/// The network of a description, freshly initialised.
pub(crate) fn build<B: Backend>(builder: &mut Builder<B>, architecture: &Architecture) -> Result<Box<dyn Network<B>>> {
    let features = architecture.features;
    Ok(match &architecture.network {
        NetworkConfig::Ecapa(config) => Box::new(Ecapa::new(builder, *architecture, config.describe(features))?),
        NetworkConfig::SpeechBrainEcapa(config) => {
            Box::new(Ecapa::new(builder, *architecture, config.describe(features))?)
        }
        NetworkConfig::ResNet(config) => Box::new(ResNet::new(builder, config, features)?),
        NetworkConfig::CampPlus(config) => Box::new(CampPlus::new(builder, config, features)?),
    })
}

/// From a batch of features to one vector per item.
pub trait Network<B: Backend>: Send {
    /// Feature values per frame.
    fn features(&self) -> usize;
    /// Values of the output vector.
    fn outputs(&self) -> usize;
    /// How `batch` items of `frames` × features are laid out as an activation.
    fn input_shape(&self, batch: usize, frames: usize) -> Shape;
    /// How many frames an item may have.
    fn frames(&self) -> RangeInclusive<usize> {
        1..=usize::MAX
    }
    /// What it computes, for an ONNX export; none where it does not say.
    fn graph(&self) -> Option<Graph> {
        None
    }
    /// Keeps what the backward pass needs, and the output.
    fn forward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>) -> Result<()>;
    /// `[outputs, batch]` of the last forward pass.
    fn output(&self) -> View<'_, B>;
    /// Gradients of all parameters from that of the output, for the last forward pass, which was a training one.
    fn backward(&mut self, ctx: &mut Context<B>, x: &Tensor<B>, doutput: View<B>) -> Result<()>;
}
