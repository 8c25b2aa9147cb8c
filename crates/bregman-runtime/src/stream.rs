//! Sound that is still arriving: push samples, ask for the embedding of what was heard.

use crate::{Model, Result};

/// The last seconds of a recording. An embedding describes a whole utterance (levels, feature means and attention are
/// over all of it), so it is computed when asked for, from exactly what [`Model::embed`] would get.
///
/// ```no_run
/// # let model = bregman_runtime::Model::open("model.breg")?;
/// # let microphone: Vec<Vec<f32>> = Vec::new();
/// let mut stream = model.stream(10.0);
/// for samples in microphone {
///     stream.push(&samples);
///     if stream.seconds() >= 2.0 {
///         let embedding = stream.embed()?;
///     }
/// }
/// # Ok::<(), bregman_runtime::Error>(())
/// ```
pub struct Stream<'a> {
    model: &'a Model,
    /// At most twice `keep` samples; the last `keep` count.
    samples: Vec<f32>,
    keep: usize,
}

impl Model {
    /// A stream that keeps the last `seconds`.
    pub fn stream(&self, seconds: f64) -> Stream<'_> {
        let keep = (seconds * f64::from(self.rate())).clamp(self.shortest() as f64, (1u64 << 40) as f64) as usize;
        Stream { model: self, samples: Vec::new(), keep }
    }
}

impl Stream<'_> {
    /// Takes any number of samples.
    pub fn push(&mut self, samples: &[f32]) {
        let samples = &samples[samples.len().saturating_sub(self.keep)..];
        if self.samples.len() + samples.len() > 2 * self.keep {
            let surplus = (self.samples.len() + samples.len()).saturating_sub(self.keep).min(self.samples.len());
            self.samples.drain(..surplus);
        }
        self.samples.extend_from_slice(samples);
    }

    /// What [`Stream::embed`] would embed.
    pub fn samples(&self) -> &[f32] {
        &self.samples[self.samples.len().saturating_sub(self.keep)..]
    }

    /// How much that is.
    pub fn seconds(&self) -> f64 {
        self.samples().len() as f64 / f64::from(self.model.rate())
    }

    /// The embedding of the last seconds.
    ///
    /// # Errors
    /// As [`Model::embed`]: above all, not enough samples yet.
    pub fn embed(&self) -> Result<Vec<f32>> {
        self.model.embed(self.samples())
    }

    /// Forgets everything heard so far.
    pub fn clear(&mut self) {
        self.samples.clear();
    }
}
