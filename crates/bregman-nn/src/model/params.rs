//! All weights of a network in one place, by name; layers hold their numbers.
//!
//! One flat list is what an optimizer, a checkpoint and a multi-tensor kernel want to walk over.

use bregman::{Param, Role};
use bregman_network::NormSpec;
use bregman_tensor::{
    Backend, Block, Conv, NormGradients, NormParams, NormStatistics, Relu, Storage, SupportPart, View, Weight,
    constants,
};

use super::sums::support_parts;
use crate::{Extent, Result, Rng};

/// One named parameter with its gradient.
pub struct Parameter<B: Backend> {
    /// Name in the `state_dict`, shape in PyTorch's order, role.
    pub param: Param,
    /// The values. Whoever changes them calls [`Params::refresh`] afterwards.
    pub value: B::Buffer,
    /// Gradient of the last backward pass.
    pub grad: B::Buffer,
    /// Whether its zeros may stay for some steps: then passes with [`Extent::Support`] leave their gradient out.
    pub sparse: bool,
    /// Where it may be other than zero, if that is restricted: not zero there.
    mask: Option<B::Buffer>,
    blocks: Vec<(Block, B::Copies)>,
}

impl<B: Backend> Parameter<B> {
    /// Column block `i` as kernels read it.
    pub fn weight(&self, i: usize) -> Weight<'_, B> {
        let (block, copies) = &self.blocks[i];
        Weight { value: &self.value, mask: self.mask.as_ref(), block: *block, copies }
    }

    /// From the next refresh on passes with [`Extent::Support`] compute the gradients of all weights marked `true`,
    /// zero or not; an empty mask marks all. Without a mask they compute those of weights that are not zero.
    pub fn set_mask(&mut self, backend: &B, mask: &[bool]) -> Result<()> {
        if mask.is_empty() && self.mask.is_none() {
            return Ok(());
        }
        let kept = |i: usize| f32::from(mask.get(i).copied().unwrap_or(true));
        let values: Vec<f32> = (0..self.param.len()).map(kept).collect();
        if self.mask.is_none() {
            self.mask = Some(backend.alloc(values.len(), Storage::Exact)?);
        }
        let buffer = self.mask.as_mut().expect("allocated above"); // kept for good: captured steps know where it is
        Ok(backend.upload(&values, buffer)?)
    }

    /// What ranks sum after passes with [`Extent::Support`].
    pub(super) fn support_part(&mut self) -> SupportPart<'_, B> {
        let support = self.mask.as_ref().unwrap_or(&self.value);
        SupportPart { gradient: &mut self.grad, support: self.sparse.then_some(support) }
    }

    /// `dWᵢ = dy ∗ x` of column block `i`, for all weights or for those that are not zero.
    pub fn backward(
        &mut self,
        backend: &B,
        extent: Extent,
        conv: &Conv,
        i: usize,
        x: View<B>,
        dy: View<B>,
    ) -> Result<()> {
        let (block, copies) = &self.blocks[i];
        if extent == Extent::All || !self.sparse {
            return Ok(backend.conv_backward_weight(conv, x, dy, *block, &mut self.grad)?);
        }
        let weight = Weight { value: &self.value, mask: self.mask.as_ref(), block: *block, copies };
        Ok(backend.conv_backward_support(conv, x, dy, weight, &mut self.grad)?)
    }

    /// Column blocks; none where it is no weight.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Where column block `i` lies.
    pub fn block(&self, i: usize) -> Block {
        self.blocks[i].0
    }
}

/// The state of one batch norm.
pub struct NormState<B: Backend> {
    /// Name of the layer.
    pub name: String,
    /// Channels.
    pub channels: usize,
    /// Running mean.
    pub running_mean: B::Buffer,
    /// Running unbiased variance.
    pub running_variance: B::Buffer,
    /// Training batches seen.
    pub batches: u64,
    mean: B::Buffer,
    inverse_std: B::Buffer,
    /// Where scale and shift are not learned.
    fixed: Option<FixedAffine<B>>,
}

/// A scale of 1 and a shift of 0, and where their gradients go, which nobody reads.
struct FixedAffine<B: Backend> {
    scale: B::Buffer,
    shift: B::Buffer,
    unread: [B::Buffer; 2],
}

impl<B: Backend> NormState<B> {
    /// The running statistics as they are before the first batch: mean 0, variance 1.
    pub fn reset(&mut self, backend: &B) -> Result<()> {
        backend.upload(&vec![0.0; self.channels], &mut self.running_mean)?;
        backend.upload(&vec![1.0; self.channels], &mut self.running_variance)?;
        self.batches = 0;
        Ok(())
    }
}

impl<B: Backend> FixedAffine<B> {
    fn new(backend: &B, channels: usize) -> Result<Self> {
        let zeros = || backend.alloc(channels, Storage::Exact);
        let mut scale = zeros()?;
        backend.upload(&vec![1.0; channels], &mut scale)?;
        Ok(Self { scale, shift: zeros()?, unread: [zeros()?, zeros()?] })
    }
}

/// Number of a parameter in its [`Params`].
#[derive(Clone, Copy, Debug)]
pub struct ParamId(usize);

impl ParamId {
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// Number of a batch norm in its [`Params`].
#[derive(Clone, Copy, Debug)]
pub struct NormId(usize);

/// Every parameter and batch norm of a network.
pub struct Params<B: Backend> {
    list: Vec<Parameter<B>>,
    norms: Vec<NormState<B>>,
    fixed_norms: bool,
    /// Where weights have gradients, for ranks that sum these alone.
    support: B::Support,
    /// Whether no zero has moved since that was found.
    knows_support: bool,
}

impl<B: Backend> Default for Params<B> {
    fn default() -> Self {
        let (support, knows_support) = (B::Support::default(), false);
        Self { list: Vec::new(), norms: Vec::new(), fixed_norms: false, support, knows_support }
    }
}

impl<B: Backend> Params<B> {
    /// All parameters, in the order of their layers.
    pub fn all(&self) -> &[Parameter<B>] {
        &self.list
    }

    /// What an optimizer must know of every parameter.
    pub fn described(&self) -> Vec<Param> {
        self.list.iter().map(|parameter| parameter.param.clone()).collect()
    }

    /// All parameters, to change; then call [`Params::refresh`].
    pub fn all_mut(&mut self) -> &mut [Parameter<B>] {
        &mut self.list
    }

    /// What an optimizer's step takes: the values to change and their gradients. Call [`Params::refresh`] afterwards.
    pub fn values_and_gradients(&mut self) -> (Vec<&mut B::Buffer>, Vec<&B::Buffer>) {
        self.list.iter_mut().map(|parameter| (&mut parameter.value, &parameter.grad)).unzip()
    }

    /// From now on training passes normalise with the running statistics as they are now, which no batch moves.
    pub fn fix_norms(&mut self, backend: &B) -> Result<()> {
        for norm in &mut self.norms {
            let [mut mean, mut variance] = [(); 2].map(|()| vec![0.0; norm.channels]);
            backend.download(&norm.running_mean, &mut mean)?;
            backend.download(&norm.running_variance, &mut variance)?;
            let inverse_std: Vec<f32> = variance.iter().map(|v| 1.0 / (v + constants::NORM_EPSILON).sqrt()).collect();
            backend.upload(&mean, &mut norm.mean)?;
            backend.upload(&inverse_std, &mut norm.inverse_std)?;
        }
        self.fixed_norms = true;
        Ok(())
    }

    /// Whether batches leave the statistics of the norms alone.
    pub fn norms_are_fixed(&self) -> bool {
        self.fixed_norms
    }

    /// All batch norms.
    pub fn norms(&self) -> &[NormState<B>] {
        &self.norms
    }

    /// All batch norms, to change.
    pub fn norms_mut(&mut self) -> &mut [NormState<B>] {
        &mut self.norms
    }

    /// Brings the device's compressed or converted copies of all weights up to date with their values.
    pub fn refresh(&mut self, backend: &B) -> Result<()> {
        self.refresh_after(Extent::All, backend)
    }

    /// As [`Params::refresh`] after a step of this extent, which may have left zeros where they were.
    pub fn refresh_after(&mut self, extent: Extent, backend: &B) -> Result<()> {
        self.knows_support &= extent == Extent::Support;
        B::run_kernels(|| {
            for Parameter { value, mask, blocks, sparse, .. } in &mut self.list {
                for (block, copies) in blocks {
                    if *sparse && extent == Extent::Support {
                        backend.refresh_support(value, mask.as_ref(), *block, copies)?;
                    } else {
                        backend.refresh(value, mask.as_ref(), *block, copies)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Looks where weights are not zero, unless zeros are where they were.
    pub(super) fn find_support(&mut self, backend: &B) -> Result<()> {
        if !self.knows_support {
            backend.find_support(&support_parts(&mut self.list), &mut self.support)?;
            self.knows_support = true;
        }
        Ok(())
    }

    /// Sums the gradients of the weights that are not zero over all ranks.
    pub(super) fn sum_support(&mut self, backend: &B, share: f32) -> Result<()> {
        Ok(backend.sum_support(share, &mut support_parts(&mut self.list), &self.support)?)
    }

    /// One parameter.
    pub fn get(&self, id: ParamId) -> &Parameter<B> {
        &self.list[id.0]
    }

    /// One parameter, to change; a backward pass writes its gradient.
    pub fn get_mut(&mut self, id: ParamId) -> &mut Parameter<B> {
        &mut self.list[id.0]
    }

    /// What a batch norm computes with in a forward pass, and the parameters, among them those of the layer before.
    pub(crate) fn forward_norm(
        &mut self,
        learned: Option<[ParamId; 2]>,
        norm: NormId,
        relu: Relu,
    ) -> ForwardParts<'_, B> {
        let NormState { running_mean, running_variance, mean, inverse_std, fixed, .. } = &mut self.norms[norm.0];
        let [scale, shift] = match learned {
            Some(both) => both.map(|id| &self.list[id.0].value),
            None => {
                let FixedAffine { scale, shift, .. } = fixed.as_ref().expect("it is not learned");
                [scale, shift]
            }
        };
        let norm = NormParams { scale, shift, relu, fixed: self.fixed_norms };
        (norm, NormStatistics { mean, inverse_std, running_mean, running_variance }, &self.list)
    }

    /// All that a batch norm computes with, and the bias of the layer before.
    pub(crate) fn norm(
        &mut self,
        learned: Option<[ParamId; 2]>,
        bias: Option<ParamId>,
        norm: NormId,
        relu: Relu,
    ) -> NormParts<'_, B> {
        let of_constants = self.fixed_norms;
        let NormState { running_mean, running_variance, mean, inverse_std, fixed, .. } = &mut self.norms[norm.0];
        let statistics = NormStatistics { mean, inverse_std, running_mean, running_variance };
        let Some([scale, shift]) = learned else {
            let FixedAffine { scale, shift, unread: [dscale, dshift] } = fixed.as_mut().expect("it is not learned");
            let bias = bias.map(|bias| &mut self.list[bias.0].grad);
            let gradients = NormGradients { scale: dscale, shift: dshift, bias };
            return (NormParams { scale, shift, relu, fixed: of_constants }, gradients, statistics);
        };
        let (scale, shift, bias) = match bias {
            Some(bias) => {
                let [scale, shift, bias] =
                    self.list.get_disjoint_mut([scale.0, shift.0, bias.0]).expect("three parameters");
                (scale, shift, Some(&mut bias.grad))
            }
            None => {
                let [scale, shift] = self.list.get_disjoint_mut([scale.0, shift.0]).expect("two parameters");
                (scale, shift, None)
            }
        };
        let gradients = NormGradients { scale: &mut scale.grad, shift: &mut shift.grad, bias };
        (NormParams { scale: &scale.value, shift: &shift.value, relu, fixed: of_constants }, gradients, statistics)
    }
}

/// What a batch norm computes with in a forward pass, and all parameters.
pub(crate) type ForwardParts<'a, B> = (NormParams<'a, B>, NormStatistics<'a, B>, &'a [Parameter<B>]);
type NormParts<'a, B> = (NormParams<'a, B>, NormGradients<'a, B>, NormStatistics<'a, B>);

/// Collects the parameters while a network is built, drawing their initial values.
pub struct Builder<'a, B: Backend> {
    /// Where they live.
    pub backend: &'a B,
    params: Params<B>,
    rng: Rng,
}

impl<'a, B: Backend> Builder<'a, B> {
    /// Starts with no parameter.
    pub fn new(backend: &'a B, seed: u64) -> Self {
        Self { backend, params: Params::default(), rng: Rng::new(seed) }
    }

    /// All that was built.
    pub fn finish(mut self) -> Result<Params<B>> {
        self.params.refresh(self.backend)?;
        Ok(self.params)
    }

    /// A weight, uniform in ±`bound`. `inputs` are the channels of its column blocks, each with `taps` columns: see
    /// [`crate::ConvLayer`].
    pub fn weight(&mut self, param: Param, inputs: &[usize], taps: usize, bound: f32) -> Result<ParamId> {
        let (rows, stride) = (param.shape[0], param.row_len());
        let starts = inputs.iter().scan(0, |end, &inputs| Some(std::mem::replace(end, *end + inputs * taps)));
        let block = |(first, &inputs): (usize, &usize)| Block { rows, stride, first, columns: inputs * taps, taps };
        let blocks = starts.zip(inputs).map(block).map(|block| (block, B::Copies::default())).collect();
        self.parameter(param, blocks, |rng| rng.symmetric(bound))
    }

    /// A bias, uniform in ±`bound`.
    pub fn bias(&mut self, name: String, size: usize, bound: f32) -> Result<ParamId> {
        self.parameter(Param::new(name, [size], Role::Bias), Vec::new(), |rng| rng.symmetric(bound))
    }

    /// Scale (1) and shift (0) of a batch norm, where they are learned, and its state.
    pub fn norm(&mut self, spec: &NormSpec, channels: usize) -> Result<(Option<[ParamId; 2]>, NormId)> {
        let NormSpec { name, affine } = spec;
        let mut part = |part, value| {
            self.parameter(Param::new(format!("{name}.{part}"), [channels], Role::Norm), vec![], |_| value)
        };
        let learned = if *affine { Some([part("weight", 1.0)?, part("bias", 0.0)?]) } else { None };
        let exact = |backend: &B| backend.alloc(channels, Storage::Exact);
        let fixed = if *affine { None } else { Some(FixedAffine::new(self.backend, channels)?) };
        let mut state = NormState {
            name: name.clone(),
            channels,
            running_mean: exact(self.backend)?,
            running_variance: exact(self.backend)?,
            batches: 0,
            mean: exact(self.backend)?,
            inverse_std: exact(self.backend)?,
            fixed,
        };
        state.reset(self.backend)?;
        self.params.norms.push(state);
        Ok((learned, NormId(self.params.norms.len() - 1)))
    }

    fn parameter(
        &mut self,
        param: Param,
        blocks: Vec<(Block, B::Copies)>,
        mut draw: impl FnMut(&mut Rng) -> f32,
    ) -> Result<ParamId> {
        let values: Vec<f32> = (0..param.len()).map(|_| draw(&mut self.rng)).collect();
        let mut value = self.backend.alloc(values.len(), Storage::Exact)?;
        self.backend.upload(&values, &mut value)?;
        let grad = self.backend.alloc(values.len(), Storage::Exact)?;
        self.params.list.push(Parameter { param, value, grad, sparse: false, mask: None, blocks });
        Ok(ParamId(self.params.list.len() - 1))
    }
}
