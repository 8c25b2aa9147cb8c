//! A convolution and the norm behind it. Our own convolutions sum up their output while they have it at hand, which
//! saves the norm a pass over memory; where cuDNN does the products, the norm's first pass adds the bias.

use super::conv::weight;
use super::narrow::Narrow;
use super::norm::{norm_of_map, norm_of_sums, sums_in, sums_with_bias};
use super::stem::Stem;
use super::{Cuda, Rows};
use crate::{
    Conv, Convolution, ConvolutionNorm, NormParams, NormStatistics, OutputStart, Relu, Result, View, ViewMut, Weight,
};

impl ConvolutionNorm for Cuda {
    fn conv_norm_train(
        &self,
        conv: &Conv,
        x: View<Self>,
        w: Weight<Self>,
        start: OutputStart<Self>,
        before: ViewMut<Self>,
        norm: NormParams<Self>,
        statistics: NormStatistics<Self>,
        residual: Option<View<Self>>,
        y: ViewMut<Self>,
    ) -> Result<()> {
        let (from, to) = (self.rows(x), self.rows_mut(&before));
        let (residual, y) = (residual.map(|r| self.rows(r)), self.rows_mut(&y));
        let origin = statistics.running_mean.pointer();
        let summing = if norm.relu == Relu::Before { None } else { Summing::new(self, conv, x, from, to) };
        let (sums, parts) = match (start, summing) {
            (OutputStart::Zero, Some(layer)) => {
                let parts = layer.parts(from, to);
                let sums = sums_in(self, parts, to.channels)?;
                layer.forward(from, weight(&w, from.format).0, to, origin, sums)?;
                (sums, parts)
            }
            (OutputStart::Bias(bias), _) if !conv.is_pointwise() => {
                self.conv_forward(conv, x, w, OutputStart::Zero, before)?;
                sums_with_bias(self, to, norm.relu, bias, origin)?
            }
            (start, _) => {
                self.conv_forward(conv, x, w, start, before)?;
                return norm_of_map(self, to, norm, statistics, residual, y);
            }
        };
        norm_of_sums(self, to, (sums, parts, 0), norm, statistics, residual, y)
    }
}

/// A layer whose kernel can sum up its output.
enum Summing<'a> {
    Narrow(Narrow<'a>),
    Stem(Stem<'a>),
}

impl<'a> Summing<'a> {
    fn new(cuda: &'a Cuda, conv: &Conv, x: View<Cuda>, from: Rows, to: Rows) -> Option<Self> {
        let narrow = Narrow::new(cuda, conv, x.shape, from, to).map(Self::Narrow);
        narrow.or_else(|| Stem::new(cuda, conv, x.shape, from, to).map(Self::Stem))
    }

    /// How many parts its sums come in.
    fn parts(&self, x: Rows, y: Rows) -> u32 {
        match self {
            Self::Narrow(layer) => layer.blocks(),
            Self::Stem(layer) => layer.grid(x, y).0,
        }
    }

    /// `y = w ∗ x`, and the parts of the sums of y relative to `origin`.
    fn forward(&self, x: Rows, w: u64, y: Rows, origin: u64, sums: u64) -> Result<()> {
        match self {
            Self::Narrow(layer) => layer.forward_with_sums(x, w, y, origin, sums),
            Self::Stem(layer) => layer.forward_with_sums(x, w, y, origin, sums),
        }
    }
}
