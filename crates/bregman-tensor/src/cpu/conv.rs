//! Convolution, forward and backward: sparse or dense, f32 or bf16, as the weight's [`Copies`](super::Copies) say.
//!
//! Sparse and bf16 products, and both gradients of most 3×3 layers, run on `kernels`; the rest of dense f32 here, on
//! `gemm`: 1×1: `Y = W · X` over the whole batch at once. Otherwise one batch item and one tile of positions at a time,
//! on patches that fit the second-level cache: `Y = W · P(X)`, `dX = W′ · P(dY)` with the taps reversed (or, with a
//! stride, `Pᵀ(Wᵀ · dY)`), `dW = Σ dY · P(X)ᵀ`. Tasks own disjoint parts of their output, so the result
//! does not depend on which thread runs what.

use std::cell::RefCell;
use std::sync::PoisonError;

use super::math::{each, simd, sum};
use super::matmul::{Into, Mat, Target, multiply, product};
use super::patches::Patches;
use super::{Buffer, Cpu};
use crate::{Block, Conv, Convolution, OutputStart, Result, Shape, View, ViewMut, Weight};

/// Patch values that stay in the second-level cache of one core (512 KiB).
const TILE: usize = 128 * 1024;

thread_local! {
    /// Patches of the task that runs on this thread; grows to the largest and is then reused.
    static PATCHES: RefCell<Buffer> = RefCell::default();
}

fn with_patches<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    PATCHES.with_borrow_mut(|buffer| {
        buffer.grow(len);
        work(&mut buffer[..len])
    })
}

/// `positions` in tiles of equal size, such that `rows` patch rows fit the cache: (tiles, size).
fn tiles(positions: usize, rows: usize) -> (usize, usize) {
    let largest = (TILE / rows).max(192);
    let size = positions.div_ceil(positions.div_ceil(largest)).next_multiple_of(16);
    (positions.div_ceil(size), size)
}

impl Convolution for Cpu {
    fn conv_forward(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: OutputStart<Self>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (input, output, block) = (x.shape, y.shape, w.block);
        assert_eq!(conv.output(input, block.rows), output, "convolution output");
        assert_eq!(block.columns, input.channels * conv.taps(), "convolution weight");
        let (x, y) = (x.slice(), y.slice());
        if let Some(route) = w.copies.forward_route(conv, input, output, w.value, block) {
            route.forward(conv, input, output, x, start, y);
            return Ok(());
        }
        let into = match start {
            OutputStart::Bias(bias) => {
                let plane = output.plane();
                let target = Target::rows(y, plane);
                each(output.channels, output.len(), |channel| {
                    // SAFETY: each task has its own row.
                    unsafe { target.row(channel, plane) }.fill(bias[channel]);
                });
                Into::Add
            }
            OutputStart::Keep => Into::Add,
            OutputStart::Zero => Into::Replace,
        };
        let weight = Mat::rows(&w.value[block.first..], block.stride);
        if conv.is_pointwise() {
            let plane = output.plane();
            multiply([block.rows, plane, block.columns], weight, Mat::rows(x, plane), into, y, plane);
        } else {
            on_patches(conv, input, output, weight, x, into, y);
        }
        Ok(())
    }

    fn conv_backward_input(
        &self,
        conv: &Conv,
        w: Weight<Self>,
        dy: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (input, output, block) = (dx.shape, dy.shape, w.block);
        let (dy, dx) = (dy.slice(), dx.slice());
        if let Some(route) = w.copies.route(conv, input, output, w.value, block) {
            route.backward_input(conv, input, output, dy, add, dx);
            return Ok(());
        }
        let weight = Mat::rows(&w.value[block.first..], block.stride);
        let into = if add { Into::Add } else { Into::Replace };
        if conv.is_pointwise() {
            let plane = output.plane();
            multiply([block.columns, plane, block.rows], weight.t(), Mat::rows(dy, plane), into, dx, plane);
        } else if let (Some(reversed), Some(conv)) = (w.copies.reversed(), conv.adjoint()) {
            let weight = Mat::rows(reversed, output.channels * conv.taps());
            on_patches(&conv, output, input, weight, dy, into, dx);
        } else {
            scattered(conv, [input, output], w, dy, add, dx);
        }
        Ok(())
    }

    fn conv_backward_weight(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        block: Block,
        dw: &mut Buffer,
    ) -> Result<()> {
        let (input, output) = (x.shape, dy.shape);
        let (x, dy) = (x.slice(), dy.slice());
        let plane = output.plane();
        let mut gradients = self.gradients.lock().unwrap_or_else(PoisonError::into_inner);
        if gradients.compute(self.precision, conv, [input, output], x, dy, block, dw) {
            return Ok(());
        }
        if conv.is_pointwise() {
            let [m, n, k] = [block.rows, block.columns, plane];
            multiply(
                [m, n, k],
                Mat::rows(dy, k),
                Mat::rows(x, k).t(),
                Into::Replace,
                &mut dw[block.first..],
                block.stride,
            );
            return Ok(());
        }
        let groups = channel_groups(input, 1);
        let size = input.channels.div_ceil(groups);
        let target = Target::rows(&mut dw[block.first..], block.stride);
        each(groups, usize::MAX, |group| {
            let channels = group * size..input.channels.min((group + 1) * size);
            let target = target.from(0, channels.start * conv.taps());
            let rows = channels.len() * conv.taps();
            let (tiles, size) = tiles(output.positions(), rows);
            for item in 0..output.batch {
                for tile in 0..tiles {
                    let positions = tile * size..output.positions().min((tile + 1) * size);
                    let (start, n) = (item * output.positions() + positions.start, positions.len());
                    let patches = Patches { conv, input, output, item, channels: channels.clone(), positions };
                    let into = if item == 0 && tile == 0 { Into::Replace } else { Into::Add };
                    with_patches(rows * n, |values| {
                        patches.gather(x, values);
                        let dy = Mat::rows(&dy[start..], plane);
                        // SAFETY: each task has its own columns of the gradient.
                        unsafe { product([block.rows, rows, n], dy, Mat::rows(values, n).t(), into, target) }
                    });
                }
            }
        });
        Ok(())
    }

    fn conv_backward_support(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        w: Weight<Self>,
        dw: &mut Buffer,
    ) -> Result<()> {
        let (input, output) = (x.shape, dy.shape);
        let mut gradients = self.gradients.lock().unwrap_or_else(PoisonError::into_inner);
        let sampled = w.copies.with_support(conv, output, w, |weight, rounded| {
            gradients.sample(weight, rounded, conv, [input, output], x.slice(), dy.slice(), w.block, dw);
        });
        drop(gradients);
        if sampled {
            return Ok(());
        }
        self.conv_backward_weight(conv, x, dy, w.block, dw)?;
        let Block { rows, stride, first, columns, .. } = w.block;
        let target = Target::rows(&mut dw[first..], stride);
        each(rows, rows * columns, |row| {
            let support = &w.support()[first + row * stride..][..columns];
            // SAFETY: each task has its own row.
            let gradient = unsafe { target.row(row, columns) };
            gradient.iter_mut().zip(support).for_each(|(g, &kept)| *g = if kept == 0.0 { 0.0 } else { *g });
        });
        Ok(())
    }

    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Buffer) -> Result<()> {
        let dy = dy.slice();
        let (channels, plane) = (db.len(), dy.len() / db.len());
        let target = Target::rows(db, 1);
        each(channels, dy.len(), |channel| {
            let row = &dy[channel * plane..][..plane];
            // SAFETY: each task has its own element.
            unsafe { target.set(channel, simd!(sum(row, |dy| dy))) };
        });
        Ok(())
    }
}

/// `y ← w · P(x)`, or adds that: one task per item and tile of positions.
fn on_patches(conv: &Conv, input: Shape, output: Shape, weight: Mat, x: &[f32], into: Into, y: &mut [f32]) {
    let rows = input.channels * conv.taps();
    let (tiles, size) = tiles(output.positions(), rows);
    let target = Target::rows(y, output.plane());
    each(output.batch * tiles, usize::MAX, |task| {
        let (item, tile) = (task / tiles, task % tiles);
        let positions = tile * size..output.positions().min((tile + 1) * size);
        let (start, n) = (item * output.positions() + positions.start, positions.len());
        let patches = Patches { conv, input, output, item, channels: 0..input.channels, positions };
        with_patches(rows * n, |values| {
            patches.gather(x, values);
            // SAFETY: each task has its own columns of the output.
            unsafe { product([output.channels, n, rows], weight, Mat::rows(values, n), into, target.from(0, start)) }
        });
    });
}

/// `dx = Pᵀ(wᵀ · dy)`, or adds that: what has a stride, and so no adjoint convolution.
fn scattered(conv: &Conv, [input, output]: [Shape; 2], w: Weight<Cpu>, dy: &[f32], add: bool, dx: &mut [f32]) {
    let block = w.block;
    let groups = channel_groups(input, output.batch);
    let size = input.channels.div_ceil(groups);
    let target = Target::rows(dx, input.positions());
    each(output.batch * groups, usize::MAX, |task| {
        let (item, group) = (task / groups, task % groups);
        let channels = group * size..input.channels.min((group + 1) * size);
        // SAFETY: each task has its own channels of one item.
        let map = |channel: usize| unsafe { target.row(channel * input.batch + item, input.positions()) };
        if !add {
            channels.clone().for_each(|channel| map(channel).fill(0.0));
        }
        let taps = conv.taps();
        let rows = channels.len() * taps;
        let (tiles, size) = tiles(output.positions(), rows);
        for tile in 0..tiles {
            let positions = tile * size..output.positions().min((tile + 1) * size);
            let (start, n) = (item * output.positions() + positions.start, positions.len());
            let patches = Patches { conv, input, output, item, channels: channels.clone(), positions };
            with_patches(rows * n, |values| {
                let weight = Mat::rows(&w.value[block.first + channels.start * taps..], block.stride).t();
                let dy = Mat::rows(&dy[start..], output.plane());
                // SAFETY: the patches belong to this thread.
                unsafe { product([rows, n, block.rows], weight, dy, Into::Replace, Target::rows(values, n)) };
                simd!(patches.scatter(values, |offset| map(offset / (input.batch * input.positions()))));
            });
        }
    });
}

/// Into how many groups the input channels are cut so that every thread has work, given `items` tasks already.
fn channel_groups(input: Shape, items: usize) -> usize {
    let groups = rayon::current_num_threads().div_ceil(items).min(input.channels);
    // groups of equal size, none of them empty
    input.channels.div_ceil(input.channels.div_ceil(groups))
}
