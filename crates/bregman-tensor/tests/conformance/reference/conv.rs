//! Convolution: `y[b, o, p] = start + Σ w[o, i, t] · x[b, i, p · stride + t · dilation − padding]`.

use bregman_tensor::{Block, Conv, Convolution, Result, Shape, Start, View, ViewMut, Weight};

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

/// Every product of the convolution: item, output channel and position, input channel and position, column of the
/// weight.
fn products(
    conv: &Conv,
    input: Shape,
    output: Shape,
    mut each: impl FnMut(usize, (usize, usize), (usize, usize), usize),
) {
    let pairs = |tap| (0..output.positions()).filter_map(move |p| Some((p, seen(conv, input, output, p, tap)?)));
    let pairs: Vec<Vec<(usize, usize)>> = (0..conv.taps()).map(|tap| pairs(tap).collect()).collect();
    for b in 0..output.batch {
        for o in 0..output.channels {
            for i in 0..input.channels {
                for (tap, pairs) in pairs.iter().enumerate() {
                    pairs.iter().for_each(|&(p, at)| each(b, (o, p), (i, at), i * conv.taps() + tap));
                }
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
        start: Start<Self>,
        mut y: ViewMut<Self>,
    ) -> Result<()> {
        match start {
            Start::Zero => y.fill(|_, _, _, _| 0.0),
            Start::Bias(bias) => y.fill(|_, c, _, _| bias[c]),
            Start::Keep => {}
        }
        products(conv, x.shape, y.shape, |b, (o, p), (i, at), column| {
            let weight = w.value[o * w.block.stride + w.block.first + column];
            y.set(b, o, p, y.get(b, o, p) + weight * x.get(b, i, at));
        });
        Ok(())
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
        products(conv, dx.shape, dy.shape, |b, (o, p), (i, at), column| {
            let weight = w.value[o * w.block.stride + w.block.first + column];
            dx.set(b, i, at, dx.get(b, i, at) + weight * dy.get(b, o, p));
        });
        Ok(())
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
        products(conv, x.shape, dy.shape, |b, (o, p), (i, at), column| {
            dw[o * block.stride + block.first + column] += dy.get(b, o, p) * x.get(b, i, at);
        });
        Ok(())
    }

    fn conv_backward_bias(&self, dy: View<Self>, db: &mut Vec<f64>) -> Result<()> {
        db.fill(0.0);
        indices(dy.shape).for_each(|(b, c, p)| db[c] += dy.get(b, c, p));
        Ok(())
    }
}
