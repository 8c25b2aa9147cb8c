//! Convolution: `y[b, o, p] = start + Σ w[o, i, t] · x[b, i, p · stride + t · dilation − padding]`.

use bregman_tensor::{Block, Conv, Convolution, OutputStart, Result, Shape, View, ViewMut, Weight};

use super::{Read, Reference, Write, indices};

/// The input position that tap `tap` of output position `p` sees; `None` in the padding.
fn seen(conv: &Conv, input: Shape, output: Shape, p: usize, tap: usize) -> Option<usize> {
    let along = |axis: usize, p: usize, tap: usize, size: usize| {
        let at = (p * conv.stride[axis] + tap * conv.dilation[axis]).checked_sub(conv.padding[axis])?;
        (at < size).then_some(at)
    };
    let row = along(0, p / output.width, tap / conv.kernel[1], input.height)?;
    let column = along(1, p % output.width, tap % conv.kernel[1], input.width)?;
    Some(row * input.width + column)
}

/// One tap of one pair of channels: item, output and input channel, column of the weight, and which input position
/// each output position sees.
struct Tap<'a> {
    b: usize,
    o: usize,
    i: usize,
    column: usize,
    pairs: &'a [(usize, usize)],
}

fn taps(conv: &Conv, input: Shape, output: Shape, mut each: impl FnMut(Tap)) {
    let pairs = |tap| (0..output.positions()).filter_map(move |p| Some((p, seen(conv, input, output, p, tap)?)));
    let pairs: Vec<Vec<(usize, usize)>> = (0..conv.taps()).map(|tap| pairs(tap).collect()).collect();
    for (b, o, _) in indices(Shape { height: 1, width: 1, ..output }) {
        for i in 0..input.channels {
            for (tap, pairs) in pairs.iter().enumerate() {
                each(Tap { b, o, i, column: i * conv.taps() + tap, pairs });
            }
        }
    }
}

impl Convolution for Reference {
    fn conv_forward(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: OutputStart<Self>,
        mut y: ViewMut<Self>,
    ) -> Result<()> {
        match start {
            OutputStart::Zero => y.fill(|_, _, _, _| 0.0),
            OutputStart::Bias(bias) => y.fill(|_, c, _, _| bias[c]),
            OutputStart::Keep => {}
        }
        taps(conv, x.shape, y.shape, |Tap { b, o, i, column, pairs }| {
            let weight = w.value[o * w.block.stride + w.block.first + column];
            let (x, y) = (x.row(b, i), y.row_mut(b, o));
            pairs.iter().for_each(|&(p, at)| y[p] += weight * x[at]);
        });
        self.store(&mut y)
    }

    fn conv_backward_input(
        &self,
        conv: &Conv,
        w: Weight<Self>,
        dy: View<Self>,
        add: bool,
        mut dx: ViewMut<Self>,
    ) -> Result<()> {
        if !add {
            dx.fill(|_, _, _, _| 0.0);
        }
        taps(conv, dx.shape, dy.shape, |Tap { b, o, i, column, pairs }| {
            let weight = w.value[o * w.block.stride + w.block.first + column];
            let (dy, dx) = (dy.row(b, o), dx.row_mut(b, i));
            pairs.iter().for_each(|&(p, at)| dx[at] += weight * dy[p]);
        });
        self.store(&mut dx)
    }

    fn conv_backward_weight(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        block: Block,
        dw: &mut Vec<f64>,
    ) -> Result<()> {
        for row in 0..block.rows {
            dw[row * block.stride + block.first..][..block.columns].fill(0.0);
        }
        taps(conv, x.shape, dy.shape, |Tap { b, o, i, column, pairs }| {
            let (x, dy) = (x.row(b, i), dy.row(b, o));
            dw[o * block.stride + block.first + column] += pairs.iter().map(|&(p, at)| dy[p] * x[at]).sum::<f64>();
        });
        Ok(())
    }

    fn conv_backward_support(
        &self,
        conv: &Conv,
        x: View<Self>,
        dy: View<Self>,
        w: Weight<Self>,
        dw: &mut Vec<f64>,
    ) -> Result<()> {
        self.conv_backward_weight(conv, x, dy, w.block, dw)?;
        let Block { rows, stride, first, columns, .. } = w.block;
        let inside = (0..rows).flat_map(|row| (0..columns).map(move |column| row * stride + first + column));
        inside.filter(|&i| w.support()[i] == 0.0).for_each(|i| dw[i] = 0.0);
        Ok(())
    }

    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Vec<f64>) -> Result<()> {
        db.fill(0.0);
        indices(dy.shape).for_each(|(b, c, p)| db[c] += dy.get(b, c, p));
        Ok(())
    }
}
