//! The end of an epoch: validation, the record, which checkpoint is the best, the average of the best.

use std::path::PathBuf;

use bregman::Sparsity;
use bregman_tensor::Margin;

use super::{Trainer, input, labels, teacher};
use crate::method::Method;
use crate::run::{CheckpointFolder, EpochRecord, EpochSums, LayerRecord, StepRecord, checkpoint};
use crate::trainer::average;
use crate::trainer::selection::BestEpoch;
use crate::{Device, Error, Result};

impl<B: Device> Trainer<'_, B> {
    /// Validates, records, chooses, saves.
    pub(super) fn end_epoch(&mut self, last: &StepRecord) -> Result<()> {
        let (train_loss, train_accuracy) = std::mem::take(&mut self.state.sums).means();
        let validation = self.validate()?;
        let (loss, accuracy) = validation.unwrap_or((train_loss, train_accuracy));
        let (sparsity, target) = (last.sparsity, self.experiment.method.target());
        let select = self.experiment.select;
        let admitted = select.admits(sparsity, target);
        let candidate = BestEpoch { epoch: last.epoch, loss, accuracy, sparsity };
        let best = admitted && self.state.selection.offer(&select, candidate);
        if admitted {
            self.state.lr.observe(select.score(&candidate).0);
        }
        if self.state.selection.top.iter().any(|best| best.epoch == last.epoch) {
            self.keep_weights(last.epoch)?;
        }
        let record = EpochRecord {
            eer: self.equal_error_rate()?,
            ..self.epoch_record(last, (train_loss, train_accuracy), validation, admitted)
        };
        if !record.all_zero.is_empty() {
            let names = record.all_zero.join(", ");
            self.observer.warning(&format!(
                "epoch {}: every weight is zero in {names}; start with more non-zero inputs (method.initial_inputs), \
                 or \
                 protect it with a λ-scale below 1 (method.groups) or a ceiling (method.layers.limits)",
                last.epoch
            ));
        }
        if !admitted && let Some(warning) = self.method.unsettled()? {
            self.observer.warning(&format!("epoch {}: {warning}", last.epoch));
        }
        if let Some(books) = &mut self.books {
            books.log.epoch(&record)?;
        }
        self.observer.epoch(&record, best);
        let patience = self.experiment.train.early_stop;
        self.state.finished = self.state.position.epoch >= self.experiment.train.epochs
            || patience
                .is_some_and(|patience| self.state.selection.best.is_some() && self.state.selection.waited >= patience);
        // `last` comes after all that follows from it: a process killed before that repeats the epoch, or finds in
        // `best` where it was (see `settle`)
        if best {
            self.save(&self.run.best())?;
        }
        if self.state.finished && self.state.selection.top.len() > 1 {
            self.average()?;
        }
        if !best {
            self.save(&self.run.last())?;
        } else if self.books.is_some() {
            checkpoint::copy(&self.run.best(), &self.run.last())?;
        }
        self.forget_weights()
    }

    /// Brings the run folder in line with the checkpoint that the run continues from: the process before this one may
    /// have been killed between two of them.
    pub(super) fn settle(&self) -> Result<()> {
        let (last, best, state) = (self.run.last(), self.run.best(), &self.state);
        let is_here = |checkpoint: &CheckpointFolder| {
            checkpoint.is_present() && checkpoint.state().is_ok_and(|saved| saved.step == state.step)
        };
        let ended = (state.position.batch == 0).then_some(state.position.epoch);
        if !is_here(&last) {
            checkpoint::copy(&best, &last)?;
        } else if ended.is_some() && ended == state.selection.best.map(|best| best.epoch) && !is_here(&best) {
            checkpoint::copy(&last, &best)?;
        }
        if state.finished && state.selection.top.len() > 1 && !self.run.average().is_present() {
            self.average()?;
        }
        self.forget_weights()
    }

    /// Keeps the weights of an epoch that may be averaged.
    fn keep_weights(&self, epoch: u64) -> Result<()> {
        if self.books.is_none() {
            return Ok(());
        }
        let folder = self.run.top();
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        checkpoint::write_model(&self.run.top_epoch(epoch), &self.model.state()?)
    }

    /// Removes the weights of epochs that will not be averaged.
    fn forget_weights(&self) -> Result<()> {
        let (folder, top) = (self.run.top(), &self.state.selection.top);
        if self.books.is_none() || !folder.exists() {
            return Ok(());
        }
        for entry in std::fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path();
            if !top.iter().any(|best| self.run.top_epoch(best.epoch) == path) {
                std::fs::remove_file(&path).map_err(Error::io(&path))?;
            }
        }
        Ok(())
    }

    /// Writes the checkpoint `average`: the mean of the best epochs, otherwise as `best`.
    fn average(&self) -> Result<()> {
        if self.books.is_none() {
            return Ok(());
        }
        let files: Vec<PathBuf> = self.state.selection.top.iter().map(|best| self.run.top_epoch(best.epoch)).collect();
        let params = self.method.optimizer().groups().params();
        let weights: Vec<_> = params.iter().filter(|param| param.role.is_weight()).cloned().collect();
        let mean = average::average(&files, &weights)?;
        checkpoint::copy_with_model(&self.run.best(), &self.run.average(), &mean)
    }

    /// Loss without margin and accuracy on the validation set.
    fn validate(&mut self) -> Result<Option<(f64, f64)>> {
        self.take_norms_of_leader()?;
        let Some(loader) = &self.data.validation else { return Ok(None) };
        let margin = Margin { scale: self.experiment.loss.scale, margin: 0.0, easy: false };
        let mut sums = EpochSums::default();
        let mut batches = loader.epoch(0)?;
        while let Some(batch) = batches.next().transpose()? {
            // the last batch may have fewer cuts than there are ranks
            if !batch.cuts.is_empty() {
                teacher::follow(&mut self.teacher, &mut self.model, &batch)?;
                sums.add(self.model.evaluate(input(&batch), &labels(&batch), margin)?, batch.shape[0]);
            }
            batches.recycle(batch);
        }
        Ok(Some(self.joint_sums(sums)?.means()))
    }

    fn epoch_record(
        &self,
        last: &StepRecord,
        train: (f64, f64),
        validation: Option<(f64, f64)>,
        admitted: bool,
    ) -> EpochRecord {
        let optimizer = self.method.optimizer();
        let account = Sparsity::new(optimizer.groups(), optimizer.stats());
        let layers = layers(&self.method);
        EpochRecord {
            step: last.step,
            epoch: last.epoch,
            train_loss: train.0,
            train_accuracy: train.1,
            validation_loss: validation.map(|(loss, _)| loss),
            validation_accuracy: validation.map(|(_, accuracy)| accuracy),
            eer: None,
            lambda: last.lambda,
            sparsity: last.sparsity,
            target: self.experiment.method.target(),
            admitted,
            lr: last.lr,
            seconds: self.seconds(),
            groups: layer_groups(&layers),
            layers,
            all_zero: account.all_zero().into_iter().map(str::to_owned).collect(),
        }
    }
}

/// Every weight tensor.
fn layers<B: Device>(method: &Method<B>) -> Vec<LayerRecord> {
    let optimizer = method.optimizer();
    let weights = optimizer.groups().params().iter().zip(optimizer.stats()).filter(|(param, _)| param.role.is_weight());
    weights
        .map(|(param, stats)| LayerRecord {
            name: param.name.clone(),
            shape: param.shape.clone(),
            sparsity: stats.sparsity(),
            nonzero: stats.nonzeros(),
            norm: stats.norm(),
        })
        .collect()
}

/// Sparsity of the layers whose names begin alike, such as all of `layer2`.
fn layer_groups(layers: &[LayerRecord]) -> Vec<(String, f64)> {
    let mut groups: Vec<(&str, u64, u64)> = Vec::new();
    for layer in layers {
        let name = layer.name.split('.').next().unwrap_or(&layer.name);
        match groups.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, nonzero, total)) => (*nonzero, *total) = (*nonzero + layer.nonzero, *total + layer.len()),
            None => groups.push((name, layer.nonzero, layer.len())),
        }
    }
    groups
        .into_iter()
        .map(|(name, nonzero, total)| (name.to_owned(), 1.0 - nonzero as f64 / total.max(1) as f64))
        .collect()
}
