//! Adaptive symmetric score normalisation (AS-norm; Matějka et al., Interspeech 2017).
//!
//! Each side of a trial is compared with a cohort of other speakers; μ and σ are the mean and the population standard
//! deviation of its `top_n` highest cohort scores:
//!
//! ```text
//! s' = ½ · ((s − μ_enroll) / σ_enroll + (s − μ_test) / σ_test)
//! ```

use bregman_base::simd;
use bregman_tensor::dot_products;
use rayon::prelude::*;

use super::embeddings::Embeddings;
use super::top::top_moments;
use crate::{Error, Result};

/// Rows of one matrix product: their scores against the cohort fit in the second-level cache.
const BLOCK: usize = 64;
/// A standard deviation below this is rounding error: all cohort scores are equal.
const MIN_STD: f64 = 1e-9;

/// Mean and standard deviation of an embedding's highest cohort scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CohortScores {
    /// μ, the mean.
    pub mean: f64,
    /// σ, the population standard deviation.
    pub std: f64,
}

impl CohortScores {
    /// For every row of `embeddings`: statistics of its `top_n` highest scores against `cohort` (all scores if the
    /// cohort is smaller). Rows have length 1.
    pub fn of(embeddings: &Embeddings, cohort: &Embeddings, top_n: usize) -> Result<Vec<Self>> {
        if cohort.dim() != embeddings.dim() {
            let value = format!("{} values where the test has {}", cohort.dim(), embeddings.dim());
            return Err(Error::Setting { field: "cohort", value, expected: "embeddings of the same network" });
        }
        if cohort.len() < 2 {
            return Err(Error::Setting {
                field: "cohort",
                value: format!("{} speakers", cohort.len()),
                expected: "2 or more",
            });
        }
        if top_n < 2 {
            return Err(Error::Setting { field: "as-norm", value: top_n.to_string(), expected: "2 or more" });
        }
        let (arch, dim, top_n) = (simd::arch(), cohort.dim(), top_n.min(cohort.len()));
        let mut all = vec![Self { mean: 0.0, std: 0.0 }; embeddings.len()];
        let blocks = all.par_chunks_mut(BLOCK).zip(embeddings.values().par_chunks(BLOCK * dim));
        blocks.for_each_init(Vec::new, |scores: &mut Vec<f32>, (out, rows)| {
            scores.resize(out.len() * cohort.len(), 0.0);
            dot_products(dim, rows, cohort.values(), scores);
            for (out, scores) in out.iter_mut().zip(scores.chunks_exact(cohort.len())) {
                let (mean, std) = top_moments(arch, scores, top_n);
                *out = Self { mean, std };
            }
        });
        Ok(all)
    }

    /// How many standard deviations `score` lies above the mean.
    pub fn z(&self, score: f64) -> f64 {
        (score - self.mean) / self.std.max(MIN_STD)
    }
}
