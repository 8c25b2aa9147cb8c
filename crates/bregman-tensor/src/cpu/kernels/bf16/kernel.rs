//! The innermost product, one implementation per kind of CPU: `sums = Σ_k left tile · right tile` for a few rows and columns of tiles.

use std::sync::OnceLock;

#[cfg(any(target_arch = "x86_64", test))]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::portable;
use super::tile::{SIDE, Tile};

/// Most tile rows of a block.
pub(super) const MAX_ROWS: usize = 2;
/// Most tile columns of a block.
pub(super) const MAX_COLUMNS: usize = 3;
/// Row stride of [`Sums`].
pub(super) const WIDTH: usize = MAX_COLUMNS * SIDE;

/// The f32 results of one block, row-major.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Sums(pub(super) [[f32; WIDTH]; MAX_ROWS * SIDE]);

impl Sums {
    pub(super) const ZERO: Self = Self([[0.0; WIDTH]; MAX_ROWS * SIDE]);
}

/// A few rows of left tiles or columns of right tiles: tile `(line, k)` is `tiles[line · stride + k]`.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    tiles: &'a [Tile],
    stride: usize,
    count: usize,
    depth: usize,
}

impl<'a> Lines<'a> {
    /// `count` lines of `depth` tiles each, starting `stride` apart.
    pub(super) fn new(tiles: &'a [Tile], stride: usize, count: usize, depth: usize) -> Self {
        assert!(count > 0 && (count - 1) * stride + depth <= tiles.len(), "lines of tiles outside their slice");
        Self { tiles, stride, count, depth }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Line `line`; past the last one, the last one again, so that a kernel of fixed shape always has something to read.
    #[inline(always)]
    pub(super) fn line(&self, line: usize) -> &'a [Tile] {
        &self.tiles[line.min(self.count - 1) * self.stride..][..self.depth]
    }
}

/// Which instructions multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Tile registers: Intel Xeon since Sapphire Rapids.
    Amx,
    /// `vdpbf16ps`: AMD since Zen 4, Intel Xeon since Cooper Lake.
    Avx512,
    /// Conversion to f32 and multiply-add with whatever SIMD there is.
    Portable,
    /// The AMX kernel on tile registers in memory: shows on any CPU that its logic is right.
    #[cfg(test)]
    Emulated,
}

impl Kernel {
    /// The fastest this CPU and operating system offer; found out once.
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| [Self::Amx, Self::Avx512].into_iter().find(|kernel| kernel.runs_here()).unwrap_or(Self::Portable))
    }

    /// Whether this CPU and operating system have its instructions.
    pub fn runs_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => amx::available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Amx | Self::Avx512 => false,
            Self::Portable => true,
            #[cfg(test)]
            Self::Emulated => true,
        }
    }

    /// Tile rows and columns of its block.
    pub(super) fn shape(self) -> (usize, usize) {
        match self {
            Self::Amx => (2, 2),
            #[cfg(test)]
            Self::Emulated => (2, 2),
            Self::Avx512 | Self::Portable => (1, 3),
        }
    }

    /// Calls `work` with the multiplication of blocks: `multiply(left, right, sums)` writes `left.count × right.count` tiles of sums,
    /// at most [`shape`](Self::shape), and whatever it likes to the rest.
    ///
    /// # Panics
    /// If the kernel does not run on this CPU.
    pub(super) fn run(self, work: impl FnOnce(&mut dyn FnMut(Lines, Lines, &mut Sums))) {
        assert!(self.runs_here(), "{self:?} does not run on this CPU");
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => {
                let mut registers = amx::Hardware::new();
                work(&mut |left, right, sums| amx::multiply(&mut registers, left, right, sums));
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => work(&mut avx512::multiply),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Amx | Self::Avx512 => unreachable!("asserted above"),
            Self::Portable => work(&mut portable::multiply),
            #[cfg(test)]
            Self::Emulated => {
                let mut registers = amx::Emulated::default();
                work(&mut |left, right, sums| amx::multiply(&mut registers, left, right, sums));
            }
        }
    }
}
