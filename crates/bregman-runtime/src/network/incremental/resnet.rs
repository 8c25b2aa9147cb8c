//! ResNet: all convolutions are local.

use std::ops::Range;

use bregman_network::Deviation;

use super::super::Execution;
use super::super::resnet::{ResNet, ResNetWorkspace};
use super::History;
use super::maps::{Ends, MapFront, MapLayers};
use crate::kernels::math::{self, Pieces};

pub(super) struct ResNetFront(MapFront);

fn layers(network: &ResNet) -> MapLayers<'_> {
    MapLayers { stages: &network.stages, stem: &network.stem, blocks: &network.blocks, last: None, halves_frames: true }
}

impl ResNetFront {
    /// The last frame on which the first column depends.
    pub(super) fn context(network: &ResNet) -> usize {
        layers(network).context(0)
    }

    pub(super) fn new(network: &ResNet) -> Self {
        Self(MapFront::new(&layers(network)))
    }

    /// Takes at most [`ROUND`](super::ROUND) frames.
    pub(super) fn advance(&mut self, network: &ResNet, run: &mut Execution, frames: &[f32], history: &mut History) {
        self.0.push(frames);
        self.work(network, run, history, false);
        self.0.forget();
    }

    /// Computes the last frames as if the recording ended here, and says how far it had come.
    pub(super) fn finish(&mut self, network: &ResNet, run: &mut Execution, history: &mut History) -> Ends {
        let ends = self.0.ends();
        self.work(network, run, history, true);
        ends
    }

    pub(super) fn rewind(&mut self, ends: Ends) {
        self.0.rewind(ends);
    }

    fn work(&mut self, network: &ResNet, run: &mut Execution, history: &mut History, over: bool) {
        self.0.work(&layers(network), run, over);
        (history.end..self.0.end()).for_each(|frame| history.push(self.0.frame(frame)));
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// Statistics of a window.
pub(super) fn embed(
    network: &ResNet,
    run: &mut Execution,
    work: &mut ResNetWorkspace,
    history: &History,
    window: Range<usize>,
    embedding: &mut [f32],
) {
    let (from, pitch) = history.place(window.start);
    let rows = network.stages[3].channels * network.stages[3].height;
    let statistics = &mut work.statistics;
    statistics.resize(2 * rows, 0.0);
    let (means, deviations) = statistics.split_at_mut(rows);
    let pieces = Pieces { count: 1, step: 0, pitch, length: window.len() };
    math::moments(run.arch, &history.values()[from..], pieces, 0, Deviation::Raised, means, deviations);
    network.linear.apply(run, statistics, embedding);
}
