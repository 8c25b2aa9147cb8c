//! What goes to disk and comes from it: checkpoints, the state as named tensors, ONNX graphs.

pub(crate) mod checkpoint;
pub(crate) mod onnx;
pub(crate) mod recognise;
pub(crate) mod state;
