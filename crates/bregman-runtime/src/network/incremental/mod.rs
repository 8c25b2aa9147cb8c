//! Networks whose input is still arriving.
//!
//! A network is local up to its first operation over all frames: a column of the output depends on the frames near it,
//! its *context*, and is final once these were heard. This part, the *front*, is computed once per frame; each of its
//! convolutions keeps the last columns of its input. The rest is computed once per window, from the front's outputs:
//!
//! | network | front | per window |
//! | --- | --- | --- |
//! | ResNet | all convolutions | statistics, linear layer |
//! | ECAPA-TDNN | first layer, first block up to its gate, which is of the mean over all frames | the rest |
//! | CAM++ | none | all |
//!
//! Every output is the same sum in the same order as in `Network::forward` of all frames at once, so it has the same
//! bits, in however many pieces the frames come. Layers that `Network::forward` computes by Winograd's method are the
//! exception: they are plain sums here, and the same up to rounding. His tiles are of four frames, of which the first
//! is rounded otherwise before the last one is there; to wait for whole tiles in every layer would make a ResNet34 wait
//! four times as long for what is settled.

mod ecapa;
mod history;
mod resnet;
mod tape;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bregman_base::Buffer;

use super::{Execution, Network, Workspace};
use crate::kernels::STRIP;
use ecapa::EcapaFront;
pub(crate) use history::History;
use resnet::ResNetFront;

/// Columns beyond the last that kernels may write: they write whole vectors.
const SLACK: usize = Buffer::LINE;

/// Frames that a front takes at a time.
const ROUND: usize = 64;
const _: () = assert!(ROUND <= STRIP, "a round is one block of a signal");

/// The front of a network and what it has said about the last frames.
pub(crate) struct Incremental {
    front: Front,
    history: History,
    /// Frames for one column of the history.
    step: usize,
    /// Frames after a column's own that it depends on.
    context: usize,
    features: usize,
}

enum Front {
    Ecapa(Box<EcapaFront>),
    ResNet(Box<ResNetFront>),
    /// Nothing is local.
    None,
}

impl Incremental {
    /// For windows of at most `frames` frames.
    pub(crate) fn new(network: &Network, features: usize, frames: usize) -> Self {
        // columns that a window of any position touches, and those that one round adds
        let keep = |step: usize, context: usize| (frames + context + ROUND) / step + 2 + ROUND;
        match network {
            Network::Ecapa(network) => {
                let context = EcapaFront::context(network);
                let history = History::new(2 * network.channels, keep(1, context));
                let front = Front::Ecapa(Box::new(EcapaFront::new(network, &history)));
                Self { front, history, step: 1, context, features }
            }
            Network::ResNet(network) => {
                let (last, front) = (network.stages[3], ResNetFront::new(network));
                let context = ResNetFront::context(network);
                let history = History::new(last.channels * last.height, keep(last.step, context));
                Self { front: Front::ResNet(Box::new(front)), history, step: last.step, context, features }
            }
            Network::CampPlus(_) => {
                Self { front: Front::None, history: History::new(features, keep(1, 0)), step: 1, context: 0, features }
            }
        }
    }

    /// Frames that must be heard after a frame before what is said about it is final.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// Frames, from the beginning, about which everything is said.
    pub(crate) fn settled(&self) -> usize {
        self.history.end() * self.step
    }

    /// Takes any number of frames.
    pub(crate) fn advance(&mut self, network: &Network, run: &mut Execution, frames: &[f32]) {
        for frames in frames.chunks(ROUND * self.features) {
            match (&mut self.front, network) {
                (Front::Ecapa(front), Network::Ecapa(network)) => {
                    front.advance(network, run, frames, &mut self.history)
                }
                (Front::ResNet(front), Network::ResNet(network)) => {
                    front.advance(network, run, frames, &mut self.history)
                }
                _ => frames.chunks_exact(self.features).for_each(|frame| self.history.push(frame.iter().copied())),
            }
        }
    }

    /// Calls `embed` with what a recording that ended with the last frame would have left; more frames may follow.
    pub(crate) fn at_the_end<T>(
        &mut self,
        network: &Network,
        run: &mut Execution,
        embed: impl FnOnce(&Self, &mut Execution) -> T,
    ) -> T {
        let end = self.history.end;
        // a front writes the columns that lack context behind the final ones, where the next ones will be written
        let marks = match (&mut self.front, network) {
            (Front::Ecapa(front), Network::Ecapa(network)) => {
                Marks::Ecapa(front.finish(network, run, &mut self.history))
            }
            (Front::ResNet(front), Network::ResNet(network)) => {
                Marks::ResNet(front.finish(network, run, &mut self.history))
            }
            _ => Marks::None,
        };
        let result = embed(self, run);
        match (&mut self.front, marks) {
            (Front::Ecapa(front), Marks::Ecapa(marks)) => front.rewind(marks),
            (Front::ResNet(front), Marks::ResNet(marks)) => front.rewind(marks),
            _ => {}
        }
        self.history.end = end;
        result
    }

    /// The embedding of the window of those frames, which must be among the last.
    pub(crate) fn embed(
        &self,
        network: &Network,
        run: &mut Execution,
        workspace: &mut Workspace,
        frames: Range<usize>,
        embedding: &mut [f32],
    ) {
        let columns = frames.start / self.step..frames.end.div_ceil(self.step);
        assert!(columns.start >= self.history.start() && columns.end <= self.history.end, "{frames:?} are not kept");
        match (network, workspace) {
            (Network::Ecapa(network), Workspace::Ecapa(work)) => {
                ecapa::embed(network, run, work, &self.history, columns, embedding)
            }
            (Network::ResNet(network), Workspace::ResNet(work)) => {
                resnet::embed(network, run, work, &self.history, columns, embedding)
            }
            (network, workspace) => {
                let mut features = vec![0.0; columns.len() * self.features];
                for bin in 0..self.features {
                    let row = self.history.row(bin, columns.start);
                    features[bin..].iter_mut().step_by(self.features).zip(row).for_each(|(to, &from)| *to = from);
                }
                network.forward(run, workspace, &features, embedding);
            }
        }
    }

    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> usize {
        let front = match &self.front {
            Front::Ecapa(front) => front.bytes(),
            Front::ResNet(front) => front.bytes(),
            Front::None => 0,
        };
        front + self.history.bytes()
    }
}

/// How far a front had come.
enum Marks {
    Ecapa(ecapa::Ends),
    ResNet(resnet::Ends),
    None,
}
