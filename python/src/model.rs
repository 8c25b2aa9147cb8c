//! `bregman.Model`: a model file, opened and ready to embed.

use std::path::PathBuf;

use bregman_runtime::Options;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::lent::Lent;

/// A model of the runtime. Every call releases Python's lock while it computes, and may be made from many threads.
#[pyclass(module = "bregman._bregman", frozen)]
pub(crate) struct Model(bregman_runtime::Model);

#[pymethods]
impl Model {
    /// Opens a model file; 0 threads for every core.
    #[new]
    fn open(py: Python<'_>, path: PathBuf, threads: usize) -> PyResult<Self> {
        let options = Options { threads, ..Options::default() };
        let opened = py.detach(|| bregman_runtime::Model::open_with(&path, &options));
        opened.map(Self).map_err(|error| match error {
            bregman_runtime::Error::File { .. } => PyOSError::new_err(error.to_string()),
            _ => PyValueError::new_err(format!("{}: {error}", path.display())),
        })
    }

    /// Writes the embedding of `len` samples at an address to another.
    fn embed_samples(&self, py: Python<'_>, samples: usize, len: usize, embedding: usize) -> PyResult<()> {
        let (samples, embedding) = (Lent::new(samples, len), Lent::new(embedding, self.0.embedding_size()));
        py.detach(|| self.0.embed_into(samples.values(), embedding.values_mut())).map_err(wrong)
    }

    /// Writes the embeddings of many utterances, each `(address, len)`, one after another to an address.
    fn embed_batch(&self, py: Python<'_>, utterances: Vec<(usize, usize)>, embeddings: usize) -> PyResult<()> {
        let size = self.0.embedding_size();
        let to = Lent::new(embeddings, utterances.len() * size);
        py.detach(|| {
            let samples: Vec<&[f32]> =
                utterances.iter().map(|&(address, len)| Lent::new(address, len).values()).collect();
            let rows = to.values_mut().chunks_mut(size);
            for (index, (row, embedding)) in rows.zip(self.0.embed_batch(&samples)).enumerate() {
                row.copy_from_slice(&embedding.map_err(|error| (index, error))?);
            }
            Ok(())
        })
        .map_err(|(index, error): (usize, bregman_runtime::Error)| {
            PyValueError::new_err(format!("utterance {index}: {error}"))
        })
    }

    /// Values of an embedding.
    #[getter]
    fn embedding_size(&self) -> usize {
        self.0.embedding_size()
    }

    /// Samples per second that it wants.
    #[getter]
    fn rate(&self) -> u32 {
        self.0.rate()
    }

    /// Threads in use.
    #[getter]
    fn threads(&self) -> usize {
        self.0.threads()
    }

    /// Cosines above it are accepted as the same speaker; none where the model was not calibrated.
    #[getter]
    fn threshold(&self) -> Option<f64> {
        self.0.threshold()
    }

    /// Share of zeros among the weights in the file.
    #[getter]
    fn sparsity(&self) -> f64 {
        self.0.zeros_in_file()
    }

    /// Name, shape and non-zero weights of every layer.
    #[getter]
    fn layers(&self) -> Vec<(String, Vec<usize>, usize)> {
        let layer = |layer: &bregman_runtime::LayerInfo| (layer.name.clone(), layer.shape.clone(), layer.nonzero);
        self.0.layers().iter().map(layer).collect()
    }
}

fn wrong(error: bregman_runtime::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The samples of an audio file as mono at 16 kHz, in bytes of native f32.
#[pyfunction]
pub(crate) fn load_audio(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    let samples = py.detach(|| bregman_audio::load_16k(&path)).map_err(|error| not_audio(&error))?;
    PyBytes::new_with(py, 4 * samples.len(), |bytes| {
        bytes.as_chunks_mut().0.iter_mut().zip(&samples).for_each(|(to, sample)| *to = sample.to_ne_bytes());
        Ok(())
    })
}

/// Refuses `len` samples at an address in which there is no speech.
#[pyfunction]
pub(crate) fn check_speech(py: Python<'_>, samples: usize, len: usize) -> PyResult<()> {
    let samples = Lent::new(samples, len);
    py.detach(|| bregman_audio::check_speech(samples.values(), bregman_audio::RATE)).map_err(|error| not_audio(&error))
}

fn not_audio(error: &bregman_audio::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}
