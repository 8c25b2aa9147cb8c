//! What several processes that train one network agree on, and what only the leading one does.
//!
//! Every rank takes the same steps from the same sums, so that nothing but sums has to travel: the learning rate, λ,
//! masks and the best epoch follow on each rank by itself. The leading rank writes the files.

use bregman_base::files::Lock;
use bregman_nn::BatchOutcome;
use bregman_speaker::Batch;

use super::Trainer;
use super::data::Data;
use crate::run::EpochSums;
use crate::run::log::Log;
use crate::{Device, Error, Result};

/// Steps between two looks at whether all ranks still have the same weights and duals.
pub(super) const CHECK_EVERY: u64 = 200;

/// What the leading rank keeps of a run.
pub(super) struct Books {
    pub(super) log: Log,
    /// Dropped when all files are closed.
    pub(super) _lock: Lock,
}

/// What a rank says at its start: the device, and its part of a batch where there are others.
pub(super) fn introduction<B: Device>(device: &B, data: &Data) -> String {
    let (ranks, description) = (device.ranks(), device.description());
    if ranks.is_alone() {
        return description;
    }
    let batch = data.train.batch();
    let part = ranks.part_of(batch).len();
    format!("rank {} of {} on {description}, {part} of {batch} cuts per step", ranks.rank(), ranks.size())
}

impl<B: Device> Trainer<'_, B> {
    /// The pass that follows is over this rank's part of a batch.
    pub(super) fn take_part(&mut self, batch: &Batch) {
        if !self.ranks.is_alone() {
            self.model.set_share(batch.share());
        }
    }

    /// What a whole batch came to, from what this rank's part of it came to, and whether any rank was asked to stop:
    /// one message for both.
    pub(super) fn joint(&self, own: BatchOutcome, batch: &Batch, stop: bool) -> Result<(BatchOutcome, bool)> {
        if self.ranks.is_alone() {
            return Ok((own, stop));
        }
        let mut sums = EpochSums::default();
        sums.add(own, batch.cuts.len());
        let mut numbers = [sums.loss, sums.correct as f64, sums.cuts as f64, f64::from(u8::from(stop))];
        self.ranks.sum(&mut numbers)?;
        let [loss, correct, cuts, stopping] = numbers;
        let sums = EpochSums { loss, correct: correct as u64, cuts: cuts as u64 };
        Ok((BatchOutcome { loss: sums.means().0 as f32, correct: sums.correct as usize }, stopping > 0.0))
    }

    /// These sums over all ranks.
    pub(super) fn joint_sums(&self, own: EpochSums) -> Result<EpochSums> {
        let mut sums = [own.loss, own.correct as f64, own.cuts as f64];
        self.ranks.sum(&mut sums)?;
        let [loss, correct, cuts] = sums;
        Ok(EpochSums { loss, correct: correct as u64, cuts: cuts as u64 })
    }

    /// Takes the running statistics of the leading rank's batch norms, which are those that are saved.
    pub(super) fn take_norms_of_leader(&mut self) -> Result<()> {
        if self.ranks.is_alone() || self.experiment.train.joint_norms {
            return Ok(());
        }
        let (device, params) = self.model.parts_mut();
        let mut statistics = Vec::new();
        for norm in params.norms() {
            for buffer in [&norm.running_mean, &norm.running_variance] {
                let mut values = vec![0.0; norm.channels];
                device.download(buffer, &mut values)?;
                statistics.extend(values.into_iter().flat_map(f32::to_le_bytes));
            }
        }
        let all = self.ranks.gather(if self.ranks.leads() { &statistics } else { &[] })?;
        let mut values = all[0].as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        for norm in params.norms_mut() {
            for buffer in [&mut norm.running_mean, &mut norm.running_variance] {
                let values: Vec<f32> = values.by_ref().take(norm.channels).collect();
                device.upload(&values, buffer)?;
            }
        }
        Ok(())
    }

    /// Makes sure that all ranks have the same weights, duals, moments, masks and λ.
    pub(super) fn check_ranks(&self) -> Result<()> {
        if self.ranks.is_alone() {
            return Ok(());
        }
        let mut hash = StateHash::default();
        for parameter in self.model.params().all() {
            let mut values = vec![0.0; parameter.param.len()];
            self.model.backend().download(&parameter.value, &mut values)?;
            hash.add(values.iter().map(|value| value.to_bits().into()));
        }
        for tensor in &*self.method.arrays()? {
            for (_, values) in tensor.arrays() {
                hash.add(values.iter().map(|value| value.to_bits().into()));
            }
            hash.add(tensor.mask.iter().map(|&kept| kept.into()));
        }
        hash.add(self.method.optimizer().state().lambda.iter().map(|lambda| lambda.to_bits()));
        match self.ranks.odd_one_out(&hash.0.to_le_bytes())? {
            None => Ok(()),
            Some(rank) => Err(Error::RanksDiffer { step: self.state.step, rank }),
        }
    }
}

/// A hash of hundreds of millions of numbers, one multiplication each: FNV-1a over words instead of bytes.
struct StateHash(u64);

impl Default for StateHash {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl StateHash {
    fn add(&mut self, words: impl Iterator<Item = u64>) {
        self.0 = words.fold(self.0, |state, word| (state ^ word).wrapping_mul(0x0100_0000_01B3).rotate_left(23));
    }
}
