//! The head of CAM++: a small ResNet that halves the frequencies three times and keeps all frames.

use bregman_base::Buffer;
use bregman_network::CampPlusHead;

use super::super::maps::{self, Map};
use super::super::{Conv, Execution, Layers};
use super::plane::{RowPlane, convolve};
use crate::Result;
use crate::kernels::Offsets;
use crate::kernels::winograd::Scratch;

/// Where each column of a convolution lies.
pub(super) type Taps<'a> = &'a dyn Fn(usize) -> usize;

/// The two-dimensional head.
pub(super) struct Head {
    pub(super) channels: usize,
    stem: Conv,
    blocks: Vec<HeadBlock>,
    last: Conv,
}

/// `y = relu(conv₂(relu(conv₁(x))) + shortcut(x))`; with a shortcut, conv₁ halves the rows.
struct HeadBlock {
    stage: usize,
    first: Conv,
    second: Conv,
    shortcut: Option<Conv>,
}

impl Head {
    pub(super) fn new(layers: &mut Layers, specs: &CampPlusHead) -> Result<Self> {
        let mut blocks = Vec::new();
        for block in &specs.blocks {
            blocks.push(HeadBlock {
                stage: block.stage + 1,
                first: layers.conv(&block.first)?,
                second: layers.conv(&block.second)?,
                shortcut: block.shortcut.as_ref().map(|shortcut| layers.conv(shortcut)).transpose()?,
            });
        }
        let (stem, last) = (layers.conv(&specs.stem)?, layers.conv(&specs.last)?);
        Ok(Self { channels: specs.stem.outputs, stem, blocks, last })
    }

    /// Calls `resolve` with every convolution and the offset of each of its columns.
    pub(super) fn each_tap(&self, planes: &[RowPlane; 4], mut resolve: impl FnMut(&Conv, Taps)) {
        let square = |plane: RowPlane| move |column: usize| plane.tap(column / 9, column % 9 / 3, column % 3);
        resolve(&self.stem, &square(planes[0]));
        for block in &self.blocks {
            let input = planes[block.stage - usize::from(block.shortcut.is_some())];
            resolve(&block.first, &square(input));
            resolve(&block.second, &square(planes[block.stage]));
            if let Some(shortcut) = &block.shortcut {
                resolve(shortcut, &|channel| input.tap(channel, 1, 1));
            }
        }
        resolve(&self.last, &square(planes[2]));
    }

    /// From the plane of features to the first map of the last stage.
    pub(super) fn forward(
        &self,
        run: &mut Execution,
        planes: &[RowPlane; 4],
        offsets: &[Offsets],
        input: &Buffer,
        maps: &mut [[Map; 3]; 4],
        scratch: &mut Scratch,
    ) {
        let mut apply = |run: &mut Execution,
                         conv: &Conv,
                         planes: [RowPlane; 2],
                         x: &mut Map,
                         residual: Option<&mut Map>,
                         y: &mut Map| {
            let shapes @ [from, to] = planes.map(|plane| plane.shape(self.channels));
            if let Some(winograd) = conv.weights.winograd() {
                maps::convolve(run, conv, winograd, shapes, x, residual, y, scratch);
            } else {
                let (x, residual) = (x.rows(run, from), residual.map(|residual| residual.rows(run, to)));
                convolve(run, conv, &offsets[conv.layer], planes, x, residual, y.rows_to_write(to));
            }
        };
        let y = maps[0][0].rows_to_write(planes[0].shape(self.channels));
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
