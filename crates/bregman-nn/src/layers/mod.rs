//! Layers: `forward` next to `backward`, parameters under the names of the network they belong to.

pub(crate) mod conv;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod tdnn;
