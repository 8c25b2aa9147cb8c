//! The innermost product, one implementation per kind of CPU: `sums = Σ_k left tile · right tile` for a few rows and
//! columns of tiles.

use std::sync::OnceLock;

#[cfg(any(target_arch = "x86_64", test))]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::portable;
use super::tile::{SIDE, Tile};

/// Most tile columns of a block.
pub(super) const MAX_COLUMNS: usize = 3;

/// A few rows of left tiles or columns of right tiles, wherever their words lie:
/// word `i` of row `r` of tile `(line, k)` is at `line · stride + k · step + r · pitch + i`.
#[derive(Clone, Copy)]
pub(in super::super) struct Lines<'a> {
    words: &'a [u32],
    pitch: usize,
    step: usize,
    stride: usize,
    count: usize,
    depth: usize,
}

impl<'a> Lines<'a> {
    /// `count` lines of `depth` packed tiles each, starting `stride` tiles apart.
    pub(in super::super) fn tiles(tiles: &'a [Tile], stride: usize, count: usize, depth: usize) -> Self {
        Self::new(bytemuck::cast_slice(tiles), [SIDE, SIDE * SIDE, stride * SIDE * SIDE], count, depth)
    }

    /// Rows of a left operand `[rows][pairs of k]`, rows `pitch` words apart.
    pub(in super::super) fn rows(words: &'a [u32], pitch: usize, count: usize, depth: usize) -> Self {
        Self::new(words, [pitch, SIDE, SIDE * pitch], count, depth)
    }

    /// Columns of a right operand `[pairs of k][columns]`, pairs `pitch` words apart.
    pub(in super::super) fn columns(words: &'a [u32], pitch: usize, count: usize, depth: usize) -> Self {
        Self::new(words, [pitch, SIDE * pitch, SIDE], count, depth)
    }

    fn new(words: &'a [u32], [pitch, step, stride]: [usize; 3], count: usize, depth: usize) -> Self {
        assert!(count > 0, "no lines of tiles");
        let last = (count - 1) * stride + depth.saturating_sub(1) * step + (SIDE - 1) * pitch + SIDE;
        assert!(depth == 0 || last <= words.len(), "lines of tiles outside their slice");
        Self { words, pitch, step, stride, count, depth }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Tiles per line.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Words from one row of a tile to the next.
    pub(super) fn pitch(&self) -> usize {
        self.pitch
    }

    /// Words from a tile's first; `line` and `k` are below `count` and `depth`.
    #[inline(always)]
    pub(super) fn tile(&self, line: usize, k: usize) -> &'a [u32] {
        debug_assert!(line < self.count && k < self.depth);
        &self.words[line * self.stride + k * self.step..]
    }
}

/// Where a block's f32 results go: row-major, `pitch` apart.
pub(in super::super) struct Sums<'a> {
    values: &'a mut [f32],
    pitch: usize,
    /// Whether the products are added to what is there.
    pub(super) add: bool,
}

impl<'a> Sums<'a> {
    /// Rows `pitch` apart.
    pub(in super::super) fn new(values: &'a mut [f32], pitch: usize, add: bool) -> Self {
        Self { values, pitch, add }
    }

    pub(super) fn pitch(&self) -> usize {
        self.pitch
    }

    /// The 16 × 16 sums of a tile and what follows them, as slices whose rows are `pitch` apart.
    #[inline(always)]
    pub(super) fn tile(&mut self, row: usize, column: usize) -> &mut [f32] {
        let start = SIDE * (row * self.pitch + column);
        &mut self.values[start..start + (SIDE - 1) * self.pitch + SIDE]
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
        *BEST.get_or_init(|| {
            [Self::Amx, Self::Avx512].into_iter().find(|kernel| kernel.runs_here()).unwrap_or(Self::Portable)
        })
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

    /// For tests: all that run here. What the CPU lacks is a recorded skip.
    #[cfg(test)]
    pub(in super::super) fn all_here() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        for (kernel, need) in [(Self::Amx, "amx"), (Self::Avx512, "avx512bf16")] {
            if !kernel.runs_here() && !bregman_base::simd::is_limited() {
                bregman_skip::skip(need, format!("this CPU or its operating system lacks the kernel {kernel:?}"));
            }
        }
        let all = [Self::Amx, Self::Avx512, Self::Portable, Self::Emulated];
        all.into_iter().filter(|kernel| kernel.runs_here()).collect()
    }

    /// Tile rows and columns of its block.
    pub(in super::super) fn shape(self) -> (usize, usize) {
        match self {
            Self::Amx => (2, 2),
            #[cfg(test)]
            Self::Emulated => (2, 2),
            Self::Avx512 | Self::Portable => (1, 3),
        }
    }

    /// Calls `work` with the multiplication of blocks: `multiply(left, right, sums)` writes `left.count × right.count`
    /// tiles of sums, at most [`shape`](Self::shape).
    ///
    /// # Panics
    /// If the kernel does not run on this CPU.
    pub(in super::super) fn run(self, work: impl FnOnce(&mut dyn FnMut(Lines, Lines, Sums))) {
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
