//! Levels of SIMD instructions.

use bregman_base::simd::Level;
use pulp::Arch;

use super::{BLOCK, STRIP};

/// The instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instructions {
    /// AVX-512 (x86-64-v4).
    Avx512,
    /// AVX2 and FMA (x86-64-v3).
    Avx2,
    /// The vectors of the platform: NEON on ARM64, SIMD128 on wasm.
    Platform,
    /// No vectors.
    Scalar,
}

impl Instructions {
    /// The widest of this CPU.
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// All that this CPU has and `BREGMAN_SIMD` allows (see [`bregman_base::simd`]), widest first.
    pub fn available() -> Vec<Self> {
        let all = [Self::Avx512, Self::Avx2, Self::Platform, Self::Scalar];
        all.into_iter().filter(|instructions| instructions.arch().is_some()).collect()
    }

    /// Positions of a block of a map: as many as have room for their sums in registers.
    pub(super) fn map_block(self) -> usize {
        if self == Self::Avx512 { BLOCK } else { STRIP }
    }

    pub(crate) fn arch(self) -> Option<Arch> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Level::Avx512.arch(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Level::Avx2.arch(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Platform => Level::Platform.arch(),
            Self::Scalar => Level::Scalar.arch(),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }
}
