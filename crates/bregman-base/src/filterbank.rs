//! A log-mel filterbank as matrix products: `bregman-audio` makes the numbers, a device of `bregman-tensor` computes
//! features from samples with them.

/// For every frame x of an utterance `factor · ln(max(|x · spectrum|² · mel, smallest))`; then everything further than
/// `top_db` under the utterance's maximum is raised to there, and the mean over time subtracted.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterbankTables {
    /// Samples of a frame.
    pub window: usize,
    /// Samples from frame to frame.
    pub hop: usize,
    /// Index of frame 0's first sample: negative for centred frames, which see zeros outside of the utterance.
    pub origin: isize,
    /// A frame per hop, whole or not, rather than whole frames only.
    pub centred: bool,
    /// Frames count from their first sample, which the product ignores but for rounding: digital silence with an
    /// offset has no energy.
    pub relative: bool,
    /// Frequencies that some filter sees, up to a multiple of four.
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
