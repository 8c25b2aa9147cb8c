//! The corpus of an experiment as two loaders: training and validation.

use std::path::Path;
use std::sync::Arc;

use bregman_base::files::Lock;
use bregman_speaker::{
    AudioSource, CutConfig, CutSource, Cuts, FeatureCache, Loader, LoaderConfig, Order, Progress, Speakers, Subset,
    Waveforms, open_corpus,
};
use bregman_tensor::Ranks;

use crate::config::{DataConfig, Experiment, FeaturesBy, Validation};
use crate::run::{CorpusRecord, UtteranceList};
use crate::{Error, Result};

/// Training and validation batches.
pub(crate) struct Data {
    pub(crate) train: Loader,
    pub(crate) validation: Option<Loader>,
    pub(crate) classes: usize,
    pub(crate) corpus: CorpusRecord,
}

/// How the ranks of a run divide its batches.
pub(crate) struct Division {
    pub(crate) ranks: Ranks,
    /// Ranks that the run began with.
    pub(crate) began_with: usize,
}

impl Division {
    /// That of a run that begins now.
    pub(crate) fn of(ranks: &Ranks) -> Self {
        Self { began_with: ranks.size(), ranks: ranks.clone() }
    }
}

impl Data {
    /// Opens the corpus of an experiment.
    pub(crate) fn open(experiment: &Experiment, division: &Division, progress: &dyn Progress) -> Result<Self> {
        let config = &experiment.data;
        let whole = find_corpus(config, &config.train)?;
        let (train, validation): (Arc<dyn AudioSource>, Option<Arc<dyn AudioSource>>) = match &config.validation {
            Validation::Corpus(name) => (whole, Some(find_corpus(config, name)?)),
            Validation::Share(0.0) => (whole, None),
            Validation::Share(share) => {
                let (train, validation) = Subset::split(&whole, *share, experiment.seed)?;
                (Arc::new(train), Some(Arc::new(validation)))
            }
        };
        Self::new(experiment, division, train, validation, progress)
    }

    /// Batches of these corpora; the classes are the speakers of the first.
    pub(crate) fn new(
        experiment: &Experiment,
        division: &Division,
        train: Arc<dyn AudioSource>,
        validation: Option<Arc<dyn AudioSource>>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let config = &experiment.data;
        let speakers = train.manifest().speakers();
        let validation = validation.filter(|source| !source.manifest().utterances.is_empty());
        let corpus = CorpusRecord {
            train: UtteranceList::of(train.manifest()),
            validation: validation.as_ref().map(|source| UtteranceList::of(source.manifest())),
        };
        let cuts = |source, settings| open_cuts(config, source, &speakers, settings, progress);
        let training = cuts(train, config.cuts())?;
        let classes = training.classes();
        let loader = LoaderConfig {
            batch: experiment.train.batch * division.began_with,
            order: config.order,
            drop_last: true,
            seed: experiment.seed,
            workers: rayon::current_num_threads().min(1024),
            ahead: None,
            strict: config.strict,
            part: [division.ranks.rank(), division.ranks.size()],
        };
        let check = LoaderConfig { order: Order::Sequential, drop_last: false, ..loader.clone() };
        let validation = match validation {
            None => None,
            Some(source) => Some(Loader::new(cuts(source, config.validation_cuts())?, check)?),
        };
        Ok(Self { train: Loader::new(training, loader)?, validation, classes, corpus })
    }
}

/// A manifest or a folder of shards that the recipe names.
fn find_corpus(config: &DataConfig, name: &Path) -> Result<Arc<dyn AudioSource>> {
    let path = config.path(name);
    if !path.exists() {
        return Err(Error::NoCorpus { path, root: config.root.clone() });
    }
    Ok(open_corpus(&path, Some(&config.root))?)
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
    if config.features_by == FeaturesBy::Device {
        return Ok(Arc::new(Waveforms::new(cuts)?));
    }
    let Some(folder) = &config.cache else { return Ok(Arc::new(cuts)) };
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let name = format!("{:016x}", cuts.fingerprint());
    // Runs that start together build one cache, not one each.
    let _building = Lock::wait(&folder.join(format!("{name}.lock")))?;
    Ok(Arc::new(FeatureCache::open(&folder.join(format!("{name}.features")), cuts, progress)?))
}
