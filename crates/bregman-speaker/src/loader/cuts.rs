//! Cuts of audio as features: read, augment, normalise the level, filterbank, mean subtraction. Each thread has its own
//! reader; no state is carried from one cut to the next.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use bregman_audio::Augment;
use bregman_base::hash::Fnv;

use super::features::Extractor;
use super::plan::{CutConfig, CutPlan};
use crate::manifest::{Speakers, Utterance};
use crate::source::AudioSource;
use crate::{Error, Result};

/// Labelled training examples of one shape, by number: features computed from audio, or read from a cache.
pub trait CutSource: Send + Sync {
    /// The label of each cut without augmentation.
    fn labels(&self) -> &[u32];

    /// Number of classes, including those that augmentation adds.
    fn classes(&self) -> usize;

    /// `[frames, bins]` of every cut.
    fn shape(&self) -> [usize; 2];

    /// The file or files of a cut, for messages.
    fn name(&self, cut: usize) -> String;

    /// A reader of cuts, one per thread.
    fn reader(&self) -> Box<dyn CutReader + '_>;
}

/// Reads cuts in one thread.
pub trait CutReader {
    /// Writes the features of `cut`, frames × bins, to `out` and returns its label, which speed augmentation may
    /// change. All randomness comes from `seed`.
    fn read(&mut self, cut: usize, seed: u64, out: &mut [f32]) -> Result<u32>;
}

/// Cuts of a corpus, computed on demand.
pub struct Cuts {
    source: Arc<dyn AudioSource>,
    plan: CutPlan,
    speakers: usize,
    augment: Augment,
    config: CutConfig,
    shape: [usize; 2],
}

impl Cuts {
    /// Plans the cuts of `source`; labels are those of `speakers`, which for validation data are the training set's.
    pub fn new(source: Arc<dyn AudioSource>, speakers: &Speakers, config: CutConfig) -> Result<Self> {
        let plan = CutPlan::new(source.manifest(), speakers, &config)?;
        let shape = [Extractor::new(&config.features)?.frames(config.samples()), config.features.bins];
        if shape[0] == 0 {
            let value = config.seconds.to_string();
            return Err(Error::Setting { field: "seconds", value, expected: "at least one window of the filterbank" });
        }
        let augment = Augment::new(config.augment.clone()).map_err(Error::front_end)?;
        Ok(Self { source, plan, speakers: speakers.len(), augment, config, shape })
    }

    /// The settings.
    pub fn config(&self) -> &CutConfig {
        &self.config
    }

    /// A hash of everything that determines the cuts: settings, utterances, their durations and order.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::default();
        let settings = serde_json::to_string(&self.config).expect("settings are plain data");
        let mut write = |text: fmt::Arguments<'_>| hash.write_fmt(text).expect("a hash takes any text");
        write(format_args!("{settings}"));
        for Utterance { id, speaker, path, seconds, genre, .. } in &self.source.manifest().utterances {
            write(format_args!("\n{id}\t{speaker}\t{}\t{seconds:?}\t{genre:?}", path.display()));
        }
        hash.finish()
    }
}

impl Cuts {
    fn new_reader(&self) -> CutComputer<'_> {
        let extractor = Extractor::new(&self.config.features).expect("checked when the cuts were planned");
        CutComputer { cuts: self, extractor, samples: Vec::new() }
    }
}

impl CutSource for Cuts {
    fn labels(&self) -> &[u32] {
        &self.plan.labels
    }

    fn classes(&self) -> usize {
        self.speakers * self.augment.variants()
    }

    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn name(&self, cut: usize) -> String {
        let utterances = &self.source.manifest().utterances;
        let names: Vec<String> = self
            .plan
            .pieces(cut, self.config.samples())
            .map(|(number, _)| utterances[number].path.display().to_string())
            .collect();
        names.join(" + ")
    }

    fn reader(&self) -> Box<dyn CutReader + '_> {
        Box::new(self.new_reader())
    }
}

struct CutComputer<'a> {
    cuts: &'a Cuts,
    extractor: Extractor,
    samples: Vec<f32>,
}

impl CutComputer<'_> {
    /// Fills `samples` with those of a cut, augmented, and returns its label.
    fn samples(&mut self, cut: usize, seed: u64) -> Result<u32> {
        let Cuts { source, plan, speakers, augment, config, .. } = self.cuts;
        let variant = augment.pick_variant(seed);
        let needed = augment.source_length(config.samples(), variant);
        self.samples.clear();
        for (utterance, range) in plan.pieces(cut, needed) {
            source.append(utterance, range, &mut self.samples)?;
        }
        let unreadable = |problem: String| Error::Unreadable { utterance: self.cuts.name(cut), problem };
        repeat_to(&mut self.samples, needed)
            .ok_or_else(|| unreadable("it is shorter than the manifest states".to_owned()))?;
        augment.waveform(&mut self.samples, variant, seed).map_err(|error| unreadable(error.to_string()))?;
        self.samples.resize(config.samples(), 0.0); // speed perturbation may be off by one sample
        Ok(augment.label(plan.labels[cut] as usize, *speakers, variant) as u32)
    }
}

impl CutReader for CutComputer<'_> {
    fn read(&mut self, cut: usize, seed: u64, out: &mut [f32]) -> Result<u32> {
        let label = self.samples(cut, seed)?;
        let features = self.extractor.extract(&mut self.samples, seed);
        self.cuts.augment.features(features, seed);
        out.copy_from_slice(&features.data);
        Ok(label)
    }
}

/// The same cuts as level-normalised samples, for a device that computes the features itself. Their shape is
/// `[samples, 1]`.
pub struct Waveforms(Cuts);

impl Waveforms {
    /// Refuses cuts whose augmentation works on features.
    ///
    /// # Errors
    /// Masks.
    pub fn new(cuts: Cuts) -> Result<Self> {
        if cuts.config.augment.mask.is_some() {
            let expected = "none if the device computes the features: masks apply to features computed by the loader";
            return Err(Error::Setting { field: "augment.mask", value: "set".to_owned(), expected });
        }
        Ok(Self(cuts))
    }
}

impl CutSource for Waveforms {
    fn labels(&self) -> &[u32] {
        self.0.labels()
    }

    fn classes(&self) -> usize {
        self.0.classes()
    }

    fn shape(&self) -> [usize; 2] {
        [self.0.config.samples(), 1]
    }

    fn name(&self, cut: usize) -> String {
        self.0.name(cut)
    }

    fn reader(&self) -> Box<dyn CutReader + '_> {
        Box::new(WaveformReader(self.0.new_reader()))
    }
}

struct WaveformReader<'a>(CutComputer<'a>);

impl CutReader for WaveformReader<'_> {
    fn read(&mut self, cut: usize, seed: u64, out: &mut [f32]) -> Result<u32> {
        let label = self.0.samples(cut, seed)?;
        self.0.cuts.config.features.prepare(&mut self.0.samples);
        out.copy_from_slice(&self.0.samples);
        Ok(label)
    }
}

/// Repeats the samples up to `length`; `None` if there are none.
fn repeat_to(samples: &mut Vec<f32>, length: usize) -> Option<()> {
    let have = samples.len();
    if have == 0 {
        return None;
    }
    while samples.len() < length {
        let more = (length - samples.len()).min(have);
        samples.extend_from_within(..more);
    }
    Some(())
}
