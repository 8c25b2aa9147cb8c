//! A layer with weights, and what happens to each channel before and after its products.

/// How a layer's weights meet its input. Convolutions [pad](Padding) by half their reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A matrix product, of one vector per utterance.
    Linear,
    /// Over time.
    Conv1d {
        /// Taps.
        kernel: usize,
        /// Frames from one output to the next.
        stride: usize,
        /// Frames from one tap to the next.
        dilation: usize,
    },
    /// Over frequency and time, in this order.
    Conv2d {
        /// Taps.
        kernel: [usize; 2],
        /// Positions from one output to the next.
        stride: [usize; 2],
    },
}

/// What a convolution reads beyond both ends of its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    #[default]
    Zeros,
    /// The input itself, mirrored at its first and its last frame. Only convolutions over time have it.
    Reflected,
}

/// A batch norm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormSpec {
    /// Its name in the `state_dict`.
    pub name: String,
    /// Whether it has a learned scale and shift.
    pub affine: bool,
}

/// What is done to every value on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointwise {
    /// A batch norm of each channel.
    Norm(NormSpec),
    /// The residual, the layer's last input, is added.
    Residual,
    /// max(x, 0)
    Relu,
    /// tanh x
    Tanh,
    /// 1 / (1 + e⁻ˣ)
    Sigmoid,
}

impl Pointwise {
    /// A batch norm with scale and shift.
    pub fn norm(name: impl Into<String>) -> Self {
        Self::Norm(NormSpec { name: name.into(), affine: true })
    }
}

/// `y = after(W ∗ before(x) + b)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// Its name in the `state_dict`, without `.weight`.
    pub name: String,
    /// How W is applied.
    pub kind: LayerKind,
    /// What it reads beyond the ends.
    pub padding: Padding,
    /// Channels of each input; W reads several inputs side by side.
    pub inputs: Vec<usize>,
    /// Channels of the output.
    pub outputs: usize,
    /// Whether there is a b.
    pub bias: bool,
    /// Done to the input, in this order.
    pub before: Vec<Pointwise>,
    /// Done to the sums, in this order.
    pub after: Vec<Pointwise>,
}

impl LayerSpec {
    /// A linear layer with bias.
    pub fn linear(name: impl Into<String>, inputs: usize, outputs: usize) -> Self {
        Self::new(name.into(), LayerKind::Linear, vec![inputs], outputs, true)
    }

    /// A convolution over time with bias; `inputs` are the channels of each input.
    pub fn conv1d(
        name: impl Into<String>,
        inputs: impl Into<Vec<usize>>,
        outputs: usize,
        kernel: usize,
        dilation: usize,
    ) -> Self {
        Self::new(name.into(), LayerKind::Conv1d { kernel, stride: 1, dilation }, inputs.into(), outputs, true)
    }

    /// A square convolution over frequency and time without bias.
    pub fn conv2d(name: impl Into<String>, inputs: usize, outputs: usize, kernel: usize, stride: [usize; 2]) -> Self {
        let kind = LayerKind::Conv2d { kernel: [kernel; 2], stride };
        Self::new(name.into(), kind, vec![inputs], outputs, false)
    }

    fn new(name: String, kind: LayerKind, inputs: Vec<usize>, outputs: usize, bias: bool) -> Self {
        Self { name, kind, padding: Padding::Zeros, inputs, outputs, bias, before: Vec::new(), after: Vec::new() }
    }

    /// The same with other `before`.
    pub fn before(self, before: impl Into<Vec<Pointwise>>) -> Self {
        Self { before: before.into(), ..self }
    }

    /// The same with other `after`.
    pub fn after(self, after: impl Into<Vec<Pointwise>>) -> Self {
        Self { after: after.into(), ..self }
    }

    /// The same, its input mirrored at both ends.
    pub fn reflected(self) -> Self {
        Self { padding: Padding::Reflected, ..self }
    }

    /// Frames that are mirrored at each end; the input must have more than these.
    pub fn mirrored(&self) -> usize {
        match self.kind {
            LayerKind::Conv1d { kernel, dilation, .. } if self.padding == Padding::Reflected => dilation * (kernel / 2),
            _ => 0,
        }
    }

    /// Whether W is one matrix for every position: a linear layer, or a convolution with a single tap.
    pub fn is_pointwise(&self) -> bool {
        self.shape().len() == 2 || matches!(self.kind, LayerKind::Conv1d { kernel: 1, stride: 1, .. })
    }

    /// The shape of W in PyTorch's order: outputs, inputs, taps.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape = vec![self.outputs, self.inputs.iter().sum()];
        match self.kind {
            LayerKind::Linear => {}
            LayerKind::Conv1d { kernel, .. } => shape.push(kernel),
            LayerKind::Conv2d { kernel, .. } => shape.extend(kernel),
        }
        shape
    }

    /// How many weights W has.
    pub fn weights(&self) -> usize {
        self.shape().iter().product()
    }

    /// Rows and columns of W as a matrix.
    pub fn matrix(&self) -> [usize; 2] {
        [self.outputs, self.weights() / self.outputs]
    }

    /// The norm of the output, wherever in `after` it stands.
    pub fn norm_after(&self) -> Option<&NormSpec> {
        norm(&self.after)
    }

    /// The norm of the input.
    pub fn norm_before(&self) -> Option<&NormSpec> {
        norm(&self.before)
    }

    /// The norm of the input, if a ReLU follows it: that cannot be folded into the weights.
    pub fn norm_before_relu(&self) -> Option<&NormSpec> {
        self.before.contains(&Pointwise::Relu).then(|| self.norm_before()).flatten()
    }

    /// Whether a ReLU follows the products.
    pub fn relu(&self) -> bool {
        self.after.contains(&Pointwise::Relu)
    }

    /// The norm of the output, if it comes after a ReLU.
    pub fn norm_after_relu(&self) -> Option<&NormSpec> {
        let relu = self.after.iter().position(|step| *step == Pointwise::Relu)?;
        norm(&self.after[relu..])
    }

    /// Name and shape of every tensor of floating-point numbers in the `state_dict`.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut tensors = vec![(format!("{}.weight", self.name), self.shape())];
        if self.bias {
            tensors.push((format!("{}.bias", self.name), vec![self.outputs]));
        }
        let inputs = self.inputs.iter().sum();
        for (norm, channels) in [(self.norm_before(), inputs), (self.norm_after(), self.outputs)] {
            let Some(NormSpec { name, affine }) = norm else { continue };
            let learned: &[&str] = if *affine { &["weight", "bias"] } else { &[] };
            let parts = learned.iter().chain(&["running_mean", "running_var"]);
            tensors.extend(parts.map(|part| (format!("{name}.{part}"), vec![channels])));
        }
        tensors
    }
}

fn norm(steps: &[Pointwise]) -> Option<&NormSpec> {
    steps.iter().find_map(|step| if let Pointwise::Norm(norm) = step { Some(norm) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second half of a dense TDNN layer of CAM++: norms on both sides, and one without scale and shift.
    #[test]
    fn a_layer_may_have_a_norm_and_a_relu_on_both_sides() {
        let layer = LayerSpec { bias: false, ..LayerSpec::conv1d("linear1", [24], 32, 1, 1) }
            .before([Pointwise::norm("nonlinear1.batchnorm"), Pointwise::Relu])
            .after([Pointwise::Norm(NormSpec { name: "nonlinear2.batchnorm".into(), affine: false }), Pointwise::Relu]);
        assert_eq!(layer.shape(), [32, 24, 1]);
        assert!(layer.relu() && layer.norm_after_relu().is_none());
        let named = |name: &str, size: usize| (name.to_owned(), vec![size]);
        assert_eq!(
            layer.tensors()[1..],
            [
                named("nonlinear1.batchnorm.weight", 24),
                named("nonlinear1.batchnorm.bias", 24),
                named("nonlinear1.batchnorm.running_mean", 24),
                named("nonlinear1.batchnorm.running_var", 24),
                named("nonlinear2.batchnorm.running_mean", 32),
                named("nonlinear2.batchnorm.running_var", 32),
            ]
        );
    }
}
