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
//! | CAM++ | the head and the first layer | dense layers, whose masks are of means over all frames, and the rest |
//!
//! Every output is the same sum in the same order as in `Network::forward` of all frames at once, so it has the same
//! bits, in however many pieces the frames come. Layers that `Network::forward` computes by Winograd's method are the
//! exception: they are plain sums here, and the same up to rounding. His tiles are of four frames, of which the first
//! is rounded otherwise before the last one is there; to wait for whole tiles in every layer would make a ResNet34 wait
//! four times as long for what is settled.

mod campplus;
mod ecapa;
mod grid;
mod history;
mod maps;
mod resnet;
mod tape;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bregman_base::{Buffer, Disjoint};
use pulp::Arch;

use super::{Conv, Execution, Network, Workspace};
use crate::kernels::{Offsets, Place, STRIP};
use campplus::CampPlusFront;
use ecapa::EcapaFront;
pub(crate) use history::History;
use resnet::ResNetFront;

/// Columns beyond the last that kernels may write: they write whole vectors.
const SLACK: usize = Buffer::LINE;

/// Frames that a front takes at a time.
const ROUND: usize = 64;
const _: () = assert!(ROUND <= STRIP, "a round is one block of a signal");

const FOREIGN: &str = "a front and a workspace belong to their network";

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
    CampPlus(Box<CampPlusFront>),
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
            Network::CampPlus(network) => {
                let (front, context) = (CampPlusFront::new(network), CampPlusFront::context(network));
                let history = History::new(network.first.weights.rows(), keep(2, context));
                Self { front: Front::CampPlus(Box::new(front)), history, step: 2, context, features }
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
                (Front::CampPlus(front), Network::CampPlus(network)) => {
                    front.advance(network, run, frames, &mut self.history)
                }
                _ => unreachable!("{FOREIGN}"),
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
            (Front::CampPlus(front), Network::CampPlus(network)) => {
                Marks::CampPlus(front.finish(network, run, &mut self.history))
            }
            _ => unreachable!("{FOREIGN}"),
        };
        let result = embed(self, run);
        match (&mut self.front, marks) {
            (Front::Ecapa(front), Marks::Ecapa(marks)) => front.rewind(marks),
            (Front::ResNet(front), Marks::ResNet(marks)) => front.rewind(marks),
            (Front::CampPlus(front), Marks::CampPlus(marks)) => front.rewind(marks),
            _ => unreachable!("{FOREIGN}"),
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
            (Network::CampPlus(network), Workspace::CampPlus(work)) => {
                campplus::embed(network, run, work, &self.history, columns, embedding)
            }
            _ => unreachable!("{FOREIGN}"),
        }
    }

    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> usize {
        let front = match &self.front {
            Front::Ecapa(front) => front.bytes(),
            Front::ResNet(front) => front.bytes(),
            Front::CampPlus(front) => front.bytes(),
        };
        front + self.history.bytes()
    }
}

/// How far a front had come.
enum Marks {
    Ecapa(ecapa::Ends),
    ResNet(maps::Ends),
    CampPlus(campplus::Ends),
}

/// Frames of a convolution in blocks; `place` says where a block that begins with a frame lies.
fn convolve(
    arch: Arch,
    (conv, offsets): (&Conv, &Offsets),
    codes: &mut Vec<u8>,
    x: &[f32],
    y: &mut [f32],
    frames: Range<usize>,
    place: impl Fn(usize) -> Place,
) {
    let y = Disjoint::new(y);
    codes.resize(codes.len().max(conv.weights.codes(offsets)), 0);
    for from in frames.clone().step_by(STRIP) {
        let place = Place { width: STRIP.min(frames.end - from), ..place(from) };
        conv.weights.encode_block(arch, offsets, x, place.x, codes);
        // SAFETY: nothing else has y.
        unsafe { conv.weights.apply(arch, offsets, x, codes, place, &conv.epilogue(None), y) };
    }
}
