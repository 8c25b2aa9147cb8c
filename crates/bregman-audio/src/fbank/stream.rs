//! The filterbank for streaming audio: push samples, pop frames.
//!
//! Frames equal those of [`Fbank::compute`] bit for bit, with one exception: SpeechBrain's floor is 80 dB below
//! the maximum of the *whole* utterance, which a stream cannot know. Frames are raised to 80 dB below the maximum *so
//! far*; raising them once more to [`FbankStream::floor`] at the end gives exactly the features of the whole utterance.

use super::features::{max, raise_to};
use super::{Fbank, FbankConfig, FilterbankKind};
use crate::Result;

/// Samples in, frames out.
pub struct FbankStream {
    fbank: Fbank,
    /// Samples still needed by future frames.
    buffer: Vec<f32>,
    /// Samples pushed before those in the buffer.
    dropped: usize,
    /// Frames computed so far.
    computed: usize,
    /// Rows not yet popped, from `popped` on.
    ready: Vec<f32>,
    popped: usize,
    loudest: f32,
}

impl FbankStream {
    /// Checks the settings and builds the tables.
    pub fn new(config: FbankConfig) -> Result<Self> {
        let (buffer, ready) = (Vec::new(), Vec::new());
        Ok(Self {
            fbank: Fbank::new(config)?,
            buffer,
            dropped: 0,
            computed: 0,
            ready,
            popped: 0,
            loudest: f32::NEG_INFINITY,
        })
    }

    /// Takes any number of samples in [−1, 1] and computes the frames that they complete.
    pub fn push(&mut self, samples: &[f32]) {
        self.buffer.extend_from_slice(samples);
        let total = (self.dropped + self.buffer.len()) as isize;
        let (origin, window, hop) = (self.fbank.origin(), self.fbank.config.window() as isize, self.fbank.config.hop());
        let complete = total - origin - window;
        self.compute_until(if complete < 0 { 0 } else { complete as usize / hop + 1 });
        let needed = origin + (self.computed * hop) as isize;
        let unneeded = (needed.max(0) as usize).saturating_sub(self.dropped).min(self.buffer.len());
        self.buffer.drain(..unneeded);
        self.dropped += unneeded;
    }

    /// The next frame, if one is complete.
    pub fn pop(&mut self) -> Option<&[f32]> {
        let bins = self.fbank.config.bins;
        let row = self.popped..self.popped + bins;
        self.popped = row.end.min(self.ready.len());
        self.ready.get(row)
    }

    /// Computes the last frames; the next push starts a new utterance. Pop them, and read [`FbankStream::floor`],
    /// before that push.
    pub fn finish(&mut self) {
        self.compute_until(self.fbank.frames(self.dropped + self.buffer.len()));
        self.buffer.clear();
        (self.dropped, self.computed) = (0, 0);
    }

    /// SpeechBrain's floor for the audio so far; `None` for Kaldi, which has no floor.
    pub fn floor(&self) -> Option<f32> {
        match self.fbank.config.front_end {
            FilterbankKind::SpeechBrain { top_db, .. } => Some(self.loudest - top_db),
            FilterbankKind::Kaldi { .. } => None,
        }
    }

    fn compute_until(&mut self, frames: usize) {
        if frames <= self.computed {
            return;
        }
        if self.computed == 0 {
            self.loudest = f32::NEG_INFINITY;
        }
        let bins = self.fbank.config.bins;
        self.ready.drain(..self.popped);
        self.popped = 0;
        let old = self.ready.len();
        self.ready.resize(old + (frames - self.computed) * bins, 0.0);
        self.fbank.rows(&self.buffer, self.dropped as isize, self.computed, &mut self.ready[old..]);
        self.computed = frames;
        for row in self.ready[old..].chunks_exact_mut(bins) {
            self.loudest = self.loudest.max(max(row));
            if let FilterbankKind::SpeechBrain { top_db, .. } = self.fbank.config.front_end {
                raise_to(row, self.loudest - top_db);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Features, Window};
    use proptest::prelude::*;

    fn front_ends() -> [FbankConfig; 4] {
        let mut dithered = FbankConfig::kaldi(Window::Povey);
        dithered.front_end = FilterbankKind::Kaldi { window: Window::Povey, preemphasis: 0.97, dither: 1.0 };
        [FbankConfig::speechbrain(), FbankConfig::kaldi(Window::Povey), FbankConfig::kaldi(Window::Hamming), dithered]
    }

    /// Quiet at first and loud later, so that SpeechBrain's floor rises over time.
    fn sound(length: usize) -> Vec<f32> {
        (0..length)
            .map(|i| {
                (i as f32 * 0.37).sin() * (i as f32 / length as f32).powi(4) * (1.0 + (i * 31 % 17) as f32 / 17.0) * 0.4
            })
            .collect()
    }

    fn drain(stream: &mut FbankStream, features: &mut Features) {
        while let Some(row) = stream.pop() {
            features.data.extend_from_slice(row);
            features.frames += 1;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_stream_in_any_pieces_equals_the_whole_utterance(
            length in 0usize..12_000, pieces in prop::collection::vec(1usize..3_000, 1..6), front_end in 0usize..4
        ) {
            let config = front_ends()[front_end].clone();
            let samples = sound(length);
            let whole = Fbank::new(config.clone()).unwrap().compute(&samples);
            let mut stream = FbankStream::new(config.clone()).unwrap();
            // Twice: a finished stream can be used again.
            for _ in 0..2 {
                let mut features = Features { frames: 0, bins: config.bins, data: Vec::new() };
                let (mut rest, mut piece) = (samples.as_slice(), pieces.iter().cycle());
                while !rest.is_empty() {
                    let (now, later) = rest.split_at((*piece.next().unwrap()).min(rest.len()));
                    stream.push(now);
                    drain(&mut stream, &mut features);
                    prop_assert!(stream.buffer.len() <= 3_000 + 1_000, "memory stays bounded");
                    rest = later;
                }
                stream.finish();
                drain(&mut stream, &mut features);
                if let Some(floor) = stream.floor().filter(|floor| floor.is_finite()) {
                    features.raise_to(floor);
                }
                prop_assert_eq!(&features, &whole);
            }
        }
    }

    #[test]
    fn frames_are_ready_as_soon_as_their_window_is_complete() {
        let mut stream = FbankStream::new(FbankConfig::kaldi(Window::Povey)).unwrap();
        stream.push(&sound(399));
        assert!(stream.pop().is_none());
        stream.push(&[0.1]);
        assert!(stream.pop().is_some() && stream.pop().is_none());
        stream.push(&sound(160));
        assert!(stream.pop().is_some() && stream.pop().is_none());
    }
}
