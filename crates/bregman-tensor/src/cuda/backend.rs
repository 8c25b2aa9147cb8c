//! The [`Backend`] of a GPU: which file does what.

use super::transfer::When;
use super::{
    Buffer, Copies, Cuda, Filterbank, Recording, conv, filterbank, graph, loss, multi, norm, pointwise, pooling,
    transfer,
};
use crate::{
    Activation, Backend, Block, Conv, FilterbankTables, Margin, Norm, NormGradients, NormStatistics, Result, Start,
    Storage, View, ViewMut, Weight,
};

impl Backend for Cuda {
    type Buffer = Buffer;
    type Copies = Copies;
    type Recording = Recording;
    type Filterbank = Filterbank;

    fn alloc(&self, len: usize, storage: Storage) -> Result<Buffer> {
        Buffer::zeros(&self.device, len * self.bytes_per_value(storage))
    }

    fn bytes_per_value(&self, storage: Storage) -> usize {
        match storage {
            Storage::Exact | Storage::Vector => 4,
            Storage::Map => self.map_format().bytes(),
        }
    }

    fn upload(&self, from: &[f32], to: &mut Buffer) -> Result<()> {
        to.upload(from)
    }

    fn download(&self, from: &Buffer, to: &mut [f32]) -> Result<()> {
        from.download(to)
    }

    fn write(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        transfer::write(self, from, to)
    }

    fn write_frames(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        transfer::write_frames(self, from, to, When::InTurn)
    }

    fn write_frames_ahead(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        transfer::write_frames(self, from, to, When::Beside)
    }

    fn replay(&self, recording: &mut Recording, key: &[u64]) -> Result<bool> {
        graph::replay(self, recording, key)
    }

    fn recorded(&self, recording: &mut Recording, done: bool) -> Result<bool> {
        graph::recorded(self, recording, done)
    }

    fn filterbank(&self, tables: FilterbankTables) -> Result<Filterbank> {
        Filterbank::new(self, tables)
    }

    fn write_samples(&self, filterbank: &Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        filterbank::write_samples(self, filterbank, from, to, When::InTurn)
    }

    fn write_samples_ahead(&self, filterbank: &Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        filterbank::write_samples(self, filterbank, from, to, When::Beside)
    }

    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()> {
        transfer::read(self, from, to)
    }

    fn refresh(&self, value: &Buffer, block: Block, copies: &mut Copies) -> Result<()> {
        conv::pack(self, value, block, copies)
    }

    fn conv_forward(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: Start<Self>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        conv::forward(self, conv, x, w, start, y)
    }

    fn conv_backward_input(
        &self,
        conv: &Conv,
        w: Weight<Self>,
        dy: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        conv::backward_input(self, conv, w, dy, add, dx)
    }

    fn conv_backward_weight(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        block: Block,
        dw: &mut Buffer,
    ) -> Result<()> {
        conv::backward_weight(self, conv, x, dy, block, dw)
    }

    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Buffer) -> Result<()> {
        conv::backward_bias(self, dy, db)
    }

    fn norm_train(
        &self,
        x: View<Self>,
        norm: Norm<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        norm::train(self, x, norm, statistics, residual, y)
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
        norm::eval(self, x, norm, running_mean, running_variance, residual, y)
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
        norm::backward(self, x, y, norm, mean, inverse_std, d, dresidual, gradients)
    }

    fn copy(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        pointwise::copy(self, from, to)
    }

    fn add(&self, a: View<Self>, b: View<Self>, sum: ViewMut<Self>) -> Result<()> {
        pointwise::add(self, a, b, sum)
    }

    fn accumulate(&self, from: View<Self>, to: ViewMut<Self>) -> Result<()> {
        pointwise::accumulate(self, from, to)
    }

    fn activate(&self, f: Activation, x: ViewMut<Self>) -> Result<()> {
        pointwise::activate(self, f, x)
    }

    fn activate_backward(&self, f: Activation, y: View<Self>, d: ViewMut<Self>) -> Result<()> {
        pointwise::activate_backward(self, f, y, d)
    }

    fn mean_forward(&self, x: View<Self>, mean: ViewMut<Self>) -> Result<()> {
        pooling::mean(self, x, mean)
    }

    fn gate_forward(&self, x: View<Self>, gate: View<Self>, residual: View<Self>, y: ViewMut<Self>) -> Result<()> {
        pooling::gate(self, x, gate, residual, y)
    }

    fn gate_backward_gate(&self, x: View<Self>, dy: View<Self>, dgate: ViewMut<Self>) -> Result<()> {
        pooling::gate_backward_gate(self, x, dy, dgate)
    }

    fn gate_backward_input(
        &self,
        gate: View<Self>,
        dmean: View<Self>,
        dy: View<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        pooling::gate_backward_input(self, gate, dmean, dy, dx)
    }

    fn moments_forward(&self, x: View<Self>, stats: ViewMut<Self>) -> Result<()> {
        pooling::moments(self, x, stats)
    }

    fn moments_backward(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        pooling::moments_backward(self, x, stats, dstats, add, dx)
    }

    fn context_tanh(&self, context: Option<View<Self>>, h: ViewMut<Self>) -> Result<()> {
        pooling::context_tanh(self, context, h)
    }

    fn context_tanh_backward(&self, a: View<Self>, d: ViewMut<Self>, dcontext: Option<ViewMut<Self>>) -> Result<()> {
        pooling::context_tanh_backward(self, a, d, dcontext)
    }

    fn attentive_forward(&self, x: View<Self>, attention: ViewMut<Self>, stats: ViewMut<Self>) -> Result<()> {
        pooling::attentive(self, x, attention, stats)
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
        pooling::attentive_backward(self, x, attention, stats, dstats, dlogits, dx)
    }

    fn unit_forward(&self, x: View<Self>, unit: ViewMut<Self>, lengths: &mut Buffer) -> Result<()> {
        loss::unit(self, x, unit, lengths)
    }

    fn unit_backward(&self, unit: View<Self>, lengths: &Buffer, d: ViewMut<Self>) -> Result<()> {
        loss::unit_backward(self, unit, lengths, d)
    }

    fn row_lengths(&self, w: &Buffer, block: Block, lengths: &mut Buffer) -> Result<()> {
        loss::row_lengths(self, w, block, lengths)
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
        loss::margin(self, margin, row_lengths, labels, d, radial, outcome)
    }

    fn remove_radial(&self, w: &Buffer, radial: &Buffer, block: Block, dw: &mut Buffer) -> Result<()> {
        loss::remove_radial(self, w, radial, block, dw)
    }

    fn cross_entropy(&self, labels: &Buffer, d: ViewMut<Self>, outcome: &mut Buffer) -> Result<()> {
        loss::cross_entropy(self, labels, d, outcome)
    }

    fn clip(&self, gradients: &mut [&mut Buffer], limit: f32) -> Result<f32> {
        multi::clip(self, gradients, limit)
    }

    fn all_finite(&self, x: View<Self>) -> Result<bool> {
        pointwise::all_finite(self, x)
    }
}
