//! Features from samples by matrix products, an utterance per task. A CPU has a faster way, the Fourier transform of
//! `bregman-audio`; this one says in plain words what a GPU computes.

use rayon::prelude::*;

use super::Cpu;
use super::matmul::{Into, Mat, Target, product};
use super::memory::check_length;
use crate::{DeviceMemory, FilterbankTables, Filterbanks, Result, ViewMut};

impl Filterbanks for Cpu {
    type Filterbank = FilterbankTables;

    fn filterbank(&self, tables: FilterbankTables) -> Result<FilterbankTables> {
        Ok(tables)
    }

    fn write_samples(&self, tables: &FilterbankTables, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        let (batch, frames) = (to.shape.batch, to.shape.width);
        check_length("features of samples", batch * tables.frames(from.len() / batch) * tables.bins, to.shape.len())?;
        let mut features = vec![0.0; batch * frames * tables.bins];
        let items = features.par_chunks_exact_mut(frames * tables.bins).zip(from.par_chunks_exact(from.len() / batch));
        items.for_each(|(features, samples)| utterance(tables, samples, frames, features));
        self.write_frames(&features, to)
    }
}

fn utterance(tables: &FilterbankTables, samples: &[f32], frames: usize, features: &mut [f32]) {
    let &FilterbankTables { window, hop, origin, relative, frequencies, bins, smallest, factor, .. } = tables;
    let mut gathered = vec![0.0; frames * window];
    for (frame, row) in gathered.chunks_exact_mut(window).enumerate() {
        let first = origin + (frame * hop) as isize;
        let before = (-first).clamp(0, window as isize) as usize;
        let from = samples.get(first.max(0) as usize..).unwrap_or_default();
        let count = from.len().min(window - before);
        row[before..before + count].copy_from_slice(&from[..count]);
        if relative {
            let first = row[0];
            row.iter_mut().for_each(|x| *x -= first);
        }
    }
    let multiply = |[n, k]: [usize; 2], a: &[f32], b: &[f32], to: &mut [f32]| {
        // SAFETY: `to` is borrowed exclusively until this returns.
        unsafe { product([frames, n, k], Mat::rows(a, k), Mat::rows(b, n), Into::Replace, Target::rows(to, n)) }
    };
    let mut spectrum = vec![0.0; frames * 2 * frequencies];
    multiply([2 * frequencies, window], &gathered, &tables.spectrum, &mut spectrum);
    let power = |row: &[f32]| -> Vec<f32> {
        (0..frequencies).map(|k| row[k] * row[k] + row[frequencies + k] * row[frequencies + k]).collect()
    };
    let powers: Vec<f32> = spectrum.chunks_exact(2 * frequencies).flat_map(power).collect();
    multiply([bins, frequencies], &powers, &tables.mel, features);
    features.iter_mut().for_each(|x| *x = factor * x.max(smallest).ln());
    if let Some(top_db) = tables.top_db {
        let floor = features.iter().copied().fold(f32::NEG_INFINITY, f32::max) - top_db;
        features.iter_mut().for_each(|x| *x = x.max(floor));
    }
    for bin in 0..bins {
        let mean = features.iter().skip(bin).step_by(bins).map(|&x| f64::from(x)).sum::<f64>() / frames as f64;
        features.iter_mut().skip(bin).step_by(bins).for_each(|x| *x -= mean as f32);
    }
}
