//! Batch norm fused with ReLU: column sums in parts, the parts joined, one pass that applies the result. See
//! kernels/norm.cu.

use super::gpu::KernelVariant;
use super::{Cuda, DeviceBuffer, JOIN, Rows};
use crate::{BatchNorm, NormGradients, NormParams, NormStatistics, Relu, Result, View, ViewMut};

/// The kernels' names of [`Relu`].
fn order(relu: Relu) -> i32 {
    match relu {
        Relu::Absent => 0,
        Relu::Before => 1,
        Relu::After => 2,
    }
}

impl BatchNorm for Cuda {
    fn norm_train(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (x, residual, y) = (self.rows(x), residual.map(|r| self.rows(r)), self.rows_mut(&y));
        norm_of_map(self, x, norm, statistics, residual, y)
    }

    fn norm_eval(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        running_mean: &DeviceBuffer,
        running_variance: &DeviceBuffer,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (x, residual, y) = (self.rows(x), residual.map(|r| self.rows(r)), self.rows_mut(&y));
        let mut scratch = self.scratch();
        let coefficients = scratch.coefficients.at_least(&self.device, 3 * x.channels as usize * 4)?.pointer();
        let launch =
            self.device.kernel("norm_running").arg(x.channels).arg(norm.scale.pointer()).arg(norm.shift.pointer());
        let launch = launch.arg(running_mean.pointer()).arg(running_variance.pointer()).arg(coefficients);
        // SAFETY: every array has a value per channel, coefficients three.
        unsafe { launch.run([x.channels.div_ceil(256), 1], [256, 1], 0)? };
        apply(self, x, norm.relu, residual, y, coefficients)
    }

    #[allow(clippy::too_many_arguments)]
    fn norm_backward(
        &self,
        x: View<Self>,
        y: View<Self>,
        norm: NormParams<Self>,
        mean: &DeviceBuffer,
        inverse_std: &DeviceBuffer,
        d: ViewMut<Self>,
        dresidual: Option<ViewMut<Self>>,
        gradients: NormGradients<Self>,
    ) -> Result<()> {
        let (x, y, d, dresidual) =
            (self.rows(x), self.rows(y), self.rows_mut(&d), dresidual.map(|r| self.rows_mut(&r)));
        let variant = x.variant_with(&[y, d, dresidual.unwrap_or(d)]);
        let ([columns, parts], block, shared) = self.sum_grid(variant, x.rows, x.channels);
        let mut scratch = self.scratch();
        let sums = scratch.sums.at_least(&self.device, 4 * parts as usize * x.channels as usize * 4)?.pointer();
        let coefficients = scratch.coefficients.at_least(&self.device, 3 * x.channels as usize * 4)?.pointer();
        let affine = [norm.scale, norm.shift, mean, inverse_std].map(DeviceBuffer::pointer);
        // with a residual the first pass leaves dy behind the last ReLU in its gradient; without one the kernels see
        // that ReLU in x
        let (behind, last) = match dresidual {
            Some(r) => {
                let launch = self.device.variant("norm_backward_residual", variant).view(x).view(y);
                let launch = launch.view(d).view(r).arg(affine).arg(x.rows).arg(x.channels);
                // SAFETY: all views are alike; a part has four values per channel.
                unsafe { launch.arg(sums).run([columns, parts], block, shared)? };
                (r, Relu::Absent)
            }
            None => {
                let launch = self.device.variant("norm_backward_sums", variant).view(x).view(d);
                let launch = launch.arg(affine).arg(order(norm.relu)).arg(x.rows).arg(x.channels).arg(sums);
                // SAFETY: as above.
                unsafe { launch.run([columns, parts], block, shared)? };
                (d, norm.relu)
            }
        };
        let launch = self
            .device
            .kernel("norm_backward_join")
            .arg(sums)
            .arg(parts)
            .arg(x.rows)
            .arg(x.channels)
            .arg(norm.scale.pointer());
        let launch = launch.arg(mean.pointer()).arg(inverse_std.pointer());
        let launch = launch
            .arg(order(norm.relu))
            .arg(i32::from(norm.fixed))
            .arg(gradients.scale.pointer())
            .arg(gradients.shift.pointer())
            .arg(gradients.bias.map_or(0, |bias| bias.pointer()))
            .arg(coefficients);
        // SAFETY: every array has a value per channel, coefficients three.
        unsafe { launch.run([x.channels.div_ceil(32), 1], JOIN, 0)? };
        let launch = self.device.variant("norm_backward_apply", variant).view(x).view(behind);
        let launch = launch.view(d).arg(affine).arg(coefficients).arg(order(last)).arg(x.rows).arg(x.channels);
        // SAFETY: as above.
        unsafe { self.over_rows(launch, variant, x.rows, x.channels) }
    }
}

/// The norm of a batch.
pub(super) fn norm_of_map(
    cuda: &Cuda,
    x: Rows,
    norm: NormParams<Cuda>,
    statistics: NormStatistics<Cuda>,
    residual: Option<Rows>,
    y: Rows,
) -> Result<()> {
    let variant = x.variant();
    let ([columns, parts], block, shared) = cuda.sum_grid(variant, x.rows, x.channels);
    let sums = sums_in(cuda, parts, x.channels)?;
    let launch = cuda.device.variant("norm_sums", variant).view(x).arg(x.rows).arg(x.channels);
    // SAFETY: a part has two values per channel.
    unsafe { launch.arg(order(norm.relu)).arg(sums).run([columns, parts], block, shared)? };
    norm_of_sums(cuda, x, (sums, parts, x.pointer), norm, statistics, residual, y)
}

/// Adds the bias to x, and sums that up on the way: where the sums lie, and in how many parts, relative to what lies at
/// `origin`.
pub(super) fn sums_with_bias(cuda: &Cuda, x: Rows, relu: Relu, bias: &DeviceBuffer, origin: u64) -> Result<(u64, u32)> {
    let variant = x.variant();
    let ([columns, parts], block, shared) = cuda.sum_grid(variant, x.rows, x.channels);
    let sums = sums_in(cuda, parts, x.channels)?;
    let launch = cuda.device.variant("norm_sums_of_bias", variant).view(x).arg(x.rows).arg(x.channels);
    let launch = launch.arg(order(relu)).arg(bias.pointer()).arg(origin).arg(sums);
    // SAFETY: a part has two values per channel, and bias and origin have one.
    unsafe { launch.run([columns, parts], block, shared)? };
    Ok((sums, parts))
}

/// Room for `parts` of the two sums of every channel.
pub(super) fn sums_in(cuda: &Cuda, parts: u32, channels: u32) -> Result<u64> {
    let mut scratch = cuda.scratch();
    Ok(scratch.sums.at_least(&cuda.device, 2 * parts as usize * channels as usize * 4)?.pointer())
}

/// The norm of a batch from the parts of its sums: where they lie, how many there are, and the first row of x if the
/// sums are relative to it, 0 if they are to the running mean.
pub(super) fn norm_of_sums(
    cuda: &Cuda,
    x: Rows,
    (sums, parts, origin): (u64, u32, u64),
    norm: NormParams<Cuda>,
    statistics: NormStatistics<Cuda>,
    residual: Option<Rows>,
    y: Rows,
) -> Result<()> {
    let coefficients = cuda.scratch().coefficients.at_least(&cuda.device, 3 * x.channels as usize * 4)?.pointer();
    let variant = KernelVariant { wide: false, ..x.variant() };
    let launch = cuda.device.variant("norm_statistics", variant).arg(sums).arg(parts).arg(origin);
    let launch = launch.arg(x.rows).arg(x.channels).arg(order(norm.relu));
    let launch = launch.arg(norm.scale.pointer()).arg(norm.shift.pointer());
    let launch = launch.arg(statistics.mean.pointer()).arg(statistics.inverse_std.pointer());
    let launch =
        launch.arg(statistics.running_mean.pointer()).arg(statistics.running_variance.pointer()).arg(coefficients);
    // SAFETY: every array has a value per channel, coefficients three.
    unsafe { launch.run([x.channels.div_ceil(32), 1], JOIN, 0)? };
    apply(cuda, x, norm.relu, residual, y, coefficients)
}

fn apply(cuda: &Cuda, x: Rows, relu: Relu, residual: Option<Rows>, y: Rows, coefficients: u64) -> Result<()> {
    let others = [y, residual.unwrap_or(y)];
    let variant = x.variant_with(&others);
    let launch = cuda.device.variant("norm_apply", variant).view(x).arg(coefficients).arg(order(relu));
    let launch = launch.optional_view(residual);
    let launch = launch.view(y).arg(x.rows).arg(x.channels);
    // SAFETY: all views are alike; coefficients hold two values per channel.
    unsafe { cuda.over_rows(launch, variant, x.rows, x.channels) }
}
