//! CAM++: the head and the first layer, which takes every other frame.

use std::ops::Range;

use super::super::Execution;
use super::super::campplus::{CampPlus, CampPlusWorkspace, Head, MARGIN, tap};
use super::maps::{self, MapFront, MapLayers};
use super::{History, ROUND, convolve};
use crate::kernels::{Offsets, Place};

/// Columns of pairs that may wait for the first layer: those of a round, of the frames that the head computes last,
/// and of zeros around a recording.
const WAITING: usize = ROUND / 2 + 16;

pub(super) struct CampPlusFront {
    head: MapFront,
    /// The head's output, of each row even and odd frames: column i has frames 2i − 2 and 2i − 1, column 0 zeros.
    pairs: History,
    /// Of the first layer.
    offsets: Offsets,
}

/// How far a front had come.
pub(super) struct Ends {
    head: maps::Ends,
    pairs: usize,
}

fn head(network: &CampPlus) -> MapLayers<'_> {
    let Head { stages, stem, blocks, last } = &network.head;
    MapLayers { stages, stem, blocks, last: Some(last), halves_frames: false }
}

impl CampPlusFront {
    /// The last frame on which the first column depends.
    pub(super) fn context(network: &CampPlus) -> usize {
        // the first layer reads two frames after its own, and waits for the other one of their pair
        head(network).context(3)
    }

    pub(super) fn new(network: &CampPlus) -> Self {
        let rows = network.head.rows();
        let mut front = Self {
            head: MapFront::new(&head(network)),
            pairs: History::new(2 * rows, WAITING),
            offsets: Offsets::default(),
        };
        front.pairs.push(std::iter::repeat_n(0.0, 2 * rows));
        let (_, pitch) = front.pairs.place(0);
        network.first.weights.resolve(|column| tap(column, pitch), &mut front.offsets);
        front
    }

    /// Takes at most [`ROUND`] frames.
    pub(super) fn advance(&mut self, network: &CampPlus, run: &mut Execution, frames: &[f32], history: &mut History) {
        self.head.push(frames);
        self.work(network, run, history, false);
        self.head.forget();
    }

    /// Computes the last frames as if the recording ended here, and says how far it had come.
    pub(super) fn finish(&mut self, network: &CampPlus, run: &mut Execution, history: &mut History) -> Ends {
        let ends = Ends { head: self.head.ends(), pairs: self.pairs.end };
        self.work(network, run, history, true);
        ends
    }

    pub(super) fn rewind(&mut self, ends: Ends) {
        self.head.rewind(ends.head);
        self.pairs.end = ends.pairs;
    }

    /// Every signal as far as it can be computed, or to the end of a recording that is over.
    fn work(&mut self, network: &CampPlus, run: &mut Execution, history: &mut History, over: bool) {
        let Self { head: maps, pairs, offsets } = self;
        maps.work(&head(network), run, over);
        let frames = maps.end();
        for even in (2 * (pairs.end - 1)..frames).step_by(2) {
            if even + 1 < frames {
                pairs.push(maps.frame(even).zip(maps.frame(even + 1)).flat_map(|(even, odd)| [even, odd]));
            } else if over {
                pairs.push(maps.frame(even).flat_map(|even| [even, 0.0]));
            }
        }
        if over {
            pairs.push(std::iter::repeat_n(0.0, pairs.rows()));
        }
        // a column reads the pairs before, at and after its own
        let to = pairs.end.saturating_sub(2).max(history.end);
        history.reserve(to - history.end);
        let (start, (x, _), (y, pitch)) = (history.end, pairs.place(history.end), history.place(history.end));
        let place = |column| Place { x: x + column - start, y: y + column - start, pitch, width: 0 };
        let values = history.values_mut();
        run.timed(network.first.layer, |run| {
            convolve(run.arch, (&network.first, offsets), &mut Vec::new(), pairs.values(), values, start..to, place);
        });
        history.end = to;
    }

    pub(super) fn bytes(&self) -> usize {
        self.head.bytes() + self.pairs.bytes() + self.offsets.bytes()
    }
}

/// All behind the first layer, over a window.
pub(super) fn embed(
    network: &CampPlus,
    run: &mut Execution,
    work: &mut CampPlusWorkspace,
    history: &History,
    window: Range<usize>,
    embedding: &mut [f32],
) {
    work.reserve(network, window.len());
    let pitch = work.signal.pitch;
    for (row, to) in work.signals[0].chunks_exact_mut(pitch).enumerate().take(network.first.weights.rows()) {
        to[MARGIN..MARGIN + window.len()].copy_from_slice(&history.row(row, window.start)[..window.len()]);
    }
    network.after_the_first_layer(run, work, embedding);
}
