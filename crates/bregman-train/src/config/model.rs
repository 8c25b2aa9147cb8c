//! How the network is computed; which one it is, `bregman-network` says.

use bregman_tensor::Precision;
use serde::{Deserialize, Serialize};

/// Number format of the operands of large products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrecisionKind {
    /// Single precision.
    #[default]
    F32,
    /// Single precision in memory, 10 bits of mantissa in products: on GPUs; a CPU computes in f32.
    Tf32,
    /// Operands in bf16, sums in f32.
    Bf16,
}

impl From<PrecisionKind> for Precision {
    fn from(kind: PrecisionKind) -> Self {
        match kind {
            PrecisionKind::F32 | PrecisionKind::Tf32 => Self::F32,
            PrecisionKind::Bf16 => Self::Bf16,
        }
    }
}

#[cfg(feature = "cuda")]
impl From<PrecisionKind> for bregman_tensor::cuda::Precision {
    fn from(kind: PrecisionKind) -> Self {
        match kind {
            PrecisionKind::F32 => Self::F32,
            PrecisionKind::Tf32 => Self::Tf32,
            PrecisionKind::Bf16 => Self::Bf16,
        }
    }
}
