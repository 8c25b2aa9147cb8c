//! From embeddings to error rates.
//!
//! ```text
//! enroll ─▶ duration-weighted mean ─┐
//! test ─────────────────────────────┼─▶ centre ─▶ cosine ─▶ AS-norm ─▶ DET ─▶ EER, minDCF ─▶ bootstrap
//! cohort ─▶ one mean per speaker ───┘
//! ```
//!
//! Ties are handled exactly: trials with equal scores are accepted or rejected together (see [`Det`]).
//!
//! | file | what it does |
//! | --- | --- |
//! | `embed`, `store`, `embeddings` | utterances to vectors, each distinct recording once |
//! | `cohort`, `top` | AS-norm |
//! | `det`, `bootstrap`, `histogram` | scores to error rates and their intervals |
//! | `compare` | methods against each other, on the same trials |
//! | `evaluate` | all of it, from audio and trials to a report |
//! | `file` | score files |

mod bootstrap;
mod cohort;
mod compare;
mod det;
mod embed;
mod embeddings;
mod evaluate;
mod file;
mod histogram;
mod store;
mod top;

pub use bootstrap::{Bootstrap, Intervals, speakers_of_trials};
pub use bregman_base::lanes::cosine;
pub use cohort::CohortScores;
pub use compare::{Estimate, Sample};
pub use det::{Det, DetPoint};
pub(crate) use embed::with_networks;
pub use embed::{Embedded, Embedder, SpeechOnly, append_middle, embed_recording, embed_utterances};
pub use embeddings::Embeddings;
pub use evaluate::{CohortSource, Evaluation, EvaluationReport, Rates, Scored, Scoring};
pub use file::{read_scores, write_scores};
pub use histogram::Histogram;
pub use store::{Embedding, EmbeddingStore};

use bregman_base::simd;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::{Error, Result, Trial};

/// Trials of one parallel task.
const BLOCK: usize = 4096;

/// Scores of a trial list, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialScores {
    /// Cosines.
    pub cosine: Vec<f64>,
    /// AS-norm scores, if asked for.
    pub as_norm: Option<Vec<f64>>,
}

impl TrialScores {
    /// The scores to decide by: AS-norm if computed, otherwise cosine.
    pub fn best(&self) -> &[f64] {
        self.as_norm.as_deref().unwrap_or(&self.cosine)
    }
}

/// A cohort of other speakers, one embedding each, and what to do with it.
#[derive(Debug, Clone, Copy)]
pub struct Cohort<'a> {
    /// One row per speaker.
    pub speakers: &'a Embeddings,
    /// Subtract the cohort's mean from models, tests and cohort.
    pub center: bool,
    /// Normalise with the best `n` cohort scores.
    pub as_norm: Option<usize>,
}

/// Scores trials: `enroll` numbers rows of `models`, `test` rows of `tests`. Rows need not have length 1.
pub fn score_trials(
    models: &Embeddings,
    tests: &Embeddings,
    trials: &[Trial],
    cohort: Option<Cohort>,
) -> Result<TrialScores> {
    let outside = |trial: &&Trial| trial.enroll as usize >= models.len() || trial.test as usize >= tests.len();
    if let Some(trial) = trials.iter().find(outside) {
        let value = format!("model {} against test {}", trial.enroll, trial.test);
        return Err(Error::Setting { field: "trial", value, expected: "numbers of models and tests" });
    }
    let center = cohort.filter(|cohort| cohort.center).map(|cohort| cohort.speakers.mean());
    let prepare = |embeddings: &Embeddings| match &center {
        Some(mean) => embeddings.clone().subtract(mean).normalize(),
        None => embeddings.clone().normalize(),
    };
    let (models, tests) = (prepare(models), prepare(tests));
    let cosine = cosines(&models, &tests, trials);
    let as_norm = match cohort.and_then(|cohort| cohort.as_norm.map(|top_n| (cohort.speakers, top_n))) {
        None => None,
        Some((speakers, top_n)) => {
            let speakers = prepare(speakers);
            let (enroll, test) =
                (CohortScores::of(&models, &speakers, top_n)?, CohortScores::of(&tests, &speakers, top_n)?);
            let normalize = |(&score, trial): (&f64, &Trial)| {
                (enroll[trial.enroll as usize].z(score) + test[trial.test as usize].z(score)) / 2.0
            };
            Some(cosine.par_iter().zip(trials).with_min_len(BLOCK).map(normalize).collect())
        }
    };
    Ok(TrialScores { cosine, as_norm })
}

fn cosines(models: &Embeddings, tests: &Embeddings, trials: &[Trial]) -> Vec<f64> {
    let (arch, mut scores) = (simd::arch(), vec![0.0; trials.len()]);
    scores
        .par_chunks_mut(BLOCK)
        .zip(trials.par_chunks(BLOCK))
        .for_each(|(scores, trials)| arch.dispatch(DotProducts { models, tests, trials, scores }));
    scores
}

/// The dot product of each trial's two rows.
struct DotProducts<'a> {
    models: &'a Embeddings,
    tests: &'a Embeddings,
    trials: &'a [Trial],
    scores: &'a mut [f64],
}

impl WithSimd for DotProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (score, trial) in self.scores.iter_mut().zip(self.trials) {
            *score = f64::from(dot(simd, self.models.row(trial.enroll as usize), self.tests.row(trial.test as usize)));
        }
    }
}

#[inline(always)]
fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let ((a, a_odd), (b, b_odd)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = [simd.splat_f32s(0.0); 4];
    for (a, b) in a.iter().zip(b) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum = simd.mul_add_e_f32s(a, b, *sum);
        }
    }
    for (&a, &b) in a_odd.iter().zip(b_odd) {
        sums[0] = simd.mul_add_e_f32s(a, b, sums[0]);
    }
    let sum = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]));
    simd.reduce_sum_f32s(sum) + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests;
