//! The head of CAM++: a small ResNet that halves the frequencies three times and keeps all frames.

use bregman_base::Buffer;
use bregman_network::{CampPlusHead, ResNetStage};

use super::super::basic_block::BasicBlock;
use super::super::maps::{self, Map};
use super::super::{Conv, Execution, Layers};
use super::plane::{RowPlane, convolve};
use crate::Result;
use crate::kernels::Offsets;
use crate::kernels::winograd::Scratch;

/// The two-dimensional head. Blocks with a shortcut halve the rows.
pub(in crate::network) struct Head {
    pub(in crate::network) stages: [ResNetStage; 4],
    pub(in crate::network) stem: Conv,
    pub(in crate::network) blocks: Vec<BasicBlock>,
    pub(in crate::network) last: Conv,
}

/// The memory of one execution of the head.
#[derive(Default)]
pub(in crate::network) struct HeadWorkspace {
    pub(in crate::network) planes: [RowPlane; 4],
    /// Of every convolution, by its number in the file.
    offsets: Vec<Offsets>,
    input: Buffer,
    /// Three activations of each stage: they take turns as input, middle and output.
    maps: [[Map; 3]; 4],
    scratch: Scratch,
}

impl HeadWorkspace {
    /// Prepares for utterances of `frames` frames.
    pub(super) fn reserve(&mut self, head: &Head, frames: usize) {
        self.planes = head.stages.map(|stage| RowPlane::new(stage.height, frames));
        self.input.grow(self.planes[0].buffer(1));
        self.input.fill(0.0); // the zeros around rows lie elsewhere now
        self.maps.iter_mut().flatten().for_each(Map::forget);
        self.resolve(head);
    }

    /// Where the taps of all convolutions lie.
    fn resolve(&mut self, head: &Head) {
        let (planes, offsets) = (self.planes, &mut self.offsets);
        let mut resolve = |conv: &Conv, offset: &dyn Fn(usize) -> usize| {
            offsets.resize_with(offsets.len().max(conv.layer + 1), Offsets::default);
            if conv.weights.winograd().is_none() {
                conv.weights.resolve(offset, &mut offsets[conv.layer]);
            }
        };
        let square = |plane: RowPlane| move |column: usize| plane.tap(column / 9, column % 9 / 3, column % 3);
        resolve(&head.stem, &square(planes[0]));
        for block in &head.blocks {
            let input = planes[block.stage - usize::from(block.strided)];
            resolve(&block.first, &square(input));
            resolve(&block.second, &square(planes[block.stage]));
            if let Some(shortcut) = &block.shortcut {
                resolve(shortcut, &|channel| input.tap(channel, 1, 1));
            }
        }
        resolve(&head.last, &square(planes[2]));
    }

    /// The head's output, in rows.
    pub(super) fn output(&mut self, run: &Execution, head: &Head) -> &[f32] {
        self.maps[3][0].rows(run, self.planes[3].shape(head.stages[3].channels))
    }

    pub(super) fn bytes(&self) -> usize {
        let offsets: usize = self.offsets.iter().map(Offsets::bytes).sum();
        let maps: usize = self.maps.iter().flatten().map(Map::bytes).sum();
        offsets + maps + self.input.bytes() + self.scratch.bytes()
    }
}

impl Head {
    pub(super) fn new(layers: &mut Layers, specs: &CampPlusHead, features: usize) -> Result<Self> {
        let channels = specs.stem.outputs;
        Ok(Self {
            stages: [0, 1, 2, 3].map(|stage| ResNetStage { channels, height: features >> stage, step: 1 }),
            // the stem has a stage of its own
            blocks: (specs.blocks.iter().map(|block| BasicBlock::new(layers, block, block.stage + 1)))
                .collect::<Result<_>>()?,
            stem: layers.conv(&specs.stem)?,
            last: layers.conv(&specs.last)?,
        })
    }

    /// Rows of its output, over all channels.
    pub(in crate::network) fn rows(&self) -> usize {
        self.stages[3].channels * self.stages[3].height
    }

    /// From features to [the output](HeadWorkspace::output).
    pub(super) fn forward(&self, run: &mut Execution, work: &mut HeadWorkspace, features: &[f32]) {
        let HeadWorkspace { planes, offsets, input, maps, scratch } = work;
        planes[0].transpose(features, planes[0].height(), input);
        let mut apply = |run: &mut Execution,
                         conv: &Conv,
                         planes: [RowPlane; 2],
                         x: &mut Map,
                         residual: Option<&mut Map>,
                         y: &mut Map| {
            let shapes @ [from, to] = planes.map(|plane| plane.shape(self.stages[0].channels));
            if let Some(winograd) = conv.weights.winograd() {
                maps::convolve(run, conv, winograd, shapes, x, residual, y, scratch);
            } else {
                let (x, residual) = (x.rows(run, from), residual.map(|residual| residual.rows(run, to)));
                convolve(run, conv, &offsets[conv.layer], planes, x, residual, y.rows_to_write(to));
            }
        };
        let y = maps[0][0].rows_to_write(planes[0].shape(self.stages[0].channels));
        convolve(run, &self.stem, &offsets[self.stem.layer], [planes[0]; 2], input, None, y);
        let mut current = 0; // which of the three maps holds the block's input
        for block in &self.blocks {
            let plane = planes[block.stage];
            let (before, here) = maps.split_at_mut(block.stage);
            let [even, middle, odd] = &mut here[0];
            if let Some(shortcut) = &block.shortcut {
                let (x, halving) = (&mut before[block.stage - 1][current], [planes[block.stage - 1], plane]);
                apply(run, &block.first, halving, x, None, middle);
                apply(run, shortcut, halving, x, None, even);
                apply(run, &block.second, [plane; 2], middle, Some(even), odd);
                current = 2;
            } else {
                let (x, y) = if current == 0 { (even, odd) } else { (odd, even) };
                apply(run, &block.first, [plane; 2], x, None, middle);
                apply(run, &block.second, [plane; 2], middle, Some(x), y);
                current = 2 - current;
            }
        }
        let (before, last) = maps.split_at_mut(3);
        apply(run, &self.last, [planes[2], planes[3]], &mut before[2][current], None, &mut last[0][0]);
    }
}
