//! From a training state to a model: the classifier is dropped, batch norms are folded into weights where that is
//! exact.
//!
//! A batch norm in evaluation is u ↦ s·u + t with s = γ/√(σ² + ε) and t = β − s·μ. After a layer without anything
//! between (ResNet), W ← diag(s)·W and b ← s·b + t; before a linear one (the end of ECAPA), b ← b + W·t, then W ←
//! W·diag(s). Zeros stay zeros. In ECAPA's frame layers a ReLU stands between, and the next convolution pads with zeros
//! *after* the norm, or mirrors its input: there it is stored as a scale and a shift. So is the norm of CAM++ that a
//! ReLU separates from the weights after it.

use bregman_network::{LayerSpec, NormSpec, Pointwise};

use crate::file::{Layer, ModelFile};
use crate::{Architecture, Error, FrontEnd, Result};

/// ε of a batch norm (PyTorch's default).
const NORM_EPSILON: f32 = 1e-5;

impl ModelFile {
    /// Builds a model from named tensors, as WeSpeaker's `state_dict` or a checkpoint of `bregman train` has them:
    /// `tensor` gives shape and values. Tensors that are not asked for, such as the classifier, are left out.
    ///
    /// # Errors
    /// An impossible architecture; a tensor that is missing, has another shape or a value that is not finite.
    pub fn from_state<'a>(
        architecture: Architecture,
        front_end: FrontEnd,
        tensor: impl Fn(&str) -> Option<(&'a [usize], &'a [f32])>,
    ) -> Result<Self> {
        architecture.check()?;
        let find = |name: &str, shape: &[usize]| -> Result<&'a [f32]> {
            let (found, values) =
                tensor(name).ok_or_else(|| Error::tensor(name, "is missing: is it of another network or size?"))?;
            if found != shape || values.len() != shape.iter().product::<usize>() {
                return Err(Error::tensor(name, format!("has shape {found:?}, the network {shape:?}")));
            }
            if values.iter().any(|value| !value.is_finite()) {
                return Err(Error::tensor(name, "has a value that is not finite"));
            }
            Ok(values)
        };
        let layers = architecture.layers().iter().map(|spec| fold(spec, find)).collect::<Result<_>>()?;
        Ok(Self { architecture, front_end, threshold: None, layers })
    }
}

fn fold<'a>(spec: &LayerSpec, find: impl Fn(&str, &[usize]) -> Result<&'a [f32]>) -> Result<Layer> {
    let [rows, columns] = spec.matrix();
    let mut weight = find(&format!("{}.weight", spec.name), &spec.shape())?.to_vec();
    let mut bias = if spec.bias { find(&format!("{}.bias", spec.name), &[rows])?.to_vec() } else { vec![0.0; rows] };
    let affine = |norm: &NormSpec, channels: usize| -> Result<[Vec<f32>; 2]> {
        let part = |part: &str| find(&format!("{}.{part}", norm.name), &[channels]);
        let (mean, variance) = (part("running_mean")?, part("running_var")?);
        let (ones, zeros) = (vec![1.0; channels], vec![0.0; channels]);
        let (gamma, beta) = if norm.affine { (part("weight")?, part("bias")?) } else { (&ones[..], &zeros[..]) };
        let scale: Vec<f32> =
            gamma.iter().zip(variance).map(|(gamma, variance)| gamma / (variance + NORM_EPSILON).sqrt()).collect();
        let shift =
            scale.iter().zip(mean).zip(beta).map(|((&scale, &mean), &beta)| (-scale).mul_add(mean, beta)).collect();
        Ok([scale, shift])
    };
    let (mut input_mean, mut before) = (None, None);
    match &spec.before[..] {
        [] => {}
        [Pointwise::Norm(norm)] if spec.is_pointwise() => {
            let [scale, shift] = affine(norm, columns)?;
            input_mean = Some(find(&format!("{}.running_mean", norm.name), &[columns])?.to_vec());
            for (row, weights) in weight.chunks_exact_mut(columns).enumerate() {
                let sum: f64 =
                    weights.iter().zip(&shift).map(|(&weight, &shift)| f64::from(weight) * f64::from(shift)).sum();
                bias[row] = (f64::from(bias[row]) + sum) as f32;
                weights.iter_mut().zip(&scale).for_each(|(weight, scale)| *weight *= scale);
            }
        }
        [Pointwise::Norm(norm), Pointwise::Relu] => before = Some(affine(norm, spec.inputs.iter().sum())?),
        _ => return Err(Error::tensor(&spec.name, "what comes before it cannot be folded into its weights")),
    }
    if let [Pointwise::Norm(norm), ..] = &spec.after[..] {
        let [scale, shift] = affine(norm, rows)?;
        for (row, weights) in weight.chunks_exact_mut(columns).enumerate() {
            weights.iter_mut().for_each(|weight| *weight *= scale[row]);
            bias[row] = scale[row].mul_add(bias[row], shift[row]);
        }
    }
    let after_relu = spec.norm_after_relu().map(|norm| affine(norm, rows)).transpose()?;
    Ok(Layer { weight, bias, after_relu, before, input_mean, input_range: None })
}
