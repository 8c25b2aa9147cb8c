//! A convolution and the batch norm behind it, for backends that gain from doing both at once.

use super::{BatchNorm, Convolution, NormParams, NormStatistics, OutputStart, Weight};
use crate::{Conv, Result, View, ViewMut};

/// What is one pass over memory where a backend can, and otherwise the one after the other.
pub trait ConvolutionNorm: Convolution + BatchNorm {
    /// [`Convolution::conv_forward`] into `before`, then [`BatchNorm::norm_train`] of that into `y`.
    #[allow(clippy::too_many_arguments)]
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
        let ViewMut { data, first, of, shape } = before;
        self.conv_forward(conv, x, w, start, ViewMut { data, first, of, shape })?;
        self.norm_train(View { data, first, of, shape }, norm, statistics, residual, y)
    }
}
