//! Masks on an optimizer's weights, and the topology that moves them.

use std::borrow::Cow;

use super::engine::Engine;
use super::{Optimizer, slices_mut};
use crate::error::{Error, Result};
use crate::topology::{MaskedLayer, RunClock, Start, Topology};

/// On plain slices.
impl Optimizer {
    /// Restricts a tensor to the weights marked `true` from the next step on: pruning. An empty mask lifts it.
    ///
    /// # Errors
    /// A mask of the wrong length, and an optimizer that thresholds by itself.
    pub fn set_mask(&mut self, tensor: usize, mask: Vec<bool>) -> Result<()> {
        self.check_mask(tensor, &mask)?;
        self.state.tensors[tensor].set_mask(mask);
        Ok(())
    }

    /// Before the step at `clock`: lets `topology` change the masks of all weight tensors if it wants to, and tells
    /// whether it did. Weights that are dropped become 0, weights that are grown start at 0 with moments of 0. `grads`
    /// may be empty unless the policy [needs gradients](crate::topology::MaskPolicy::needs_gradients).
    ///
    /// ```
    /// use bregman::topology::{OneShotPruning, RunClock};
    /// use bregman::{GroupRule, Groups, Optimizer, Param, Pruning, Role, Rule, Sgd, Topology};
    /// let groups = Groups::resolve(vec![Param::new("w", [1, 4], Role::LinearWeight)], vec![GroupRule::dense()])?;
    /// let mut weights = vec![vec![3.0f32, -1.0, 0.5, 2.0]];
    /// let mut optimizer = Optimizer::new(Rule::Sgd(Sgd::default()), groups, 1.0, &weights)?;
    /// let topology = Topology::new(OneShotPruning { target: 0.5, epoch: 0 }, Pruning::default(), 0)?;
    /// for step in 0..3 {
    ///     let clock = RunClock { step, total: 3, epoch: 0, batch: step };
    ///     optimizer.move_masks(&topology, &clock, &mut weights, &[])?;
    ///     optimizer.step(&mut weights, &[[1.0f32; 4]], 0.1)?;
    /// }
    /// assert_eq!(weights[0][1..3], [0.0, 0.0]);
    /// # Ok::<(), bregman::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Topology::masks`], and an optimizer that thresholds by itself.
    pub fn move_masks(
        &mut self,
        topology: &Topology,
        clock: &RunClock,
        theta: &mut [impl AsMut<[f32]>],
        grads: &[&[f32]],
    ) -> Result<bool> {
        self.move_masks_on(topology, clock, &mut slices_mut(theta), grads)
    }

    /// Before the first step: sets the masks of a round of the policy's [start](crate::topology::Start), counted from
    /// 0, and tells whether there was such a round. Those by scores take gradients under the masks of the round
    /// before.
    ///
    /// ```
    /// use bregman::topology::Snip;
    /// use bregman::{GroupRule, Groups, Optimizer, Param, Pruning, Role, Rule, Sgd, Topology};
    /// let groups = Groups::resolve(vec![Param::new("w", [1, 4], Role::LinearWeight)], vec![GroupRule::dense()])?;
    /// let mut weights = vec![vec![3.0f32, -1.0, 0.5, 2.0]];
    /// let mut optimizer = Optimizer::new(Rule::Sgd(Sgd::default()), groups, 1.0, &weights)?;
    /// let topology = Topology::new(Snip { target: 0.75, rounds: 2 }, Pruning::default(), 0)?;
    /// let gradient = |weights: &[f32]| weights.iter().map(|x| 0.1 / (x + 0.1)).collect::<Vec<f32>>();
    /// for round in 0.. {
    ///     let gradient = gradient(&weights[0]);
    ///     if !optimizer.start_masks(&topology, round, &mut weights, &[&gradient])? {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(weights[0], [0.0, -1.0, 0.0, 0.0]);
    /// # Ok::<(), bregman::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Optimizer::move_masks`].
    pub fn start_masks(
        &mut self,
        topology: &Topology,
        round: usize,
        theta: &mut [impl AsMut<[f32]>],
        grads: &[&[f32]],
    ) -> Result<bool> {
        self.start_masks_on(topology, round, &mut slices_mut(theta), grads)
    }
}

/// Wherever the arrays are.
impl<A> Optimizer<A> {
    /// [`Optimizer::set_mask`] where the arrays are; weights that are dropped become 0 now. Only the mask travels.
    ///
    /// # Errors
    /// As [`Optimizer::set_mask`]; a lost device.
    pub fn set_mask_on<W: ?Sized>(&mut self, tensor: usize, mask: &[bool], theta: &mut W) -> Result<()>
    where
        A: Engine<W>,
    {
        self.check_mask(tensor, mask)?;
        self.groups.params()[tensor].check_len("weight", A::len(theta))?;
        self.state.tensors.set_mask(tensor, mask, theta)
    }

    /// [`Optimizer::move_masks`] where the arrays are. Only when masks change do weights come to the host, and only
    /// masks go back.
    ///
    /// # Errors
    /// As [`Optimizer::move_masks`]; a lost device.
    pub fn move_masks_on<W: ?Sized>(
        &mut self,
        topology: &Topology,
        clock: &RunClock,
        theta: &mut [&mut W],
        grads: &[&W],
    ) -> Result<bool>
    where
        A: Engine<W>,
    {
        let Some(change) = topology.policy().change(clock) else { return Ok(false) };
        let needs_gradients = topology.policy().needs_gradients();
        self.set_masks(topology.seed(), clock.step, theta, if needs_gradients { grads } else { &[] }, |layers| {
            topology.masks(change, layers)
        })?;
        Ok(true)
    }

    /// [`Optimizer::start_masks`] where the arrays are.
    ///
    /// # Errors
    /// As [`Optimizer::start_masks`]; a lost device.
    pub fn start_masks_on<W: ?Sized>(
        &mut self,
        topology: &Topology,
        round: usize,
        theta: &mut [&mut W],
        grads: &[&W],
    ) -> Result<bool>
    where
        A: Engine<W>,
    {
        let start = topology.policy().start();
        let Some(sparsity) = start.round(round) else { return Ok(false) };
        let scored = matches!(start, Start::Scored(_)) && topology.policy().needs_gradients();
        self.set_masks(topology.seed(), 0, theta, if scored { grads } else { &[] }, |layers| {
            topology.start_masks(sparsity, layers)
        })?;
        Ok(true)
    }

    /// Sets the masks that `choose` makes of all weight tensors, before step `step`; reads gradients where there are
    /// some.
    fn set_masks<W: ?Sized>(
        &mut self,
        seed: u64,
        step: u64,
        theta: &mut [&mut W],
        grads: &[&W],
        choose: impl FnOnce(&[MaskedLayer<'_>]) -> Result<Vec<Vec<bool>>>,
    ) -> Result<()>
    where
        A: Engine<W>,
    {
        let params = self.groups.params();
        let tensors: Vec<usize> = (0..params.len()).filter(|&tensor| params[tensor].role.is_weight()).collect();
        let mut read: Vec<[Cow<'_, [f32]>; 2]> = Vec::with_capacity(tensors.len());
        let mut present = Vec::with_capacity(tensors.len());
        for &tensor in &tensors {
            let gradient = if grads.is_empty() { Cow::Borrowed(&[][..]) } else { A::read(grads[tensor])? };
            read.push([A::read(&*theta[tensor])?, gradient]);
            present.push(self.state.tensors.mask(tensor)?);
        }
        let layer = |i: usize| {
            let [theta, gradient] = &read[i];
            MaskedLayer::new(&params[tensors[i]], theta, gradient, &present[i], seed, step)
        };
        let masks = choose(&(0..tensors.len()).map(layer).collect::<Vec<_>>())?;
        for (&tensor, mask) in tensors.iter().zip(&masks) {
            self.set_mask_on(tensor, mask, &mut *theta[tensor])?;
        }
        Ok(())
    }

    fn check_mask(&self, tensor: usize, mask: &[bool]) -> Result<()> {
        if !self.rule.is_dense() {
            let (what, needs, optimizer) = ("a pruning mask", "SGD or AdamW", self.rule.name());
            return Err(Error::Unsupported { what, needs, optimizer });
        }
        if mask.is_empty() { Ok(()) } else { self.groups.params()[tensor].check_len("mask", mask.len()) }
    }
}
