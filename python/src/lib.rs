//! The native half of the Python package `bregman`, thin over the crates: numbers come in as addresses of memory that
//! Python owns (tensors, arrays), settings as JSON in the words of the recipes, errors go out as Python's.
#![deny(unsafe_code)]

mod cuda;
mod engine;
mod lent;
mod masks;
mod model;
mod reduce;
mod settings;
mod start;
mod stepper;
mod torch_ops;

use pyo3::exceptions::{PyFloatingPointError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// The Python exception for an error of the method's crate.
fn raise(error: bregman::Error) -> PyErr {
    match error {
        bregman::Error::NonFinite { .. } | bregman::Error::NonFiniteElsewhere { .. } => {
            PyFloatingPointError::new_err(error.to_string())
        }
        bregman::Error::Engine { .. } => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Settings in JSON, which the Python side writes.
fn read_settings<T: serde::de::DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A state as JSON, floats to the last bit.
fn to_json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

#[pymodule]
mod _bregman {
    #[pymodule_export]
    use super::masks::MaskMover;
    #[pymodule_export]
    use super::model::{Model, check_speech, load_audio};
    #[pymodule_export]
    use super::start::{initial_dual, sparse_init};
    #[pymodule_export]
    use super::stepper::Stepper;
}
