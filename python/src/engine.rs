//! An optimizer's arrays in memory that Python owns, and passes over them.

use std::borrow::Cow;

use bregman::optimizer::{
    Arrays, Correction, Counted, Deferred, DualKey, Duals, Engine, HostArrays, HostDuals, StateSlices, TensorState,
    TensorStep, pull,
};
use bregman::{Error, Result};

use crate::cuda::CudaPlace;
use crate::lent::Lent;
use crate::reduce::{Reduced, Reduction};
use crate::torch_ops::TorchOps;

/// What an optimizer remembers, in tensors of Python.
pub(crate) struct LentArrays {
    /// For messages.
    pub(crate) names: Vec<String>,
    pub(crate) place: Place,
    /// What the last pass counted, where the place does not remember it.
    pub(crate) counted: Vec<Counted>,
    /// Set where tensors have parts in several processes.
    pub(crate) reduction: Option<Reduction>,
}

/// Where the arrays are, and who computes there.
pub(crate) enum Place {
    /// In this machine's memory: the crate's own pass.
    Host(Vec<LentState>),
    /// On a GPU: the crate's kernel.
    Cuda(Box<CudaPlace>),
    /// Anywhere that torch can compute.
    Torch(TorchOps),
}

/// The arrays of one tensor; those that the rule does not keep are nothing.
#[derive(Clone, Copy)]
pub(crate) struct LentState {
    pub(crate) p: Lent,
    pub(crate) m: Lent,
    pub(crate) v: Lent,
}

impl LentState {
    pub(crate) fn arrays(self) -> [Lent; 3] {
        [self.p, self.m, self.v]
    }
}

impl Arrays for LentArrays {
    fn fetch(&self) -> Result<Cow<'_, [TensorState]>> {
        Err(in_python())
    }

    fn replace(&mut self, _: HostArrays) -> Result<()> {
        Err(in_python())
    }

    fn mask(&self, _: usize) -> Result<Cow<'_, [bool]>> {
        Ok(Cow::Borrowed(&[]))
    }

    fn duals(&mut self, keys: Vec<DualKey>) -> Result<impl Duals + '_> {
        let own: Box<dyn Duals + '_> = match &mut self.place {
            Place::Host(states) => {
                Box::new(HostDuals::new(states.iter().map(|state| state.p.values()).collect(), keys))
            }
            Place::Cuda(place) => place.duals(keys)?,
            Place::Torch(ops) => Box::new(ops.duals(keys)),
        };
        Ok(Reduced { own, reduction: self.reduction.as_ref() })
    }
}

impl Engine<Lent> for LentArrays {
    fn pass(&mut self, theta: &mut [&mut Lent], grads: &[&Lent], steps: &[TensorStep]) -> Result<Vec<Counted>> {
        self.launch(theta, grads, steps)?;
        self.settle()
    }

    fn correct(&mut self, theta: &[&Lent], corrections: &[Option<Correction>]) -> Result<()> {
        match &mut self.place {
            Place::Host(states) => {
                for ((state, theta), correction) in states.iter().zip(theta).zip(corrections) {
                    correction.iter().for_each(|correction| correction.apply(state.p.values_mut(), theta.values()));
                }
                Ok(())
            }
            Place::Cuda(place) => place.correct(theta, corrections),
            Place::Torch(ops) => ops.correct(corrections),
        }
    }

    /// A tensor that got no gradient does not pull.
    fn pull(&mut self, theta: &Lent, gradient: &Lent) -> Result<f64> {
        if self.reduction.is_some() {
            let problem = "STR does not train parameters whose parts are in several processes".into();
            return Err(Error::Engine { problem });
        }
        match &mut self.place {
            _ if gradient.is_nothing() => Ok(0.0),
            Place::Host(_) => Ok(pull(theta.values(), gradient.values())),
            Place::Cuda(place) => place.pull(theta, gradient),
            Place::Torch(ops) => ops.pull(theta.address()),
        }
    }

    fn set_mask(&mut self, _: usize, _: &[bool], _: &mut Lent) -> Result<()> {
        Err(in_python())
    }

    fn len(values: &Lent) -> usize {
        values.whole()
    }

    fn read(values: &Lent) -> Result<Cow<'_, [f32]>> {
        Ok(Cow::Borrowed(values.values()))
    }
}

/// On the CPU and by torch's operations a pass is over when `launch` returns.
impl Deferred<Lent> for LentArrays {
    fn launch(&mut self, theta: &mut [&mut Lent], grads: &[&Lent], steps: &[TensorStep]) -> Result<()> {
        self.counted = match &mut self.place {
            Place::Host(states) => {
                let slices = |state: &LentState| {
                    let [p, m, v] = state.arrays().map(Lent::values_mut);
                    StateSlices { p, m, v, mask: &[] }
                };
                let weights = theta.iter().map(|theta| theta.values_mut()).collect();
                let values = |tensor: usize| grads.get(tensor).map_or(&[][..], |g| g.values());
                let grads: Vec<&[f32]> = (0..steps.len()).map(values).collect();
                StateSlices::pass(states.iter().map(slices).collect(), weights, &grads, steps)
            }
            Place::Cuda(place) => {
                place.launch(theta, grads, steps)?;
                vec![]
            }
            Place::Torch(ops) => ops.pass(steps)?,
        };
        Ok(())
    }

    fn settle(&mut self) -> Result<Vec<Counted>> {
        let counted = match &mut self.place {
            Place::Cuda(place) => place.settle()?,
            Place::Host(_) | Place::Torch(_) => std::mem::take(&mut self.counted),
        };
        match &self.reduction {
            Some(reduction) => reduction.counted(counted, &self.names),
            None => Ok(counted),
        }
    }
}

fn in_python() -> Error {
    Error::Engine { problem: "the arrays are tensors of Python: it saves and masks them".into() }
}
