//! The masks before the first step: drawn at random, or made in rounds from gradients ([`Start`]).

use std::sync::atomic::{AtomicBool, Ordering};

use bregman::topology::Start;
use bregman_nn::{Extent, Parameter};
use bregman_speaker::Batches;

use super::{Trainer, input, labels, teacher};
use crate::{Device, Error, Result};

impl<B: Device> Trainer<'_, B> {
    /// Sets them, unless asked to stop before that is done. The rounds see the first batches of the run, each its own;
    /// then training begins with the first of them, and with batch norms that have seen none.
    pub(super) fn start_masks(&mut self, stop: &AtomicBool) -> Result<bool> {
        let start = self.method.start();
        let scored = matches!(start, Start::Scored(_));
        let mut batches = if scored { Some(self.data.train.batches(self.state.position)?) } else { None };
        self.model.set_extent(Extent::All);
        for round in (0..).take_while(|&round| start.round(round).is_some()) {
            if let Some(batches) = &mut batches
                && !self.mean_gradients(batches, stop)?
            {
                return Ok(false);
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
        Ok(true)
    }

    /// Leaves in every weight tensor its gradient, averaged over the batches of a round; `false` if asked to stop.
    fn mean_gradients(&mut self, batches: &mut Batches, stop: &AtomicBool) -> Result<bool> {
        let count = self.batches_per_round();
        let mut sums = Vec::new();
        for _ in 0..count {
            if self.asked_to_stop(stop)? {
                return Ok(false);
            }
            let batch = batches.next().expect("the stream of training batches has no end")?;
            let margin = self.margin();
            teacher::follow(&mut self.teacher, &mut self.model, &batch)?;
            self.take_part(&batch);
            self.model.gradients(input(&batch), &labels(&batch), margin)?;
            batches.recycle(batch);
            if count > 1 {
                add_gradients(&mut sums, self.model.backend(), self.model.params().all())?;
            }
        }
        let (device, params) = self.model.parts_mut();
        for (parameter, sum) in params.all_mut().iter_mut().filter(|each| each.param.role.is_weight()).zip(&mut sums) {
            sum.iter_mut().for_each(|sum| *sum /= count as f32);
            device.upload(sum, &mut parameter.grad)?;
        }
        Ok(true)
    }

    /// Batches of a round.
    pub(super) fn batches_per_round(&self) -> u64 {
        self.experiment.method.batches_per_round(self.state.classes, self.data.train.batch())
    }

    /// Whether any rank was asked to stop.
    fn asked_to_stop(&self, stop: &AtomicBool) -> Result<bool> {
        let mut asked = [f64::from(u8::from(stop.load(Ordering::Relaxed)))];
        if !self.ranks.is_alone() {
            self.ranks.sum(&mut asked)?;
        }
        Ok(asked[0] > 0.0)
    }
}

/// Adds the gradients of the weight tensors to `sums`, one entry for each.
fn add_gradients<B: Device>(sums: &mut Vec<Vec<f32>>, device: &B, parameters: &[Parameter<B>]) -> Result<()> {
    let weights = parameters.iter().filter(|parameter| parameter.param.role.is_weight());
    for (tensor, parameter) in weights.enumerate() {
        let mut gradient = vec![0.0; parameter.param.len()];
        device.download(&parameter.grad, &mut gradient)?;
        match sums.get_mut(tensor) {
            Some(sum) => sum.iter_mut().zip(&gradient).for_each(|(sum, g)| *sum += g),
            None => sums.push(gradient),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "../../tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use bregman_tensor::Cpu;

    use super::common::{StopAfter, corpus, recipe};
    use super::*;
    use crate::Ending;

    const SNIP: &str = "kind = \"snip\"\ntarget = 0.9\nrounds = 4\nbatches = 3";

    /// Which weights are zero, tensor by tensor.
    fn zeros(trainer: &Trainer<'_, Cpu>) -> Vec<Vec<bool>> {
        let weights = trainer.model.params().all().iter().filter(|parameter| parameter.param.role.is_weight());
        weights.map(|parameter| parameter.value.iter().map(|x| *x == 0.0).collect()).collect()
    }

    /// SNIP written down once more: all weights are sorted by |θ·ḡ|, ḡ the mean over the batches of a round.
    fn brute_force(trainer: &mut Trainer<'_, Cpu>, rounds: u32, count: u64) {
        let mut batches = trainer.data.train.batches(trainer.state.position).unwrap();
        for round in 1..=rounds {
            let mut means: Vec<Vec<f64>> = vec![];
            for _ in 0..count {
                let batch = batches.next().unwrap().unwrap();
                let margin = trainer.margin();
                trainer.model.gradients(input(&batch), &labels(&batch), margin).unwrap();
                let parameters = trainer.model.params().all();
                means.resize_with(parameters.len(), Vec::new);
                for (mean, parameter) in means.iter_mut().zip(parameters) {
                    mean.resize(parameter.grad.len(), 0.0);
                    mean.iter_mut().zip(&*parameter.grad).for_each(|(mean, g)| *mean += f64::from(*g) / count as f64);
                }
            }
            let parameters = trainer.model.params_mut().all_mut();
            let mut scores: Vec<(f64, usize, usize)> = Vec::new();
            for (tensor, parameter) in parameters.iter().enumerate().filter(|(_, each)| each.param.role.is_weight()) {
                let score = |(x, g): (&f32, &f64)| (f64::from(*x) * g).abs();
                let of_tensor = parameter.value.iter().zip(&means[tensor]).map(score);
                scores.extend(of_tensor.enumerate().map(|(at, score)| (score, tensor, at)));
            }
            scores.sort_by(|a, b| b.0.total_cmp(&a.0));
            let sparsity = 1.0 - 0.1f64.powf(f64::from(round) / f64::from(rounds));
            let kept = scores.len() - (sparsity * scores.len() as f64).round_ties_even() as usize;
            scores[kept..].iter().for_each(|&(_, tensor, at)| parameters[tensor].value[at] = 0.0);
            trainer.model.refresh().unwrap();
        }
    }

    #[test]
    fn snip_averages_the_gradients_of_a_round_as_brute_force_does() {
        let dir = tempfile::tempdir().unwrap();
        corpus(&dir.path().join("voices"));
        let experiment = recipe(&dir.path().join("voices"), SNIP, &[]);
        let start = |name: &str| Trainer::new(experiment.clone(), &dir.path().join(name), &()).unwrap();
        let (mut ours, mut reference, mut one_batch) = (start("ours"), start("reference"), start("one batch"));
        assert!(ours.start_masks(&AtomicBool::new(false)).unwrap());
        brute_force(&mut reference, 4, 3);
        assert!(zeros(&ours) == zeros(&reference), "the masks differ");
        brute_force(&mut one_batch, 4, 1);
        assert!(zeros(&ours) != zeros(&one_batch), "one batch would have done");
    }

    #[test]
    fn a_run_stopped_while_its_masks_are_made_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        corpus(&dir.path().join("voices"));
        let experiment = recipe(&dir.path().join("voices"), SNIP, &[]);
        let run = dir.path().join("run");
        let outcome = Trainer::new(experiment, &run, &()).unwrap().run(&AtomicBool::new(true)).unwrap();
        assert_eq!((outcome.ending, outcome.state.step), (Ending::Interrupted, 0));
        let stop = StopAfter::new(2);
        let outcome = Trainer::resume(&run, &stop).unwrap().run(&stop.stop).unwrap();
        assert_eq!((outcome.ending, outcome.state.step), (Ending::Interrupted, 2));
    }

    #[test]
    fn a_round_shows_every_speaker_three_times_unless_the_recipe_says_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let batches =
            |method: &str, classes, batch| recipe(dir.path(), method, &[]).method.batches_per_round(classes, batch);
        let snip = "kind = \"snip\"\ntarget = 0.9";
        assert_eq!([batches(snip, 1140, 128), batches(snip, 10, 128), batches(SNIP, 1140, 128)], [27, 1, 3]);
    }
}
