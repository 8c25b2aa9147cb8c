//! A convolution and the norm behind it in one operation.

use bregman_tensor::{Backend, Block, Conv, NormParams, NormStatistics, OutputStart, Relu, Shape, Tensor, Weight};

use super::cases::Cases;
use crate::harness::{exact, tensor};

impl<B: Backend> Cases<'_, B> {
    /// Every layer that a backend may join: without a bias and with one, and a residual where there is a ReLU after it.
    pub(super) fn conv_norms(&mut self) {
        for (channels, outputs) in [(1, 32), (1, 24), (32, 32), (64, 64), (8, 16), (5, 7)] {
            for (batch, height, width) in [(3, 17, 35), (1, 3, 5), (1, 40, 1), (2, 1, 70), (5, 40, 75)] {
                let input = Shape { channels, batch, height, width };
                for relu in [Relu::Absent, Relu::After] {
                    self.conv_norm(Conv::square(3, 1), input, outputs, relu);
                }
                // of a few positions a ReLU may leave a single one, and rounding decides the deviation
                if input.plane() > 100 {
                    self.conv_norm(Conv::square(3, 1), input, outputs, Relu::Before);
                }
            }
        }
        self.conv_norm(Conv::POINTWISE, Shape::signal(16, 2, 301), 24, Relu::Before);
        self.conv_norm(Conv::square(3, 2), Shape { channels: 32, batch: 2, height: 9, width: 31 }, 64, Relu::After);
    }

    /// What the kernels that sum up their own output compute before the norm, which divides.
    pub(super) fn conv_norm_products(&mut self) {
        let before = self.results.len();
        for (channels, outputs) in [(1, 32), (1, 24), (32, 32), (64, 64), (5, 7)] {
            for (batch, height, width) in [(3, 17, 35), (1, 3, 5), (1, 40, 1), (2, 1, 70), (300, 2, 3)] {
                let input = Shape { channels, batch, height, width };
                self.conv_norm(Conv::square(3, 1), input, outputs, Relu::Absent);
            }
        }
        let results = self.results.split_off(before);
        self.results.extend(results.into_iter().filter(|(name, _)| name.starts_with("output of convolution")));
    }

    fn conv_norm(&mut self, conv: Conv, input: Shape, outputs: usize, relu: Relu) {
        let name = |what: &str| format!("{what} of convolution and norm, relu {relu:?}, {input:?} → {outputs}");
        let (backend, output) = (self.backend, conv.output(input, outputs));
        // with a mean of 1, so that the sums of a channel do not cancel down to their rounding errors; what a ReLU lets
        // pass does not cancel
        let mean = if relu == Relu::Before { 0.0 } else { 1.0 };
        let x: Vec<f32> = self.numbers(input.len()).into_iter().map(|value| value + mean).collect();
        let x = tensor(backend, input, &x);
        let (columns, taps) = (input.channels * conv.taps(), conv.taps());
        let block = Block { rows: outputs, stride: columns, first: 0, columns, taps };
        let value = exact(backend, &self.numbers(outputs * columns));
        let mut copies = B::Copies::default();
        backend.refresh(&value, None, block, &mut copies).unwrap();
        let w = Weight { value: &value, mask: None, block, copies: &copies };
        let bias = exact(backend, &self.numbers(outputs));
        // far from 0, so that rounding does not decide what the last ReLU lets pass
        let far = |channel: usize| if channel % 3 == 1 { -6.0 } else { 6.0 };
        let shift = exact(backend, &(0..outputs).map(far).collect::<Vec<f32>>());
        let scale = exact(backend, &self.random.values(outputs));
        let residual = self.tensor(output);
        for (start, residual) in [(OutputStart::Zero, None), (OutputStart::Bias(&bias), Some(residual.view()))] {
            let residual = residual.filter(|_| relu == Relu::After);
            let [mut mean, mut inverse_std, mut running_mean] =
                std::array::from_fn(|_| exact(backend, &self.random.values(outputs)));
            let mut running_variance = exact(backend, &vec![0.7; outputs]);
            let statistics = NormStatistics {
                mean: &mut mean,
                inverse_std: &mut inverse_std,
                running_mean: &mut running_mean,
                running_variance: &mut running_variance,
            };
            let norm = NormParams { scale: &scale, shift: &shift, relu, fixed: false };
            let [mut before, mut y]: [Tensor<B>; 2] = std::array::from_fn(|_| self.poisoned(output));
            let (to, out) = (before.view_mut(), y.view_mut());
            backend.conv_norm_train(&conv, x.view(), w, start, to, norm, statistics, residual, out).unwrap();
            self.keep(&name("output"), &before);
            self.keep(&name("norm"), &y);
            for (what, buffer) in [
                ("mean", &mean),
                ("1/std", &inverse_std),
                ("running mean", &running_mean),
                ("running variance", &running_variance),
            ] {
                self.keep_exact(&name(what), buffer, outputs);
            }
        }
    }
}
