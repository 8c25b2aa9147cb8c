//! Convolutions. A pointwise one is a product of the activations as they lie; one with taps is left to [`Narrow`],
//! [`Stem`] or cuDNN, or laid out tap by tap first.
//!
//! In column-major terms, with P positions: Yᵀ[out, P] = W[out, in] · Xᵀ[in, P], dXᵀ[in, P] = Wᵀ · dYᵀ, dWᵀ[in, out] =
//! Xᵀ · dY.

use super::cudnn::{self, Operands, Pass};
use super::gemm::{GemmProduct, Operand};
use super::gpu::KernelVariant;
use super::narrow::Narrow;
use super::stem::Stem;
use super::{Cuda, DeviceBuffer, Format, JOIN, Rows, grid, pointwise};
use crate::{Block, Conv, Convolution, OutputStart, Result, Shape, View, ViewMut, Weight};

/// Patches are made for so many bytes at a time.
const PATCHES: usize = 1 << 30;

/// `Geometry` of kernels/conv.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct ConvGeometry {
    input: [u32; 2],
    output: [u32; 2],
    kernel: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
    dilation: [u32; 2],
}

impl ConvGeometry {
    fn new(conv: &Conv, input: Shape, output: Shape) -> Self {
        let pair = |values: [usize; 2]| values.map(|value| value as u32);
        Self {
            input: pair([input.height, input.width]),
            output: pair([output.height, output.width]),
            kernel: pair(conv.kernel),
            stride: pair(conv.stride),
            padding: pair(conv.padding),
            dilation: pair(conv.dilation),
        }
    }
}

/// The weight for products of this format: the copy, or the columns of the f32 values themselves. Row-major.
pub(super) fn weight(w: &Weight<Cuda>, format: Format) -> (u64, usize) {
    match &w.copies.packed {
        Some(packed) if format == Format::Bf16 || w.block.taps > 1 => (packed.pointer(), w.block.columns),
        _ => (w.value.pointer() + w.block.first as u64 * 4, w.block.stride),
    }
}

/// A row-major matrix as cuBLAS sees it: transposed.
fn matrix(rows: Rows, transposed: bool) -> Operand {
    Operand { pointer: rows.pointer, leading: rows.stride as usize, transposed }
}

impl Convolution for Cuda {
    fn conv_forward(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: OutputStart<Self>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (input, output) = (x.shape, y.shape);
        let (mut x, y) = (self.rows(x), self.rows_mut(&y));
        if w.block.taps > 1 && x.format != self.map_format() {
            x = narrowed(self, x, self.map_format())?; // a weight with taps is packed in the format of maps only
        }
        let (pointer, leading) = weight(&w, x.format);
        let add = matches!(start, OutputStart::Keep);
        let product = |x: Rows, columns: usize, y: Rows, bias: Option<u64>| GemmProduct {
            size: [w.block.rows, x.rows as usize, columns],
            a: Operand { pointer, leading, transposed: true },
            b: matrix(x, false),
            operands: x.format,
            d: y.pointer,
            leading: y.stride as usize,
            result: y.format,
            add,
            bias,
        };
        let by_patches = |bias: Option<u64>| {
            on_patches(self, conv, input, output, x, |columns, first_row| {
                let part = Rows {
                    pointer: y.pointer + first_row * u64::from(y.stride) * y.format.bytes() as u64,
                    rows: columns.rows,
                    ..y
                };
                // SAFETY: the views lie in live buffers; patches have a column per input channel and tap, and so has
                // the weight.
                unsafe { self.gemm.run(&self.device, &product(columns, w.block.columns, part, bias)) }
            })
        };
        let done = if let Some(layer) = Narrow::new(self, conv, input, x, y) {
            layer.forward(x, pointer, add, y).map(|()| true)?
        } else if let Some(layer) = Stem::new(self, conv, input, x, y) {
            layer.forward(x, pointer, add, y).map(|()| true)?
        } else {
            let is_whole = leading == w.block.columns; // cuDNN wants no part of a wider weight
            !add && is_whole
                && by_cudnn(self, Pass::Forward, conv, [input, output], x, pointer, y, || by_patches(None))?
        };
        if done {
            return match start {
                OutputStart::Bias(bias) => add_bias(self, bias, y),
                OutputStart::Zero | OutputStart::Keep => Ok(()),
            };
        }
        let bias = match start {
            OutputStart::Bias(bias) => Some(bias_in(self, bias, w.block.rows, y.format)?),
            OutputStart::Zero | OutputStart::Keep => None,
        };
        if conv.is_pointwise() {
            // SAFETY: the views lie in live buffers, and the weight has an entry for every pair of channels.
            return unsafe { self.gemm.run(&self.device, &product(x, w.block.columns, y, bias)) };
        }
        by_patches(bias)
    }

    fn conv_backward_input(
        &self,
        conv: &Conv,
        w: Weight<Self>,
        dy: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (input, output) = (dx.shape, dy.shape);
        let (mut dy, dx) = (self.rows(dy), self.rows_mut(&dx));
        let format = if w.block.taps > 1 { self.map_format() } else { dx.format }; // as in `conv_forward`
        if dy.format != format {
            dy = narrowed(self, dy, format)?;
        }
        let (pointer, leading) = weight(&w, dy.format);
        if let Some(layer) = Narrow::new(self, conv, input, dx, dy) {
            return layer.backward_input(pointer, dy, add, dx);
        }
        let strided = conv.kernel == [1, 1] && conv.padding == [0, 0] && !conv.is_pointwise() && add;
        let product = |dy: Rows, to: Rows, add: bool| GemmProduct {
            size: [w.block.columns, dy.rows as usize, w.block.rows],
            a: Operand { pointer, leading, transposed: false },
            b: matrix(dy, false),
            operands: dy.format,
            d: to.pointer,
            leading: to.stride as usize,
            result: to.format,
            add,
            bias: None,
        };
        if conv.is_pointwise() {
            // SAFETY: the views lie in live buffers, and the weight has an entry for every pair of channels.
            return unsafe { self.gemm.run(&self.device, &product(dy, dx, add)) };
        }
        let geometry = ConvGeometry::new(conv, input, output);
        if strided {
            // a share for few positions: the others need not be touched
            let bytes = dy.rows as usize * dx.channels as usize * dx.format.bytes();
            let pointer = self.scratch().columns.at_least(&self.device, bytes)?.pointer();
            let share = Rows { pointer, stride: dx.channels, rows: dy.rows, ..dx };
            // SAFETY: as above; the scratch has room for the share.
            unsafe { self.gemm.run(&self.device, &product(dy, share, false))? };
            let variant = dx.variant();
            let launch = self.device.variant("add_strided", variant).arg(geometry).arg(pointer).view(dx);
            let threads = dy.rows * u64::from(dx.channels / variant.lanes());
            // SAFETY: every position of the output lies on one of the input.
            return unsafe { launch.arg(dy.rows).arg(dx.channels).run(grid(threads), [256, 1], 0) };
        }
        let columns = w.block.columns;
        let by_patches = |dx: Rows, add: bool| {
            let per_item = output.positions() * columns * dx.format.bytes();
            let items = (PATCHES / per_item).clamp(1, output.batch);
            let patches = self.scratch().columns.at_least(&self.device, items * per_item)?.pointer();
            for first in (0..output.batch).step_by(items) {
                let items = items.min(output.batch - first);
                let rows = (items * output.positions()) as u64;
                let offset = (first * output.positions()) as u64 * u64::from(dy.stride) * dy.format.bytes() as u64;
                let part = Rows { pointer: dy.pointer + offset, rows, ..dy };
                let (stride, channels) = (columns as u32, columns as u32);
                let to = Rows { pointer: patches, stride, rows, channels, format: dx.format };
                // SAFETY: as above; the scratch has room for the patches of these items.
                unsafe { self.gemm.run(&self.device, &product(part, to, false))? };
                let variant = dx.variant();
                let positions = (items * input.positions()) as u64;
                let launch = self.device.variant("scatter", variant).arg(geometry).arg(patches).view(dx);
                let launch = launch.arg(i32::from(add)).arg(first as u32).arg(positions).arg(dx.channels);
                // SAFETY: dx has these items.
                unsafe { launch.run(grid(positions * u64::from(dx.channels / variant.lanes())), [256, 1], 0)? };
            }
            Ok(())
        };
        // a gradient that is added to others must not be added again and again where patches are only tried
        let mut aside = None;
        let tried = || {
            if add && aside.is_none() {
                aside = Some(DeviceBuffer::zeros(&self.device, dx.rows as usize * dx.channels as usize * 4)?);
            }
            let to = aside.as_ref().map_or(dx, |aside| Rows { pointer: aside.pointer(), stride: dx.channels, ..dx });
            by_patches(to, false)
        };
        if dx.format == Format::F32 && !conv.is_pointwise() {
            // patches that are tried must not move the memory that the gradient passes through
            let bytes = (output.plane() * columns * 4).clamp(1, PATCHES).max(output.positions() * columns * 4);
            self.scratch().columns.at_least(&self.device, bytes)?;
        }
        let is_whole = leading == columns;
        if is_whole && by_cudnn(self, Pass::Input, conv, [input, output], whole(self, dx, add)?, pointer, dy, tried)? {
            return from_whole(self, dx, add);
        }
        by_patches(dx, add)
    }

    fn conv_backward_weight(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        block: Block,
        dw: &mut DeviceBuffer,
    ) -> Result<()> {
        let (input, output) = (x.shape, dy.shape);
        let (x, mut dy) = (self.rows(x), self.rows(dy));
        if dy.format != x.format {
            dy = narrowed(self, dy, x.format)?;
        }
        let product = |x: Rows, dy: Rows, d: u64, leading: usize, add: bool| GemmProduct {
            size: [block.columns, block.rows, x.rows as usize],
            a: matrix(x, false),
            b: matrix(dy, true),
            operands: x.format,
            d,
            leading,
            result: Format::F32,
            add,
            bias: None,
        };
        if conv.is_pointwise() {
            let d = dw.pointer() + block.first as u64 * 4;
            // SAFETY: the views lie in live buffers, and the gradient has an entry for every pair of channels.
            return unsafe { self.gemm.run(&self.device, &product(x, dy, d, block.stride, false)) };
        }
        if let Some(layer) = Narrow::new(self, conv, input, x, dy) {
            return layer.backward_weight(x, dy, block, dw);
        }
        if let Some(layer) = Stem::new(self, conv, input, x, dy) {
            return layer.backward_weight(x, dy, block, dw);
        }
        let ordered = self.scratch().gradient.at_least(&self.device, block.rows * block.columns * 4)?.pointer();
        let by_patches = || {
            on_patches(self, conv, input, output, x, |columns, first_row| {
                let offset = first_row * u64::from(dy.stride) * dy.format.bytes() as u64;
                let part = Rows { pointer: dy.pointer + offset, rows: columns.rows, ..dy };
                // SAFETY: as above; the scratch has room for the gradient.
                unsafe { self.gemm.run(&self.device, &product(columns, part, ordered, block.columns, first_row > 0)) }
            })
        };
        if by_cudnn(self, Pass::Weight, conv, [input, output], x, ordered, dy, by_patches)? {
            return unpack(self, ordered, x.format, block, dw); // in the format of its operands
        }
        by_patches()?;
        unpack(self, ordered, Format::F32, block, dw)
    }

    /// The whole gradient, then without what is outside of the support: tensor cores gain nothing from scattered zeros.
    fn conv_backward_support(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        w: Weight<Self>,
        dw: &mut DeviceBuffer,
    ) -> Result<()> {
        self.conv_backward_weight(conv, x, dy, w.block, dw)?;
        let Block { rows, stride, first, columns, .. } = w.block;
        let at = first as u64 * 4;
        let launch = self.device.kernel("keep_support").arg(w.support().pointer() + at).arg(dw.pointer() + at);
        let launch = launch.arg(rows as u32).arg(columns as u32).arg(stride as u32);
        // SAFETY: the block lies inside of the weight, and the gradient is as large.
        unsafe { launch.run(grid((rows * columns) as u64), [256, 1], 0) }
    }

    fn conv_backward_bias(&self, dy: View<Self>, db: &mut DeviceBuffer) -> Result<()> {
        let dy = self.rows(dy);
        let variant = dy.variant();
        let ([columns, parts], block, shared) = self.sum_grid(variant, dy.rows, dy.channels);
        let mut scratch = self.scratch();
        let sums = scratch.sums.at_least(&self.device, parts as usize * dy.channels as usize * 4)?.pointer();
        let launch = self.device.variant("column_sums", variant).view(dy).arg(dy.rows).arg(dy.channels).arg(sums);
        // SAFETY: a part has a value per channel.
        unsafe { launch.run([columns, parts], block, shared)? };
        let launch = self.device.kernel("column_join").arg(sums).arg(parts).arg(dy.channels).arg(db.pointer());
        // SAFETY: as above, and so has `db`.
        unsafe { launch.run([dy.channels.div_ceil(32), 1], JOIN, 0) }
    }
}

/// Leaves a convolution with taps to cuDNN; `false` if it must be done otherwise, or is faster so.
#[expect(clippy::too_many_arguments, reason = "a convolution has as many")]
fn by_cudnn(
    cuda: &Cuda,
    pass: Pass,
    conv: &Conv,
    shapes: [Shape; 2],
    x: Rows,
    w: u64,
    y: Rows,
    otherwise: impl FnMut() -> Result<()>,
) -> Result<bool> {
    match &cuda.cudnn {
        // SAFETY: the views lie in live buffers and have these shapes; the weight is packed for them.
        Some(library) if !conv.is_pointwise() && cudnn::suits(x, y) => unsafe {
            library.run(&cuda.device, pass, conv, shapes, &Operands { x, w, y }, otherwise)
        },
        _ => Ok(false),
    }
}

/// y += bias
fn add_bias(cuda: &Cuda, bias: &DeviceBuffer, y: Rows) -> Result<()> {
    let variant = y.variant();
    let launch = cuda.device.variant("add_bias", variant).arg(bias.pointer()).view(y).arg(y.rows).arg(y.channels);
    // SAFETY: the bias has a value per channel.
    unsafe { cuda.over_rows(launch, variant, y.rows, y.channels) }
}

/// Calls `work` with the patches of some rows of the output after another, and the first of these rows.
fn on_patches(
    cuda: &Cuda,
    conv: &Conv,
    input: Shape,
    output: Shape,
    x: Rows,
    mut work: impl FnMut(Rows, u64) -> Result<()>,
) -> Result<()> {
    let geometry = ConvGeometry::new(conv, input, output);
    let columns = input.channels * conv.taps();
    let total = output.plane() as u64;
    let rows = ((PATCHES / (columns * x.format.bytes())).max(1) as u64).min(total);
    let pointer = cuda.scratch().columns.at_least(&cuda.device, rows as usize * columns * x.format.bytes())?.pointer();
    let variant = x.variant();
    for first in (0..total).step_by(rows as usize) {
        let rows = rows.min(total - first);
        let launch = cuda.device.variant("gather", variant).arg(geometry).view(x).arg(pointer);
        let threads = rows * (columns as u64) / u64::from(variant.lanes());
        // SAFETY: the scratch has room for these rows of patches.
        unsafe { launch.arg(first).arg(rows).arg(x.channels).run(grid(threads), [256, 1], 0)? };
        work(Rows { pointer, stride: columns as u32, rows, channels: columns as u32, format: x.format }, first)?;
    }
    Ok(())
}

/// A bias in the format of the output, as cuBLASLt wants it.
fn bias_in(cuda: &Cuda, bias: &DeviceBuffer, count: usize, format: Format) -> Result<u64> {
    if format == Format::F32 {
        return Ok(bias.pointer());
    }
    let mut scratch = cuda.scratch();
    let pointer = scratch.bias.at_least(&cuda.device, count * format.bytes())?.pointer();
    let variant = KernelVariant { format, wide: false };
    let count = count as u32;
    let launch = cuda
        .device
        .variant("convert", variant)
        .arg(bias.pointer())
        .arg(count)
        .arg(pointer)
        .arg(count)
        .arg(1u64)
        .arg(count);
    // SAFETY: both have `count` values.
    unsafe { cuda.over_rows(launch, variant, 1, count)? };
    Ok(pointer)
}

/// Where cuDNN puts an input gradient: it replaces whole tensors, so a sum or a range of channels passes through
/// scratch memory. (Its own way to ranges is a copy at a quarter of the memory's speed.)
fn whole(cuda: &Cuda, dx: Rows, add: bool) -> Result<Rows> {
    if !add && dx.stride == dx.channels {
        return Ok(dx);
    }
    let bytes = dx.rows as usize * dx.channels as usize * dx.format.bytes();
    let pointer = cuda.scratch().columns.at_least(&cuda.device, bytes)?.pointer();
    Ok(Rows { pointer, stride: dx.channels, ..dx })
}

fn from_whole(cuda: &Cuda, dx: Rows, add: bool) -> Result<()> {
    let whole = whole(cuda, dx, add)?;
    match add {
        _ if whole.pointer == dx.pointer => Ok(()),
        true => pointwise::binary(cuda, "add", dx, whole, dx),
        false => pointwise::unary(cuda, "copy", whole, dx),
    }
}

/// A vector in the format of maps: where a convolution has a single position on one side or on both.
fn narrowed(cuda: &Cuda, x: Rows, format: Format) -> Result<Rows> {
    assert!(x.format == Format::F32 && format == Format::Bf16, "only a vector is converted");
    let mut scratch = cuda.scratch();
    let count = (x.rows * u64::from(x.channels)) as usize;
    let pointer = scratch.converted.at_least(&cuda.device, count * 4)?.pointer();
    let variant = KernelVariant { format, wide: false };
    let launch = cuda.device.variant("convert", variant).view(x).arg(pointer).arg(x.channels).arg(x.rows);
    // SAFETY: the scratch has room for all values of x.
    unsafe { cuda.over_rows(launch.arg(x.channels), variant, x.rows, x.channels)? };
    Ok(Rows { pointer, stride: x.channels, format, ..x })
}

/// Puts a gradient `[rows, taps, channels]` back into the order of the weight.
fn unpack(cuda: &Cuda, from: u64, format: Format, block: Block, dw: &mut DeviceBuffer) -> Result<()> {
    let launch =
        cuda.device.variant("unpack_weight", KernelVariant { format, wide: false }).arg(from).arg(dw.pointer());
    let launch = launch.arg(block.stride as u32).arg(block.first as u32).arg(block.rows as u32);
    let launch = launch.arg((block.columns / block.taps) as u32).arg(block.taps as u32);
    // SAFETY: both have the values of the block.
    unsafe { launch.run(grid((block.rows * block.columns) as u64), [256, 1], 0) }
}
