//! Features minus their mean over the last seconds.

/// Subtracts from each frame the mean of the last `span` frames, its own included. The first `span` frames, which have
/// fewer before them, all get the mean of these `span` (or of a shorter recording: of all), as
/// `bregman_audio::Features::subtract_mean` does.
pub(super) struct RunningMean {
    bins: usize,
    span: usize,
    /// The last `span` frames as they came; frame t in place t mod `span`.
    recent: Vec<f32>,
    sums: Vec<f64>,
    heard: usize,
}

impl RunningMean {
    pub(super) fn new(bins: usize, span: usize) -> Self {
        Self { bins, span, recent: Vec::new(), sums: vec![0.0; bins], heard: 0 }
    }

    /// Whether it still waits for its first mean.
    pub(super) fn waits(&self) -> bool {
        self.heard < self.span
    }

    /// Takes a frame and appends those that are complete by it.
    pub(super) fn push(&mut self, frame: &[f32], normal: &mut Vec<f32>) {
        let place = self.heard % self.span * self.bins;
        let waited = self.waits();
        if waited {
            self.recent.extend_from_slice(frame);
        } else {
            let oldest = &mut self.recent[place..place + self.bins];
            self.sums.iter_mut().zip(&*oldest).for_each(|(sum, &x)| *sum -= f64::from(x));
            oldest.copy_from_slice(frame);
        }
        self.sums.iter_mut().zip(frame).for_each(|(sum, &x)| *sum += f64::from(x));
        self.heard += 1;
        if !waited {
            self.append(frame, self.span, normal);
        } else if !self.waits() {
            self.append(&self.recent, self.span, normal);
        }
    }

    /// Appends the frames of a recording that ended before its first mean; they stay.
    pub(super) fn of_a_short_recording(&self, normal: &mut Vec<f32>) {
        self.append(&self.recent, self.heard, normal);
    }

    fn append(&self, frames: &[f32], count: usize, normal: &mut Vec<f32>) {
        for frame in frames.chunks_exact(self.bins) {
            normal.extend(frame.iter().zip(&self.sums).map(|(x, sum)| x - (sum / count as f64) as f32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_audio::Features;

    const BINS: usize = 3;

    fn normal(frames: &[f32], span: usize) -> Vec<f32> {
        let (mut mean, mut normal) = (RunningMean::new(BINS, span), Vec::new());
        frames.chunks_exact(BINS).for_each(|frame| mean.push(frame, &mut normal));
        if mean.waits() {
            mean.of_a_short_recording(&mut normal);
        }
        normal
    }

    #[test]
    fn each_frame_loses_the_mean_of_the_last_ones_and_a_short_recording_that_of_all() {
        let data: Vec<f32> = (0..20 * BINS).map(|i| ((i * 7919) % 101) as f32 / 10.0).collect();
        for span in [1, 2, 7, 19, 20, 21, 50] {
            let ours = normal(&data, span);
            assert_eq!(ours.len(), data.len());
            for (frame, ours) in ours.chunks_exact(BINS).enumerate() {
                let to = (frame + 1).max(span.min(20));
                let last = &data[to.saturating_sub(span) * BINS..to * BINS];
                for bin in 0..BINS {
                    let mean = last.iter().skip(bin).step_by(BINS).sum::<f32>() / (last.len() / BINS) as f32;
                    assert!((ours[bin] - (data[frame * BINS + bin] - mean)).abs() < 1e-5, "span {span}, frame {frame}");
                }
            }
            if span >= 20 {
                let mut whole = Features { frames: 20, bins: BINS, data: data.clone() };
                whole.subtract_mean();
                assert_eq!(ours, whole.data);
            }
        }
    }
}
