//! Losses over scores `[batch, classes]` fused with their gradients, and the unit vectors of the cosine classifier. All
//! in f32.

use super::{Cuda, DeviceBuffer, Format, grid};
use crate::{Block, Loss, Margin, Result, View, ViewMut};

/// Parameters of the margin as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct MarginArgument {
    scale: f32,
    margin: f32,
    easy: i32,
}

impl Loss for Cuda {
    fn unit_forward(&self, x: View<Self>, unit: ViewMut<Self>, lengths: &mut DeviceBuffer) -> Result<()> {
        let (x, unit) = (self.rows(x), self.rows_mut(&unit));
        let launch = self.device.kernel("unit").view(x).view(unit);
        // SAFETY: vectors are f32; `lengths` has a value per item.
        unsafe { launch.arg(lengths.pointer()).arg(x.channels).run([x.rows as u32, 1], [128, 1], 0) }
    }

    fn unit_backward(&self, unit: View<Self>, lengths: &DeviceBuffer, d: ViewMut<Self>) -> Result<()> {
        let (unit, d) = (self.rows(unit), self.rows_mut(&d));
        let launch = self.device.kernel("unit_backward").view(unit).arg(lengths.pointer());
        // SAFETY: as above.
        unsafe { launch.view(d).arg(d.channels).run([d.rows as u32, 1], [128, 1], 0) }
    }

    fn row_lengths(&self, w: &DeviceBuffer, block: Block, lengths: &mut DeviceBuffer) -> Result<()> {
        let launch = self.device.kernel("row_lengths").arg(w.pointer()).arg(block.stride as u32).arg(block.rows as u32);
        // SAFETY: `w` is rows × stride, `lengths` has a value per row; a warp per row.
        unsafe { launch.arg(lengths.pointer()).run([(block.rows as u32).div_ceil(8), 1], [256, 1], 0) }
    }

    fn margin_loss(
        &self,
        margin: Margin,
        row_lengths: &DeviceBuffer,
        labels: &DeviceBuffer,
        d: ViewMut<Self>,
        radial: &mut DeviceBuffer,
        outcome: &mut DeviceBuffer,
    ) -> Result<()> {
        let argument = MarginArgument { scale: margin.scale, margin: margin.margin, easy: i32::from(margin.easy) };
        softmax(self, argument, row_lengths.pointer(), labels, d, radial.pointer(), outcome)
    }

    fn remove_radial(
        &self,
        w: &DeviceBuffer,
        radial: &DeviceBuffer,
        block: Block,
        dw: &mut DeviceBuffer,
    ) -> Result<()> {
        let count = (block.rows * block.stride) as u64;
        let launch =
            self.device.kernel("remove_radial").arg(w.pointer()).arg(radial.pointer()).arg(block.stride as u32);
        // SAFETY: `w` and `dw` are rows × stride, `radial` has a value per row.
        unsafe { launch.arg(dw.pointer()).arg(count).run(grid(count), [256, 1], 0) }
    }

    fn cross_entropy(&self, labels: &DeviceBuffer, d: ViewMut<Self>, outcome: &mut DeviceBuffer) -> Result<()> {
        softmax(self, MarginArgument { scale: 1.0, margin: 0.0, easy: 0 }, 0, labels, d, 0, outcome)
    }
}

/// Softmax over the scores: `lengths` turns them into cosines first.
fn softmax(
    cuda: &Cuda,
    margin: MarginArgument,
    lengths: u64,
    labels: &DeviceBuffer,
    d: ViewMut<Cuda>,
    radial: u64,
    outcome: &mut DeviceBuffer,
) -> Result<()> {
    let scores = cuda.rows_mut(&d);
    assert_eq!(scores.format, Format::F32, "scores are vectors");
    let (batch, classes) = (scores.rows as u32, scores.channels);
    let mut scratch = cuda.scratch();
    let bytes = batch as usize * 6 * 4;
    let items = scratch.items.at_least(&cuda.device, bytes)?.pointer();
    let results = items + u64::from(batch) * 16;
    let launch = cuda.device.kernel("softmax_items").arg(margin).arg(lengths).arg(labels.pointer()).view(scores);
    let launch = launch.arg(classes).arg(items).arg(results);
    // SAFETY: one block per item, whose label is a class (the caller checked); items and results hold six values per
    // item.
    unsafe { launch.run([batch, 1], [256, 1], 0)? };
    let launch =
        cuda.device.kernel("softmax_gradient").arg(margin).arg(lengths).arg(labels.pointer()).arg(items).arg(results);
    let launch = launch.view(scores).arg(batch).arg(classes).arg(radial).arg(outcome.pointer());
    // SAFETY: as above; `radial` has a value per class or is absent, `outcome` two.
    unsafe { launch.run([classes.div_ceil(32), 1], [32, 8], 0) }
}
