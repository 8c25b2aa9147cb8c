//! The range of every layer's input, found on a few utterances, for arithmetic in whole numbers of 8 bits.
//!
//! With codes x ≈ step · code, |code| ≤ 127, a range R = 127 · step rounds inputs within ±R by up to step / 2 and cuts
//! off those beyond. A few inputs are many times larger than the others, so the R that is taken is not the largest
//! magnitude but the one with the smallest squared error: Σ step² / 12 within, Σ (|x| − R)² beyond.

use std::sync::{Arc, Mutex, PoisonError};

use bregman_base::lanes::nonzeros;

use crate::file::{Contents, ModelFile, Source};
use crate::kernels::int8::MAX_LEVEL;
use crate::kernels::{Instructions, KernelCosts, STRIP};
use crate::network::{Execution, Network};
use crate::{Error, Result, ValueFormat};

impl ModelFile {
    /// Finds [where the inputs of layers lie](crate::Layer::input_range) on these utterances: mono samples as for
    /// [`crate::Model::embed`]. A few dozen of what the model is for suffice. Layers with few non-zeros stay in f32.
    ///
    /// # Errors
    /// No utterances, utterances that cannot be embedded, and a network without arithmetic in whole numbers.
    #[cfg(feature = "audio")]
    pub fn calibrate(&mut self, utterances: &[impl AsRef<[f32]>]) -> Result<()> {
        let mut extractor = crate::front_end::Extractor::new(&self.front_end, &self.architecture)?;
        let features = |samples: &_| -> Result<Vec<f32>> {
            let samples: &[f32] = AsRef::as_ref(samples);
            Ok(extractor.features(samples)?.to_vec())
        };
        let features = utterances.iter().map(features).collect::<Result<Vec<_>>>()?;
        self.calibrate_features(&features)
    }

    /// As [`ModelFile::calibrate`], on features: frames × bins, as the model's front end makes them.
    ///
    /// # Errors
    /// As [`ModelFile::calibrate`].
    pub fn calibrate_features(&mut self, utterances: &[impl AsRef<[f32]>]) -> Result<()> {
        let (bytes, bins) = (self.to_bytes(ValueFormat::F32)?, self.architecture.features);
        let source = Source::memory(&bytes)?;
        let contents = Contents::parse(&source)?;
        let watches = Watches::new(contents.layers.len());
        let (network, _) = Network::new(&contents, Some(&watches), &KernelCosts::BUILT_IN)?;
        let arch = Instructions::best().arch().expect("the best is one that this CPU has");
        let (mut workspace, mut embedding) = (network.workspace(), vec![0.0; self.architecture.embedding()]);
        for features in utterances {
            let features = features.as_ref();
            if features.is_empty() || !features.len().is_multiple_of(bins) {
                return Err(Error::Features { values: features.len(), bins });
            }
            let (frames, fewest) = (features.len() / bins, self.architecture.fewest_frames());
            if frames < fewest {
                return Err(Error::TooFewFrames { frames, fewest });
            }
            if features.iter().any(|value| !value.is_finite()) {
                return Err(Error::NotFinite);
            }
            // whole blocks, as far as there are any: what lies beyond a block's last frame is no part of the utterance
            let features = &features[..bins * if frames < STRIP { frames } else { frames - frames % STRIP }];
            let mut run = Execution { arch, team: None, times: None };
            network.forward(&mut run, &mut workspace, features, &mut embedding);
        }
        let ranges = watches.ranges();
        if ranges.iter().all(Option::is_none) {
            return Err(Error::Calibration(if utterances.is_empty() {
                "no utterances to find the ranges of inputs on".to_owned()
            } else {
                format!("{}: its layers are computed in f32 only", self.architecture)
            }));
        }
        for (layer, range) in self.layers.iter_mut().zip(ranges) {
            let pays = nonzeros(&layer.weight) >= FEWEST * layer.bias.len();
            layer.input_range = range.filter(|_| pays);
        }
        Ok(())
    }
}

/// Non-zeros per output below which a layer stays in f32: making codes and sums of numbers takes longer than is won.
const FEWEST: usize = 16;

/// What was seen of each layer's input. A copy refers to the same.
#[derive(Clone)]
pub(crate) struct Watches(Arc<[Mutex<Histogram>]>);

impl Watches {
    fn new(layers: usize) -> Self {
        Self((0..layers).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn see(&self, layer: usize, x: &[f32]) {
        self.0[layer].lock().unwrap_or_else(PoisonError::into_inner).add(x);
    }

    fn ranges(&self) -> Vec<Option<f32>> {
        self.0.iter().map(|seen| seen.lock().unwrap_or_else(PoisonError::into_inner).range()).collect()
    }
}

/// How many numbers have which magnitude.
#[derive(Default)]
struct Histogram {
    /// By exponent and the first bits of the mantissa.
    counts: Vec<u64>,
}

/// Bits of a number's mantissa that a histogram leaves out.
const LEFT_OUT: u32 = 19;

impl Histogram {
    fn add(&mut self, x: &[f32]) {
        self.counts.resize(((f32::INFINITY.to_bits() >> LEFT_OUT) + 1) as usize, 0);
        x.iter().filter(|x| x.is_finite()).for_each(|x| self.counts[(x.abs().to_bits() >> LEFT_OUT) as usize] += 1);
    }

    /// The range of the smallest squared error; `None` where nothing but zeros was seen.
    fn range(&self) -> Option<f32> {
        let magnitude = |bin: usize, half: u32| f64::from(f32::from_bits(((bin as u32) << LEFT_OUT) + half));
        let seen: Vec<(f64, f64)> = (1..self.counts.len())
            .filter(|&bin| self.counts[bin] > 0)
            .map(|bin| (magnitude(bin, 1 << (LEFT_OUT - 1)), self.counts[bin] as f64))
            .collect();
        let error = |range: f64| {
            let within = (range / f64::from(MAX_LEVEL)).powi(2) / 12.0;
            let of = |&(x, count): &(f64, f64)| count * if x <= range { within } else { (x - range).powi(2) };
            seen.iter().map(of).sum::<f64>()
        };
        let ranges = seen.iter().map(|&(x, _)| x);
        ranges
            .min_by(|&a, &b| error(a).total_cmp(&error(b)))
            .map(|range| range as f32)
            .filter(|range| range.is_normal())
    }
}
