//! What a run leaves on disk: its folder, checkpoints, metric logs.

pub(crate) mod checkpoint;
pub(crate) mod folder;
pub(crate) mod log;
