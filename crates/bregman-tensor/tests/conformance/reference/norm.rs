//! Batch norm: `y = γ (u − μ) / √(σ² + ε) + β`, with `u = relu(x)` where the ReLU comes first and `relu(y + residual)`
//! where it comes last.

use bregman_tensor::constants::{NORM_EPSILON, NORM_MOMENTUM};
use bregman_tensor::{
    BatchNorm, ConvolutionNorm, NormGradients, NormParams, NormStatistics, Relu, Result, Shape, View, ViewMut,
};

use super::{Read, Reference, Write};

/// The mean of `f(item, position)` over a channel.
fn mean_of(shape: Shape, f: impl Fn(usize, usize) -> f64) -> f64 {
    let sum: f64 = (0..shape.batch).map(|b| (0..shape.positions()).map(|p| f(b, p)).sum::<f64>()).sum();
    sum / shape.plane() as f64
}

/// x, behind the ReLU where that comes first.
fn input(x: f64, relu: Relu) -> f64 {
    if relu == Relu::Before { x.max(0.0) } else { x }
}

/// A batch norm with its statistics.
struct Applied<'a> {
    x: View<'a, Reference>,
    norm: &'a NormParams<'a, Reference>,
    mean: &'a [f64],
    inverse_std: &'a [f64],
    residual: Option<View<'a, Reference>>,
}

impl Applied<'_> {
    /// y, before the ReLU where that comes last.
    fn get(&self, b: usize, c: usize, p: usize) -> f64 {
        let Self { x, norm, mean, inverse_std, residual } = self;
        let normed = (input(x.get(b, c, p), norm.relu) - mean[c]) * inverse_std[c] * norm.scale[c] + norm.shift[c];
        normed + residual.map_or(0.0, |residual| residual.get(b, c, p))
    }

    fn write(&self, mut y: ViewMut<Reference>, backend: &Reference) -> Result<()> {
        y.fill(|b, c, p, _| if self.norm.relu == Relu::After { self.get(b, c, p).max(0.0) } else { self.get(b, c, p) });
        backend.store(&mut y)
    }
}

fn inverse_std(variance: f64) -> f64 {
    1.0 / (variance + f64::from(NORM_EPSILON)).sqrt()
}

impl ConvolutionNorm for Reference {}

impl BatchNorm for Reference {
    fn norm_train(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let NormStatistics { mean, inverse_std: inverse, running_mean, running_variance } = statistics;
        let n = x.shape.plane() as f64;
        for c in 0..x.shape.channels {
            let u = |b, p| input(x.get(b, c, p), norm.relu);
            mean[c] = mean_of(x.shape, u);
            let variance = mean_of(x.shape, |b, p| (u(b, p) - mean[c]).powi(2));
            inverse[c] = inverse_std(variance);
            let momentum = f64::from(NORM_MOMENTUM);
            running_mean[c] += momentum * (mean[c] - running_mean[c]);
            running_variance[c] += momentum * (variance * n / (n - 1.0).max(1.0) - running_variance[c]);
        }
        let applied = Applied { x, norm: &norm, mean, inverse_std: inverse, residual };
        match norm.relu {
            Relu::Absent => {}
            Relu::Before => self.note_relu(x.shape, |b, c, p| x.get(b, c, p)),
            Relu::After => self.note_relu(x.shape, |b, c, p| applied.get(b, c, p)),
        }
        applied.write(y, self)
    }

    fn norm_eval(
        &self,
        x: View<Self>,
        norm: NormParams<Self>,
        running_mean: &Vec<f64>,
        running_variance: &Vec<f64>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let inverse: Vec<f64> = running_variance.iter().map(|&variance| inverse_std(variance)).collect();
        Applied { x, norm: &norm, mean: running_mean, inverse_std: &inverse, residual }.write(y, self)
    }

    fn norm_backward(
        &self,
        x: View<Self>,
        y: View<Self>,
        norm: NormParams<Self>,
        mean: &Vec<f64>,
        inverse_std: &Vec<f64>,
        mut d: ViewMut<Self>,
        dresidual: Option<ViewMut<Self>>,
        gradients: NormGradients<Self>,
    ) -> Result<()> {
        let shape = x.shape;
        if norm.relu == Relu::After {
            d.fill(|b, c, p, d| if y.get(b, c, p) > 0.0 { d } else { 0.0 });
        }
        if let Some(mut dresidual) = dresidual {
            dresidual.fill(|b, c, p, _| d.get(b, c, p));
            self.store(&mut dresidual)?;
        }
        let normed = |b, c, p| (input(x.get(b, c, p), norm.relu) - mean[c]) * inverse_std[c];
        let sums: Vec<[f64; 2]> = (0..shape.channels)
            .map(|c| [mean_of(shape, |b, p| d.get(b, c, p)), mean_of(shape, |b, p| d.get(b, c, p) * normed(b, c, p))])
            .collect();
        for (c, [sum, along]) in sums.iter().enumerate() {
            gradients.shift[c] = sum * shape.plane() as f64;
            gradients.scale[c] = along * shape.plane() as f64;
        }
        d.fill(|b, c, p, d| {
            let [sum, along] = if norm.fixed { [0.0; 2] } else { sums[c] };
            let dx = norm.scale[c] * inverse_std[c] * (d - sum - normed(b, c, p) * along);
            if norm.relu == Relu::Before && x.get(b, c, p) <= 0.0 { 0.0 } else { dx }
        });
        if let Some(bias) = gradients.bias {
            (0..shape.channels).for_each(|c| bias[c] = mean_of(shape, |b, p| d.get(b, c, p)) * shape.plane() as f64);
        }
        self.store(&mut d)
    }
}
