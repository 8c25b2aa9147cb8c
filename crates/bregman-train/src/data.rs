//! The corpus of an experiment as two loaders: training and validation.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bregman_speaker::{
    AudioSource, CutConfig, CutSource, Cuts, FeatureCache, Loader, LoaderConfig, Manifest, Order, Progress, Speakers, Utterance,
    open_corpus, split,
};

use crate::config::{DataConfig, Experiment, Validation};
use crate::{Error, Result};

/// Training and validation batches.
pub(crate) struct Data {
    pub(crate) train: Loader,
    pub(crate) validation: Option<Loader>,
    pub(crate) classes: usize,
}

impl Data {
    /// Opens the corpus of an experiment.
    pub(crate) fn open(experiment: &Experiment, progress: &dyn Progress) -> Result<Self> {
        let config = &experiment.data;
        let path = config.path(&config.train);
        let whole = open_corpus(&path, Some(&config.root))?;
        let (train, validation) = match &config.validation {
            Validation::Corpus(name) => (whole, Some(open_corpus(&config.path(name), Some(&config.root))?)),
            Validation::Share(0.0) => (whole, None),
            Validation::Share(share) => {
                let (train, validation) = divide(whole, *share, experiment.seed)?;
                (train, Some(validation))
            }
        };
        Self::new(experiment, train, validation, progress)
    }

    /// Batches of these corpora; the classes are the speakers of the first.
    pub(crate) fn new(
        experiment: &Experiment,
        train: Arc<dyn AudioSource>,
        validation: Option<Arc<dyn AudioSource>>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let config = &experiment.data;
        let speakers = train.manifest().speakers();
        let cuts = |source, settings| open_cuts(config, source, &speakers, settings, progress);
        let training = cuts(train, config.cuts())?;
        let classes = training.classes();
        let loader = LoaderConfig {
            batch: experiment.train.batch,
            order: config.order,
            drop_last: true,
            seed: experiment.seed,
            workers: rayon::current_num_threads().min(1024),
            ahead: None,
            strict: config.strict,
        };
        let check = LoaderConfig { order: Order::Sequential, drop_last: false, ..loader.clone() };
        let validation = match validation.filter(|source| !source.manifest().utterances.is_empty()) {
            None => None,
            Some(source) => Some(Loader::new(cuts(source, config.validation_cuts())?, check)?),
        };
        Ok(Self { train: Loader::new(training, loader)?, validation, classes })
    }
}

/// Takes a share of each speaker's utterances out of a corpus.
fn divide(whole: Arc<dyn AudioSource>, share: f64, seed: u64) -> Result<(Arc<dyn AudioSource>, Arc<dyn AudioSource>)> {
    let (train, validation) = split(whole.manifest(), share, seed)?;
    Ok((Arc::new(Subset::new(whole.clone(), train)), Arc::new(Subset::new(whole, validation))))
}

/// Some utterances of a corpus.
struct Subset {
    whole: Arc<dyn AudioSource>,
    manifest: Manifest,
    /// Number of each utterance in the whole.
    numbers: Vec<usize>,
}

impl Subset {
    /// The utterances of `manifest`, which stand in the whole in the same order.
    fn new(whole: Arc<dyn AudioSource>, manifest: Manifest) -> Self {
        let mut wanted = manifest.utterances.iter().peekable();
        let taken = |utterance: &Utterance| wanted.next_if(|next| next.id == utterance.id).is_some();
        let all = whole.manifest().utterances.iter();
        let numbers = all.map(taken).enumerate().filter_map(|(number, taken)| taken.then_some(number)).collect();
        Self { whole, manifest, numbers }
    }
}

impl AudioSource for Subset {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> bregman_speaker::Result<()> {
        self.whole.append(self.numbers[utterance], range, out)
    }
}

/// Cuts of a corpus, through the feature cache where the recipe names a folder for it.
fn open_cuts(
    config: &DataConfig,
    source: Arc<dyn AudioSource>,
    speakers: &Speakers,
    settings: CutConfig,
    progress: &dyn Progress,
) -> Result<Arc<dyn CutSource>> {
    let cuts = Cuts::new(source, speakers, settings)?;
    let Some(folder) = &config.cache else { return Ok(Arc::new(cuts)) };
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let name = format!("{:016x}", cuts.fingerprint());
    // Runs that start together build one cache, not one each.
    let lock = folder.join(format!("{name}.lock"));
    let file = File::create(&lock).map_err(Error::io(&lock))?;
    file.lock().map_err(Error::io(&lock))?;
    Ok(Arc::new(FeatureCache::open(&folder.join(format!("{name}.features")), cuts, progress)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_speaker::{SynthConfig, SynthCorpus};

    #[test]
    fn a_division_keeps_every_utterance_with_its_own_audio() {
        let config = SynthConfig { speakers: 3, utterances: 4, held_out: 0, seconds: [0.2, 0.3], ..SynthConfig::default() };
        let whole: Arc<dyn AudioSource> = Arc::new(SynthCorpus::new(config).unwrap().in_memory().0);
        let (train, validation) = divide(whole.clone(), 0.25, 1).unwrap();
        let parts = [train, validation];
        assert_eq!(parts.iter().map(|part| part.manifest().utterances.len()).sum::<usize>(), 12);
        for part in parts {
            for (number, utterance) in part.manifest().utterances.iter().enumerate() {
                let original = whole.manifest().utterances.iter().position(|other| other.id == utterance.id).unwrap();
                assert_eq!(part.whole(number).unwrap(), whole.whole(original).unwrap());
            }
        }
    }
}
