//! The block that ResNets are made of.

use bregman_network::BasicBlockLayers;

use super::{Conv, Layers};
use crate::Result;

/// `y = relu(conv₂(relu(conv₁(x))) + shortcut(x))`
pub(super) struct BasicBlock {
    pub(super) stage: usize,
    /// Whether the stage begins here, with a stride of two.
    pub(super) strided: bool,
    pub(super) first: Conv,
    pub(super) second: Conv,
    /// Where there is none, x itself is added.
    pub(super) shortcut: Option<Conv>,
}

impl BasicBlock {
    pub(super) fn new(layers: &mut Layers, specs: &BasicBlockLayers, stage: usize) -> Result<Self> {
        Ok(Self {
            stage,
            strided: specs.stride != [1, 1],
            first: layers.conv(&specs.first)?,
            second: layers.conv(&specs.second)?,
            shortcut: specs.shortcut.as_ref().map(|shortcut| layers.conv(shortcut)).transpose()?,
        })
    }
}
