//! Synthetic recordings: in each, a tone sweeps up or down through the features under noise. The class is where it
//! starts and how fast it moves.

use bregman_nn::Rng;

pub(crate) const FEATURES: usize = 24;
pub(crate) const FRAMES: usize = 40;
pub(crate) const CLASSES: usize = 8;

/// Recordings (`batch × frames × features`) and their classes.
pub(crate) struct Batch {
    pub(crate) values: Vec<f32>,
    pub(crate) labels: Vec<usize>,
}

/// A batch of random recordings.
pub(crate) fn batch(rng: &mut Rng, size: usize) -> Batch {
    let labels: Vec<usize> = (0..size).map(|_| rng.below(CLASSES)).collect();
    let mut values = Vec::with_capacity(size * FRAMES * FEATURES);
    for &label in &labels {
        let (start, speed) = ((label % 4) as f32 * 6.0, if label < 4 { 0.25 } else { -0.25 });
        let shift = rng.symmetric(1.5);
        for frame in 0..FRAMES {
            let tone = (start + shift + speed * frame as f32).rem_euclid(FEATURES as f32);
            values.extend((0..FEATURES).map(|bin| {
                let distance = (bin as f32 - tone).abs();
                2.0 * (-distance * distance / 2.0).exp() + rng.symmetric(1.0)
            }));
        }
    }
    Batch { values, labels }
}
