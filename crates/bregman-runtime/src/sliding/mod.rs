//! Embeddings of windows that overlap, without computing twice what they share.

mod mean;

use std::ops::Range;

use bregman_audio::FbankStream;

use crate::network::{Execution, Incremental};
use crate::{Error, Model, Result};
use mean::RunningMean;

/// Which windows.
///
/// | field | default | meaning |
/// | --- | --- | --- |
/// | `window` | 3 | seconds of a window, at most 3600 |
/// | `mean` | 3 | a frame of features loses the mean over so many seconds before it, at most 3600 |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlidingOptions {
    /// Seconds of a window.
    pub window: f64,
    /// Seconds over which features are normalised.
    pub mean: f64,
}

impl Default for SlidingOptions {
    fn default() -> Self {
        Self { window: 3.0, mean: 3.0 }
    }
}

/// The embedding of a window of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowEmbedding {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends, in seconds.
    pub end: f64,
    /// Its embedding.
    pub embedding: Vec<f32>,
}

/// The last seconds of sound that is still arriving, with what the network has computed of them: an embedding costs
/// what is new since the last one, and the part of the network that looks at a window as a whole.
///
/// It is not quite the embedding of [`Model::embed`], which sees the window and nothing else:
///
/// * The convolutions see the frames before the window too; a cut-out window has zeros
///   or mirrored frames there. As if the whole recording
///   until now went through them at once, and the window were taken from what comes out.
/// * Features lose their mean over [`SlidingOptions::mean`] seconds up to each frame, not over the window: else all of
///   the network would have to be computed again. The first seconds get the mean of all of them.
/// * Sound is not leveled: a factor becomes a constant in logarithms, which the mean takes away. What leveling clips,
///   the offset of the samples and the floors under the logarithm make small differences.
/// * Only whole windows of the filterbank count: what it adds at the end of a recording, half of it silence, is left
///   out.
/// * Layers of a ResNet or of CAM++'s head that whole utterances take by Winograd's method
///   ([`Runs::Winograd`](crate::Runs::Winograd)) are plain sums here, the same up to rounding. Their weights are in
///   memory a second time from the first stream on.
///
/// Defined so, results are exact: however the sound is cut into pieces, and in whichever way it was computed, they are
/// the same to the bit. All convolutions of a ResNet are computed once per frame. The gates of ECAPA-TDNN depend on the
/// mean over the window, so only its first layer and the convolutions of its first block are; of CAM++, whose dense
/// layers have such gates, the two-dimensional head and the first layer behind it.
///
/// ```no_run
/// # let model = bregman_runtime::Model::open("model.breg")?;
/// # let microphone: Vec<Vec<f32>> = Vec::new();
/// let mut sliding = model.sliding(bregman_runtime::SlidingOptions::default())?;
/// for half_a_second in microphone {
///     sliding.push(&half_a_second)?;
///     let embedding = sliding.embed()?;
/// }
/// # Ok::<(), bregman_runtime::Error>(())
/// ```
pub struct Sliding<'a> {
    model: &'a Model,
    fbank: FbankStream,
    mean: RunningMean,
    incremental: Incremental,
    /// Normalised frames that the network has not seen.
    pending: Vec<f32>,
    /// Frames of a window.
    window: usize,
    samples: usize,
    frames: usize,
    /// Seconds from one frame to the next.
    hop: f64,
}

impl Model {
    /// Sound that is still arriving, for embeddings of its last seconds at any time.
    ///
    /// # Errors
    /// Options out of range.
    pub fn sliding(&self, options: SlidingOptions) -> Result<Sliding<'_>> {
        let config = self.front_end().fbank()?;
        let hop = f64::from(config.hop_ms) / 1e3;
        let window = frames("window", options.window, hop)?;
        if window < self.fewest_frames() {
            let expected = "too few frames for this network, which mirrors its input at both ends; pass more";
            return Err(Error::Sliding { field: "window", value: options.window, expected });
        }
        let mean = RunningMean::new(config.bins, frames("mean", options.mean, hop)?);
        let fbank = FbankStream::new(config).map_err(|error| Error::FrontEnd(error.to_string()))?;
        let incremental = self.incremental(window);
        Ok(Sliding { model: self, fbank, mean, incremental, pending: Vec::new(), window, samples: 0, frames: 0, hop })
    }

    /// The embeddings of windows of a recording, one every `hop` seconds and one that ends where the recording does; of
    /// all of it where it is shorter than a window. Each is what [`Sliding`] says, with the frames after the window
    /// as context too.
    ///
    /// # Errors
    /// As [`Model::embed`], and options or a hop out of range.
    pub fn embed_windows(&self, samples: &[f32], options: SlidingOptions, hop: f64) -> Result<Vec<WindowEmbedding>> {
        let mut sliding = self.sliding(options)?;
        let hop = frames("hop", hop, sliding.seconds_of(1))?;
        sliding.push(samples)?;
        sliding.check()?;
        sliding.windows(hop)
    }
}

/// Seconds in frames.
fn frames(field: &'static str, seconds: f64, hop: f64) -> Result<usize> {
    let frames = (seconds / hop).round();
    if frames >= 1.0 && seconds <= 3600.0 {
        Ok(frames as usize)
    } else {
        Err(Error::Sliding { field, value: seconds, expected: "pass at least one frame's hop, and at most 3600" })
    }
}

impl Sliding<'_> {
    /// Takes any number of samples.
    ///
    /// # Errors
    /// NaN or infinity among them; then none of them is taken.
    pub fn push(&mut self, samples: &[f32]) -> Result<()> {
        if samples.iter().any(|sample| !sample.is_finite()) {
            return Err(Error::NotFinite);
        }
        self.fbank.push(samples);
        self.samples += samples.len();
        while let Some(frame) = self.fbank.pop() {
            self.mean.push(frame, &mut self.pending);
            self.frames += 1;
        }
        Ok(())
    }

    /// What it embeds with.
    pub fn model(&self) -> &Model {
        self.model
    }

    /// Seconds heard since the beginning.
    pub fn seconds(&self) -> f64 {
        self.samples as f64 / f64::from(self.model.rate())
    }

    /// Seconds of look-ahead that the incremental part of the network needs after a frame: the latency of
    /// [`Sliding::embed_settled`].
    pub fn context(&self) -> f64 {
        self.seconds_of(self.incremental.context())
    }

    /// The embedding of the last window, or of everything where less was heard: as if the recording ended now.
    ///
    /// # Errors
    /// Not one frame yet.
    pub fn embed(&mut self) -> Result<Vec<f32>> {
        self.check()?;
        let window = self.frames.saturating_sub(self.window)..self.frames;
        if !self.mean.waits() {
            advance(self.model, &mut self.incremental, &self.pending);
            self.pending.clear();
            return embed_last(self.model, &mut self.incremental, window);
        }
        // the mean changes with every frame, so nothing can be kept
        let mut features = Vec::new();
        self.mean.of_a_short_recording(&mut features);
        if window.start == 0 {
            return self.model.embed_features(&features);
        }
        let mut incremental = self.model.incremental(self.window);
        advance(self.model, &mut incremental, &features);
        embed_last(self.model, &mut incremental, window)
    }

    /// The embedding of the last window that [`Sliding::context`] has been heard after, so that no sound to come can
    /// change it; `None` if there is none. The cheapest one: nothing is computed that is not kept.
    ///
    /// # Errors
    /// None but what a model's memory may cause.
    pub fn embed_settled(&mut self) -> Result<Option<WindowEmbedding>> {
        advance(self.model, &mut self.incremental, &self.pending);
        self.pending.clear();
        let end = self.incremental.settled();
        let window = end.saturating_sub(self.window)..end;
        if window.len() < self.model.fewest_frames() {
            return Ok(None);
        }
        let embedding = self.model.with_workspace(|workspace| {
            self.model.execute(self.model.threads(), |network, run| {
                let mut embedding = vec![0.0; self.model.embedding_size()];
                self.incremental.embed(network, run, workspace, window.clone(), &mut embedding);
                embedding
            })
        })?;
        Ok(Some(self.placed(&window, embedding)))
    }

    /// Windows every `hop` frames of what was pushed, and one at the end.
    fn windows(mut self, hop: usize) -> Result<Vec<WindowEmbedding>> {
        if self.mean.waits() {
            self.mean.of_a_short_recording(&mut self.pending);
        }
        let last = self.frames.saturating_sub(self.window)..self.frames;
        let mut starts: Vec<usize> = (0..last.start).step_by(hop).chain([last.start]).collect();
        starts.reverse();
        let Self { model, ref mut incremental, ref pending, window, frames, .. } = self;
        let bins = model.architecture().features;
        let mut found = Vec::with_capacity(starts.len());
        let done = model.with_workspace(|workspace| {
            model.execute(model.threads(), |network, run| {
                let mut embed = |incremental: &Incremental, run: &mut Execution, start: usize| {
                    let (window, mut values) = (start..(start + window).min(frames), vec![0.0; model.embedding_size()]);
                    incremental.embed(network, run, workspace, window.clone(), &mut values);
                    found.push((window, values));
                };
                for frames in pending.chunks(hop * bins) {
                    incremental.advance(network, run, frames);
                    while let Some(start) = starts.pop_if(|start| *start + window <= incremental.settled()) {
                        embed(incremental, run, start);
                    }
                }
                incremental.at_the_end(network, run, |incremental, run| {
                    starts.iter().rev().for_each(|&start| embed(incremental, run, start));
                });
            });
        });
        done?;
        Ok(found.into_iter().map(|(window, embedding)| self.placed(&window, embedding)).collect())
    }

    fn placed(&self, window: &Range<usize>, embedding: Vec<f32>) -> WindowEmbedding {
        WindowEmbedding { start: self.seconds_of(window.start), end: self.seconds_of(window.end), embedding }
    }

    fn seconds_of(&self, frames: usize) -> f64 {
        frames as f64 * self.hop
    }

    fn check(&self) -> Result<()> {
        let needed = self.model.shortest();
        let short = Error::TooShort { samples: self.samples, needed, rate: self.model.rate() };
        let (frames, fewest) = (self.frames, self.model.fewest_frames());
        match frames {
            0 => Err(short),
            _ if self.samples < needed => Err(short),
            _ if frames < fewest => Err(Error::TooFewFrames { frames, fewest }),
            _ => Ok(()),
        }
    }

    /// Bytes of its buffers.
    pub fn memory(&self) -> usize {
        self.incremental.bytes()
    }
}

fn advance(model: &Model, incremental: &mut Incremental, frames: &[f32]) {
    model.execute(model.threads(), |network, run| incremental.advance(network, run, frames));
}

/// The embedding of a window of a recording that ends with it.
fn embed_last(model: &Model, incremental: &mut Incremental, window: Range<usize>) -> Result<Vec<f32>> {
    model.with_workspace(|workspace| {
        model.execute(model.threads(), |network, run| {
            let mut embedding = vec![0.0; model.embedding_size()];
            incremental.at_the_end(network, run, |incremental, run| {
                incremental.embed(network, run, workspace, window, &mut embedding);
            });
            embedding
        })
    })
}
