//! SpecAugment (Park et al. 2019): ranges of time and bands of frequency set to the mean, which is zero.

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use super::check_probability;
use crate::{Error, Features, Result};

/// How many masks, and how wide at most. The default is WeSpeaker's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskConfig {
    /// Masks over time.
    pub time_masks: usize,
    /// Widest mask over time, in frames.
    pub max_frames: usize,
    /// Masks over frequency.
    pub bin_masks: usize,
    /// Widest mask over frequency, in mel bins.
    pub max_bins: usize,
    /// Fraction of utterances that are masked.
    pub probability: f64,
}

impl Default for MaskConfig {
    fn default() -> Self {
        Self { time_masks: 1, max_frames: 10, bin_masks: 1, max_bins: 8, probability: 0.6 }
    }
}

/// More masks cover everything.
const MOST_MASKS: usize = 1000;

impl MaskConfig {
    pub(super) fn check(&self) -> Result<()> {
        for (field, masks) in [("mask.time_masks", self.time_masks), ("mask.bin_masks", self.bin_masks)] {
            if masks > MOST_MASKS {
                return Err(Error::config(field, masks, "at most 1000"));
            }
        }
        check_probability("mask.probability", self.probability)
    }

    pub(super) fn apply(&self, features: &mut Features, random: &mut impl Rng) {
        if features.data.is_empty() || !random.random_bool(self.probability) {
            return;
        }
        let mut span = |length: usize, widest: usize| {
            let width = random.random_range(0..=widest.min(length));
            let start = random.random_range(0..=length - width);
            start..start + width
        };
        for _ in 0..self.time_masks {
            let frames = span(features.frames, self.max_frames);
            features.data[frames.start * features.bins..frames.end * features.bins].fill(0.0);
        }
        for _ in 0..self.bin_masks {
            let bins = span(features.bins, self.max_bins);
            features.data.chunks_exact_mut(features.bins).for_each(|row| row[bins.clone()].fill(0.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    proptest! {
        #[test]
        fn masks_are_whole_rows_and_columns_within_the_limits(
            frames in 1usize..60,
            bins in 1usize..30,
            max_frames in 0usize..80,
            max_bins in 0usize..40,
            masks in 0usize..3,
            seed in any::<u64>(),
        ) {
            let mask = MaskConfig { time_masks: masks, max_frames, bin_masks: masks, max_bins, probability: 1.0 };
            let mut features = Features { frames, bins, data: vec![1.0; frames * bins] };
            mask.apply(&mut features, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
            let value = |frame: usize, bin: usize| features.data[frame * bins + bin];
            let rows: Vec<usize> = (0..frames).filter(|&frame| (0..bins).all(|bin| value(frame, bin) == 0.0)).collect();
            let columns: Vec<usize> =
                (0..bins).filter(|&bin| (0..frames).all(|frame| value(frame, bin) == 0.0)).collect();
            if rows.len() < frames && columns.len() < bins {
                prop_assert!(rows.len() <= masks * max_frames && columns.len() <= masks * max_bins);
            }
            for (frame, bin) in (0..frames).flat_map(|frame| (0..bins).map(move |bin| (frame, bin))) {
                prop_assert_eq!(value(frame, bin) == 0.0, rows.contains(&frame) || columns.contains(&bin));
            }
        }
    }
}
