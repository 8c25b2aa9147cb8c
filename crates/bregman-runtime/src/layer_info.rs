//! What a model says about each of its layers.

use std::collections::HashMap;

use bregman_network::{Extent, Operation};
use serde::Serialize;

use crate::file::{Contents, Positions, StoredLayer, ValueFormat};
use crate::kernels::Runs;
use crate::network::Cost;

/// One layer: what is stored, and how it is executed.
#[derive(Clone, Debug, Serialize)]
pub struct LayerInfo {
    /// WeSpeaker's name.
    pub name: String,
    /// Shape of the weight.
    pub shape: Vec<usize>,
    /// Weights that are not zero.
    pub nonzero: usize,
    /// How their positions are stored.
    pub positions: Positions,
    /// How their values are stored.
    pub values: ValueFormat,
    /// Bytes in the file.
    pub bytes: usize,
    /// How it is executed.
    pub runs: Runs,
    /// Bytes of its weights in memory.
    pub memory: usize,
    /// Of its output: each weight is used once per position.
    #[serde(skip)]
    extent: Extent,
}

impl LayerInfo {
    /// Share of zeros among its weights.
    pub fn zeros(&self) -> f64 {
        1.0 - self.nonzero as f64 / self.weights() as f64
    }

    /// All its weights.
    pub fn weights(&self) -> usize {
        self.shape.iter().product()
    }

    /// Multiplications and additions that remain for an utterance of `frames` frames.
    pub fn multiply_adds(&self, frames: usize) -> u64 {
        self.nonzero as u64 * self.extent.positions(frames) as u64
    }
}

/// Every layer of a file, with what executing it takes.
pub(crate) fn describe(contents: &Contents, costs: &[Cost]) -> Vec<LayerInfo> {
    let graph = contents.architecture.graph();
    let mut extents = HashMap::new();
    for (node, extent) in graph.nodes().iter().zip(graph.extents()) {
        if let Operation::Layer(layer) = &node.operation {
            extents.insert(&*layer.name, extent);
        }
    }
    let describe = |(layer, cost): (&StoredLayer, &Cost)| LayerInfo {
        name: layer.spec.name.clone(),
        shape: layer.spec.shape(),
        nonzero: cost.live,
        positions: layer.positions,
        values: layer.values,
        bytes: layer.bytes(),
        runs: cost.runs,
        memory: cost.bytes,
        extent: extents[&*layer.spec.name],
    };
    contents.layers.iter().zip(costs).map(describe).collect()
}
