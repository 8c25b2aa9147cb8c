//! The CPU backend: `gemm` inside our own `rayon` tasks, SIMD picked at run time.
//!
//! Memory layout of an activation: `[channels, batch, height, width]`. A 1×1 convolution of the whole batch is then one
//! matrix product, the values a batch norm averages lie side by side, and splitting or joining channels is only a
//! matter of offsets.

mod buffer;
mod conv;
mod filterbank;
pub mod kernels;
mod loss;
mod math;
mod matmul;
mod norm;
mod patches;
mod pointwise;
mod pooling;
mod routes;
mod weights;

pub use buffer::Buffer;
pub use matmul::dot_products;
pub use weights::{Copies, WeightPolicy};

use std::sync::Mutex;

#[cfg(target_arch = "x86_64")]
use kernels::bf16::Kernel;
use routes::Gradients;

use crate::{
    Activation, Backend, Block, Conv, Error, FilterbankTables, Margin, Norm, NormGradients, NormStatistics, Precision,
    Result, Start, Storage, View, ViewMut, Weight,
};

/// This machine's processor; work is spread over the current `rayon` pool.
#[derive(Debug, Default)]
pub struct Cpu {
    precision: Precision,
    weights: WeightPolicy,
    gradients: Mutex<Gradients>,
}

impl Cpu {
    /// The CPU in f32.
    pub fn new() -> Self {
        Self::default()
    }

    /// The CPU in this precision; f32 for tf32.
    pub fn with_precision(precision: Precision) -> Self {
        let precision = if precision == Precision::Bf16 { precision } else { Precision::F32 };
        Self { precision, ..Self::default() }
    }

    /// The precision it computes in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Threads of the current pool and the instructions used, as `cpu (2 threads, AVX-512 + AMX)`.
    pub fn description() -> String {
        let threads = rayon::current_num_threads();
        let plural = if threads == 1 { "" } else { "s" };
        format!("cpu ({threads} thread{plural}, {})", instructions())
    }

    /// Multiplies with sparse or dense weights always, whatever is faster: to compare the two.
    pub fn with_weights(self, weights: WeightPolicy) -> Self {
        Self { weights, ..self }
    }
}

impl<'a> View<'a, Cpu> {
    /// The channels seen, one after another.
    fn slice(&self) -> &'a [f32] {
        let start = self.first * self.shape.plane();
        &self.data[start..start + self.shape.len()]
    }
}

impl<'a> ViewMut<'a, Cpu> {
    /// The channels seen, one after another.
    fn slice(self) -> &'a mut [f32] {
        let start = self.first * self.shape.plane();
        &mut self.data[start..start + self.shape.len()]
    }
}

#[cfg(target_arch = "x86_64")]
fn instructions() -> &'static str {
    match (is_x86_feature_detected!("avx512f"), is_x86_feature_detected!("avx2"), Kernel::best()) {
        (true, _, Kernel::Amx) => "AVX-512 + AMX",
        (true, ..) => "AVX-512",
        (false, true, _) => "AVX2",
        _ => "SSE2",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> &'static str {
    std::env::consts::ARCH
}

fn check_length(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

impl Backend for Cpu {
    type Buffer = Buffer;
    type Copies = Copies;
    type Recording = ();
    type Filterbank = FilterbankTables;

    fn alloc(&self, len: usize, _: Storage) -> Result<Buffer> {
        Ok(Buffer::zeros(len))
    }

    fn bytes_per_value(&self, _: Storage) -> usize {
        size_of::<f32>()
    }

    fn upload(&self, from: &[f32], to: &mut Buffer) -> Result<()> {
        let (expected, got) = (to.len(), from.len());
        to.get_mut(..got).ok_or(Error::Length { what: "upload", expected, got })?.copy_from_slice(from);
        Ok(())
    }

    fn download(&self, from: &Buffer, to: &mut [f32]) -> Result<()> {
        let (expected, got) = (from.len(), to.len());
        to.copy_from_slice(from.get(..got).ok_or(Error::Length { what: "download", expected, got })?);
        Ok(())
    }

    fn write(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        check_length("write", to.shape.len(), from.len())?;
        pointwise::swap_leading_axes(from, to.shape.batch, to.shape.channels, to.slice());
        Ok(())
    }

    fn write_frames(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        check_length("write", to.shape.len(), from.len())?;
        pointwise::transpose_items(from, to.shape, to.slice());
        Ok(())
    }

    fn filterbank(&self, tables: FilterbankTables) -> Result<FilterbankTables> {
        Ok(tables)
    }

    fn write_samples(&self, tables: &FilterbankTables, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        let (batch, frames) = (to.shape.batch, to.shape.width);
        check_length("features of samples", batch * tables.frames(from.len() / batch) * tables.bins, to.shape.len())?;
        self.write_frames(&filterbank::features(tables, from, batch, frames), to)
    }

    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()> {
        check_length("read", from.shape.len(), to.len())?;
        pointwise::swap_leading_axes(from.slice(), from.shape.channels, from.shape.batch, to);
        Ok(())
    }

    fn refresh(&self, value: &Buffer, block: Block, copies: &mut Copies) -> Result<()> {
        copies.refresh(self.precision, self.weights, value, block);
        Ok(())
    }

    fn conv_forward(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: Start<Self>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        conv::forward(conv, x, w, start, y);
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
        conv::backward_input(conv, w, dy, add, dx);
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
        conv::backward_weight(self, conv, x, dy, block, dw);
        Ok(())
    }

    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Buffer) -> Result<()> {
        conv::backward_bias(dy.slice(), db);
        Ok(())
    }

    fn norm_train(
        &self,
        x: View<Self>,
        norm: Norm<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        norm::train(x, norm, statistics, residual, y);
        Ok(())
    }

    fn norm_eval(
        &self,
        x: View<Self>,
        norm: Norm<Self>,
        running_mean: &Buffer,
        running_variance: &Buffer,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        norm::eval(x, norm, running_mean, running_variance, residual, y);
        Ok(())
    }

    fn norm_backward(
        &self,
        x: View<Self>,
        y: View<Self>,
        norm: Norm<Self>,
        mean: &Buffer,
        inverse_std: &Buffer,
        d: ViewMut<Self>,
        dresidual: Option<ViewMut<Self>>,
        gradients: NormGradients<Self>,
    ) -> Result<()> {
        norm::backward(x, y, norm, mean, inverse_std, d, dresidual, gradients);
        Ok(())
    }

    fn copy(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        pointwise::zip(from.slice(), to.slice(), |from, to| *to = from);
        Ok(())
    }

    fn add(&self, a: View<Self>, b: View<Self>, sum: ViewMut<Self>) -> Result<()> {
        pointwise::zip2(a.slice(), b.slice(), sum.slice(), |a, b, sum| *sum = a + b);
        Ok(())
    }

    fn accumulate(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        pointwise::zip(from.slice(), to.slice(), |from, to| *to += from);
        Ok(())
    }

    fn activate(&self, f: Activation, x: ViewMut<Self>) -> Result<()> {
        pointwise::activate(f, x.slice());
        Ok(())
    }

    fn activate_backward(&self, f: Activation, y: View<Self>, d: ViewMut<Self>) -> Result<()> {
        pointwise::activate_backward(f, y.slice(), d.slice());
        Ok(())
    }

    fn mean_forward(&self, x: View<Self>, mean: ViewMut<Self>) -> Result<()> {
        pooling::mean(x.slice(), mean.slice());
        Ok(())
    }

    fn gate_forward(&self, x: View<Self>, gate: View<Self>, residual: View<Self>, y: ViewMut<Self>) -> Result<()> {
        pooling::gate(x.slice(), gate.slice(), residual.slice(), y.slice());
        Ok(())
    }

    fn gate_backward_gate(&self, x: View<Self>, dy: View<Self>, dgate: ViewMut<Self>) -> Result<()> {
        pooling::gate_backward_gate(x.slice(), dy.slice(), dgate.slice());
        Ok(())
    }

    fn gate_backward_input(
        &self,
        gate: View<Self>,
        dmean: View<Self>,
        dy: View<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        pooling::gate_backward_input(gate.slice(), dmean.slice(), dy.slice(), dx.slice());
        Ok(())
    }

    fn moments_forward(&self, x: View<Self>, stats: ViewMut<Self>) -> Result<()> {
        pooling::moments(x.shape, x.slice(), stats.slice());
        Ok(())
    }

    fn moments_backward(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        pooling::moments_backward(x.shape, x.slice(), stats.slice(), dstats.slice(), add, dx.slice());
        Ok(())
    }

    fn context_tanh(&self, context: Option<View<Self>>, h: ViewMut<Self>) -> Result<()> {
        let width = h.shape.positions();
        pooling::context_tanh(width, context.map(|context| context.slice()), h.slice());
        Ok(())
    }

    fn context_tanh_backward(&self, a: View<Self>, d: ViewMut<Self>, dcontext: Option<ViewMut<Self>>) -> Result<()> {
        pooling::context_tanh_backward(a.shape.positions(), a.slice(), d.slice(), dcontext.map(ViewMut::slice));
        Ok(())
    }

    fn attentive_forward(&self, x: View<Self>, attention: ViewMut<Self>, stats: ViewMut<Self>) -> Result<()> {
        pooling::attentive(x.slice(), attention.slice(), stats.slice());
        Ok(())
    }

    fn attentive_backward(
        &self,
        x: View<Self>,
        attention: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        dlogits: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        pooling::attentive_backward(
            x.slice(),
            attention.slice(),
            stats.slice(),
            dstats.slice(),
            dlogits.slice(),
            dx.slice(),
        );
        Ok(())
    }

    fn unit_forward(&self, x: View<Self>, unit: ViewMut<Self>, lengths: &mut Buffer) -> Result<()> {
        loss::unit(x.shape.batch, x.slice(), unit.slice(), lengths);
        Ok(())
    }

    fn unit_backward(&self, unit: View<Self>, lengths: &Buffer, d: ViewMut<Self>) -> Result<()> {
        loss::unit_backward(unit.shape.batch, unit.slice(), lengths, d.slice());
        Ok(())
    }

    fn row_lengths(&self, w: &Buffer, block: Block, lengths: &mut Buffer) -> Result<()> {
        loss::row_lengths(w, block, lengths);
        Ok(())
    }

    fn margin_loss(
        &self,
        margin: Margin,
        row_lengths: &Buffer,
        labels: &Buffer,
        d: ViewMut<Self>,
        radial: &mut Buffer,
        outcome: &mut Buffer,
    ) -> Result<()> {
        loss::margin(margin, row_lengths, &labels[..d.shape.batch], d.slice(), radial, outcome);
        Ok(())
    }

    fn remove_radial(&self, w: &Buffer, radial: &Buffer, block: Block, dw: &mut Buffer) -> Result<()> {
        loss::remove_radial(w, radial, block, dw);
        Ok(())
    }

    fn cross_entropy(&self, labels: &Buffer, d: ViewMut<Self>, outcome: &mut Buffer) -> Result<()> {
        loss::cross_entropy(&labels[..d.shape.batch], d.slice(), outcome);
        Ok(())
    }

    fn clip(&self, gradients: &mut [&mut Buffer], limit: f32) -> Result<f32> {
        Ok(pointwise::clip(gradients, limit))
    }

    fn all_finite(&self, x: View<Self>) -> Result<bool> {
        Ok(pointwise::all_finite(x.slice()))
    }
}
