//! Filterbank features, frame by frame.

use bregman_tensor::{DeviceMemory, Error, FilterbankTables, Filterbanks, Result, ViewMut};

use super::Reference;

impl Filterbanks for Reference {
    type Filterbank = FilterbankTables;

    fn filterbank(&self, tables: FilterbankTables) -> Result<FilterbankTables> {
        Ok(tables)
    }

    fn write_samples(&self, tables: &FilterbankTables, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        let batch = to.shape.batch;
        let length = from.len() / batch;
        let expected = batch * tables.frames(length) * tables.bins;
        if expected != to.shape.len() {
            return Err(Error::Length { what: "features of samples", expected, got: to.shape.len() });
        }
        let features: Vec<f32> = from.chunks_exact(length).flat_map(|samples| utterance(tables, samples)).collect();
        self.write_frames(&features, to)
    }
}

fn utterance(tables: &FilterbankTables, samples: &[f32]) -> Vec<f32> {
    let &FilterbankTables { window, hop, origin, relative, frequencies, bins, .. } = tables;
    let frames = tables.frames(samples.len());
    let sample = |at: isize| usize::try_from(at).ok().and_then(|at| samples.get(at)).map_or(0.0, |&x| f64::from(x));
    let mut features = Vec::new();
    for frame in 0..frames {
        let first = origin + (frame * hop) as isize;
        let offset = if relative { sample(first) } else { 0.0 };
        let sum = |column: usize| -> f64 {
            let term = |i: usize| {
                (sample(first + i as isize) - offset) * f64::from(tables.spectrum[i * 2 * frequencies + column])
            };
            (0..window).map(term).sum()
        };
        let power: Vec<f64> = (0..frequencies).map(|k| sum(k).powi(2) + sum(frequencies + k).powi(2)).collect();
        for bin in 0..bins {
            let energy: f64 = power.iter().enumerate().map(|(k, p)| p * f64::from(tables.mel[k * bins + bin])).sum();
            features.push(f64::from(tables.factor) * energy.max(f64::from(tables.smallest)).ln());
        }
    }
    if let Some(top_db) = tables.top_db {
        let floor = features.iter().copied().fold(f64::NEG_INFINITY, f64::max) - f64::from(top_db);
        features.iter_mut().for_each(|x| *x = x.max(floor));
    }
    for bin in 0..bins {
        let mean = features.iter().skip(bin).step_by(bins).sum::<f64>() / frames as f64;
        features.iter_mut().skip(bin).step_by(bins).for_each(|x| *x -= mean);
    }
    features.into_iter().map(|x| x as f32).collect()
}
