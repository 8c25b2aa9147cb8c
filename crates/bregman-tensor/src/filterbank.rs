//! A log-mel filterbank as matrix products: what a device needs to compute features from samples itself.

/// For every frame x of an utterance `factor · ln(max(|x · spectrum|² · mel, smallest))`; then everything further than
/// `top_db` under the utterance's maximum is raised to there, and the mean over time subtracted. The crate
/// `bregman-audio` makes these numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterbankTables {
    /// Samples of a frame.
    pub window: usize,
    /// Samples from frame to frame.
    pub hop: usize,
    /// Index of frame 0's first sample; outside of the utterance are zeros.
    pub origin: isize,
    /// A frame per hop, whole or not, rather than whole frames only.
    pub centred: bool,
    /// Frames count from their first sample: the product ignores a constant but for rounding, so that one exactly
    /// without is as good and has no energy at all.
    pub relative: bool,
    /// Frequencies.
    pub frequencies: usize,
    /// window × (real parts, imaginary parts).
    pub spectrum: Vec<f32>,
    /// Mel bins.
    pub bins: usize,
    /// frequencies × bins.
    pub mel: Vec<f32>,
    /// Smallest energy before the logarithm.
    pub smallest: f32,
    /// Factor behind it.
    pub factor: f32,
    /// Distance of the floor from the maximum.
    pub top_db: Option<f32>,
}

impl FilterbankTables {
    /// Frames that `samples` samples give.
    pub fn frames(&self, samples: usize) -> usize {
        match samples.checked_sub(self.window) {
            _ if self.centred => samples / self.hop + usize::from(samples > 0),
            None => 0,
            Some(rest) => 1 + rest / self.hop,
        }
    }
}
