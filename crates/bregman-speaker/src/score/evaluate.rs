//! A whole evaluation: audio and trials in, error rates out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Bootstrap, Cohort, Det, DetPoint, Embedded, Embedder, EmbeddingStore, Embeddings, Histogram, Intervals,
    embed_utterances, score_trials, speakers_of_trials,
};
use crate::{AudioSource, Error, Progress, ResolvedTrials, Result, Trial, Unreadable};

/// P_target of the two reported costs.
const P_TARGETS: [f64; 2] = [0.01, 0.05];
/// Bins of the histogram of scores.
const BINS: usize = 80;

/// What to evaluate, and how.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `max_seconds` | 60 | the middle of each utterance that is embedded |
/// | `cohort` | none | other speakers, for AS-norm and centring |
/// | `bootstrap` | 1000 replicates | confidence intervals |
/// | `strict` | false | unreadable audio is an error; otherwise its trials are left out and counted |
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    /// The utterances of the trials.
    pub source: &'a dyn AudioSource,
    /// Trials by utterance number.
    pub trials: &'a ResolvedTrials,
    /// Other speakers.
    pub cohort: Option<CohortSource<'a>>,
    /// The middle of each utterance, up to this length, is embedded.
    pub max_seconds: f64,
    /// Confidence intervals.
    pub bootstrap: Bootstrap,
    /// Fail on unreadable audio instead of leaving out its trials.
    pub strict: bool,
}

/// Audio of a cohort.
#[derive(Clone, Copy)]
pub struct CohortSource<'a> {
    /// Its utterances; those of one speaker are averaged.
    pub source: &'a dyn AudioSource,
    /// How many utterances of each speaker to use at most: the first ones.
    pub per_speaker: usize,
    /// Subtract the mean of the cohort from all embeddings.
    pub center: bool,
    /// AS-norm with this many of the highest cohort scores.
    pub as_norm: Option<usize>,
}

/// Error rates of scored trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Equal error rate, in [0, 1].
    pub eer: f64,
    /// minDCF at P_target = 0.01.
    pub min_dcf: f64,
    /// minDCF at P_target = 0.05.
    pub min_dcf_p05: f64,
    /// The threshold at the EER: scores above it are accepted.
    pub threshold: f64,
    /// 95 % confidence intervals over speakers; `min_dcf` at 0.01 and 0.05.
    pub intervals: Option<Intervals>,
    /// The DET curve, thinned.
    pub det: Vec<DetPoint>,
    /// The distribution of the scores.
    pub histogram: Histogram,
}

/// Which scores are used for decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scoring {
    /// Cosines of embeddings.
    Cosine,
    /// Cosines normalised by those of a cohort.
    AsNorm,
}

impl fmt::Display for Scoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cosine => "cosine",
            Self::AsNorm => "as-norm",
        })
    }
}

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// The rates of the scores used for decisions.
    #[serde(flatten)]
    pub rates: Rates,
    /// The scores used for decisions.
    pub scoring: Scoring,
    /// The rates of the cosines, if AS-norm was used.
    pub cosine: Option<Rates>,
    /// Trials that were scored.
    pub trials: usize,
    /// Target trials among them.
    pub targets: usize,
    /// Trials left out because their audio could not be read.
    pub left_out: usize,
    /// Number of speakers, inferred from the target trials.
    pub speakers: usize,
    /// Utterances of the trials.
    #[serde(default)]
    pub utterances: usize,
    /// Embeddings computed now; the others were in the store.
    #[serde(default)]
    pub computed: usize,
    /// Speakers of the cohort.
    pub cohort_speakers: Option<usize>,
    /// Number of cohort scores used to normalise.
    pub top_n: Option<usize>,
    /// Audio that could not be read.
    #[serde(default)]
    pub unreadable: Vec<Unreadable>,
}

/// A report with the scores it was computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The report.
    pub report: EvaluationReport,
    /// Numbers of the trials that were scored.
    pub kept: Vec<usize>,
    /// Their scores.
    pub scores: Vec<f64>,
}

impl Evaluation<'_> {
    /// Embeds, scores and measures.
    ///
    /// # Errors
    /// Trials of one class only, a cohort of fewer than two speakers, a network or store that fails; unreadable audio
    /// if strict.
    pub fn run<E: Embedder>(
        &self,
        embedder: impl Fn() -> Result<E> + Sync,
        store: &EmbeddingStore,
        progress: &dyn Progress,
    ) -> Result<Scored> {
        self.bootstrap.check()?; // before the long work
        check_classes(&self.trials.trials)?;
        let utterances = self.utterances();
        let mut embedded = embed_utterances(self.source, &utterances, self.max_seconds, &embedder, store, progress)?;
        let cohort =
            self.cohort.map(|cohort| cohort.embed(self.max_seconds, &embedder, store, progress)).transpose()?;
        let (cohort, cohort_unreadable) = cohort.unzip();
        embedded.unreadable.extend(cohort_unreadable.unwrap_or_default());
        if let (true, Some(Unreadable { path, problem })) = (self.strict, embedded.unreadable.first().cloned()) {
            return Err(Error::Unreadable { utterance: path, problem });
        }

        let all = EmbeddedRows::new(&utterances, &embedded, self.source.manifest().utterances.len())?;
        let members: Vec<Vec<usize>> =
            self.trials.models.iter().map(|model| model.iter().filter_map(|&u| all.row_of[u]).collect()).collect();
        let kept: Vec<usize> = (0..self.trials.trials.len())
            .filter(|&at| {
                let trial = self.trials.trials[at];
                !members[trial.enroll as usize].is_empty() && all.row_of[trial.test as usize].is_some()
            })
            .collect();
        let (trials, tests) = all.compact(kept.iter().map(|&at| self.trials.trials[at]));
        check_classes(&trials)?;
        let models = all.embeddings.averages(&members, |row| f64::from(all.seconds[row]));
        let settings = self.cohort.zip(cohort.as_ref());
        let settings =
            settings.map(|(config, speakers)| Cohort { speakers, center: config.center, as_norm: config.as_norm });
        let scores = score_trials(&models, &all.embeddings.select(&tests), &trials, settings)?;

        let original: Vec<Trial> = kept.iter().map(|&at| self.trials.trials[at]).collect();
        let speakers = speakers_of_trials(&self.trials.models, &original);
        let rates = |scores: &[f64]| measure(scores, &original, &speakers, &self.bootstrap);
        let report = EvaluationReport {
            rates: rates(scores.best())?,
            scoring: if scores.as_norm.is_some() { Scoring::AsNorm } else { Scoring::Cosine },
            cosine: scores.as_norm.is_some().then(|| rates(&scores.cosine)).transpose()?,
            trials: trials.len(),
            targets: trials.iter().filter(|trial| trial.target).count(),
            left_out: self.trials.trials.len() - trials.len(),
            speakers: speakers.iter().flatten().max().map_or(0, |&last| last as usize + 1),
            utterances: utterances.len(),
            computed: embedded.computed,
            cohort_speakers: cohort.as_ref().map(Embeddings::len),
            top_n: settings.and_then(|cohort| cohort.as_norm.map(|top_n| top_n.min(cohort.speakers.len()))),
            unreadable: embedded.unreadable,
        };
        Ok(Scored { report, kept, scores: scores.as_norm.unwrap_or(scores.cosine) })
    }

    /// Every utterance that a trial or one of its models needs, once.
    fn utterances(&self) -> Vec<usize> {
        let mut needed = vec![false; self.source.manifest().utterances.len()];
        for trial in &self.trials.trials {
            needed[trial.test as usize] = true;
            self.trials.models[trial.enroll as usize].iter().for_each(|&utterance| needed[utterance] = true);
        }
        (0..needed.len()).filter(|&utterance| needed[utterance]).collect()
    }
}

impl CohortSource<'_> {
    /// One embedding per speaker, in the order of their names.
    fn embed<E: Embedder>(
        &self,
        max_seconds: f64,
        embedder: impl Fn() -> Result<E> + Sync,
        store: &EmbeddingStore,
        progress: &dyn Progress,
    ) -> Result<(Embeddings, Vec<Unreadable>)> {
        let manifest = self.source.manifest();
        let speakers = manifest.speakers();
        let mut of_speaker = vec![Vec::new(); speakers.len()];
        for (number, utterance) in manifest.utterances.iter().enumerate() {
            let label = speakers.label(&utterance.speaker).expect("a speaker of this manifest") as usize;
            if of_speaker[label].len() < self.per_speaker {
                of_speaker[label].push(number);
            }
        }
        let embedded = embed_utterances(self.source, &of_speaker.concat(), max_seconds, embedder, store, progress)?;
        if embedded.embeddings.iter().all(Option::is_none) {
            return Err(Error::Setting {
                field: "cohort",
                value: "0 readable utterances".to_owned(),
                expected: "2 speakers or more",
            });
        }
        let rows = EmbeddedRows::new(&of_speaker.concat(), &embedded, manifest.utterances.len())?;
        let groups: Vec<Vec<usize>> =
            of_speaker.iter().map(|members| members.iter().filter_map(|&u| rows.row_of[u]).collect()).collect();
        let groups: Vec<Vec<usize>> = groups.into_iter().filter(|rows: &Vec<usize>| !rows.is_empty()).collect();
        Ok((rows.embeddings.averages(&groups, |_| 1.0), embedded.unreadable))
    }
}

/// The available embeddings, scaled to length 1, by utterance number.
struct EmbeddedRows {
    embeddings: Embeddings,
    seconds: Vec<f32>,
    row_of: Vec<Option<usize>>,
}

impl EmbeddedRows {
    fn new(utterances: &[usize], embedded: &Embedded, total: usize) -> Result<Self> {
        let (mut values, mut seconds, mut row_of) = (Vec::new(), Vec::new(), vec![None; total]);
        let mut dim = 1;
        for (&utterance, embedding) in utterances.iter().zip(&embedded.embeddings) {
            if let Some(embedding) = embedding {
                row_of[utterance] = Some(seconds.len());
                seconds.push(embedding.seconds);
                values.extend_from_slice(&embedding.values);
                dim = embedding.values.len();
            }
        }
        Ok(Self { embeddings: Embeddings::new(dim, values)?.normalize(), seconds, row_of })
    }

    /// The trials renumbered so that `test` is an index into the returned rows.
    fn compact(&self, trials: impl Iterator<Item = Trial>) -> (Vec<Trial>, Vec<usize>) {
        let (mut place, mut tests) = (vec![u32::MAX; self.seconds.len()], Vec::new());
        let trials = trials.map(|trial| {
            let row = self.row_of[trial.test as usize].expect("only trials with embeddings are kept");
            if place[row] == u32::MAX {
                place[row] = tests.len() as u32;
                tests.push(row);
            }
            Trial { test: place[row], ..trial }
        });
        (trials.collect(), tests)
    }
}

fn check_classes(trials: &[Trial]) -> Result<()> {
    let has = |target: bool| trials.iter().any(|trial| trial.target == target);
    if !has(true) {
        Err(Error::OneClass("target"))
    } else if !has(false) {
        Err(Error::OneClass("non-target"))
    } else {
        Ok(())
    }
}

fn measure(scores: &[f64], trials: &[Trial], speakers: &[[u32; 2]], bootstrap: &Bootstrap) -> Result<Rates> {
    let labels: Vec<bool> = trials.iter().map(|trial| trial.target).collect();
    let det = Det::new(scores, &labels)?;
    Ok(Rates {
        eer: det.eer(),
        min_dcf: det.min_dcf(P_TARGETS[0]),
        min_dcf_p05: det.min_dcf(P_TARGETS[1]),
        threshold: det.threshold(),
        intervals: bootstrap.intervals(&det, scores, trials, speakers, &P_TARGETS),
        det: det.points(),
        histogram: Histogram::new(scores, &labels, BINS),
    })
}
