//! The masks before the first step: drawn at random, or made in rounds from gradients ([`Start`]).

use bregman::topology::Start;
use bregman_nn::Extent;

use super::{Trainer, input, labels, teacher};
use crate::{Device, Error, Result};

impl<B: Device> Trainer<'_, B> {
    /// Sets them. The rounds see the first batches of the run, each its own; then training begins with the first of
    /// them, and with batch norms that have seen none.
    pub(super) fn start_masks(&mut self) -> Result<()> {
        let start = self.method.start();
        let scored = matches!(start, Start::Scored(_));
        let mut batches = if scored { Some(self.data.train.batches(self.state.position)?) } else { None };
        self.model.set_extent(Extent::All);
        for round in (0..).take_while(|&round| start.round(round).is_some()) {
            if let Some(batches) = &mut batches {
                let batch = batches.next().expect("the stream of training batches has no end")?;
                let margin = self.margin();
                teacher::follow(&mut self.teacher, &mut self.model, &batch)?;
                self.take_part(&batch);
                self.model.gradients(input(&batch), &labels(&batch), margin)?;
                batches.recycle(batch);
            }
            match self.method.start_masks(round, &mut self.model) {
                Err(Error::Method(error @ bregman::Error::NonFinite { .. })) => {
                    return Err(self.not_finite(&self.clock(), error.to_string()));
                }
                result => result?,
            }
            self.model.refresh()?;
        }
        if scored && !self.experiment.train.fixed_norms {
            let (device, params) = self.model.parts_mut();
            params.norms_mut().iter_mut().try_for_each(|norm| norm.reset(device))?;
        }
        Ok(())
    }
}
