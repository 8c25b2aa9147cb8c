//! Which kernel a layer gets: the one that costs the least on this CPU.
//!
//! For a block of W[rows × columns] · x, with N non-zeros, and `lines` 1 where the taps of a kernel shift x, so that
//! vectors lie across two lines of the cache, 0 otherwise:
//! ```text
//! dense          dense · rows · columns
//! sparse         far[lines] · N  + row · rows          (near instead of far if x fits the first-level cache)
//! – in tiles     near[lines] · N + row · rows · tiles
//! – copied       near[0] · N     + row · rows · tiles + copy · columns
//! ```
//! The costs are measured when a model is first opened on a CPU, which takes some milliseconds, and kept
//! ([`keep`]). All kernels in f32 compute the same sums in the same order, so the choice changes no embedding.

mod keep;
mod measure;

use std::sync::OnceLock;

use bregman_base::Buffer;
use serde::{Deserialize, Serialize};

use super::tile::{PANEL, Tiling};
use super::{BLOCK, Instructions, STRIP};

/// What kernels cost on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// In layers over time.
    pub strips: BlockCosts,
    /// In layers over maps.
    pub maps: BlockCosts,
}

/// What kernels cost for a block of positions, in nanoseconds; only ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockCosts {
    /// Positions of the block.
    pub block: usize,
    /// A weight of a dense layer.
    pub dense: f64,
    /// A non-zero whose x lies in the second-level cache; where x is shifted.
    pub far: [f64; 2],
    /// A non-zero whose x lies in the first-level cache; where x is shifted.
    pub near: [f64; 2],
    /// A row, or a row of a tile: its sums are read and written.
    pub row: f64,
    /// A column of x, copied so that it is not shifted.
    pub copy: f64,
}

/// Whether [kernel costs](KernelCosts) are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tuning {
    /// Measured on this CPU once, and kept in the user's cache folder. Where that cannot be written, once per process;
    /// where `BREGMAN_TUNING=off`, and in wasm, not at all.
    #[default]
    Measured,
    /// Those in the program.
    BuiltIn,
}

/// Environment variable: `off` for the costs in the program.
const SWITCH: &str = "BREGMAN_TUNING";

/// A layer, as far as its cost is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Taps of a kernel over time, and over rows of a map.
    pub(crate) taps: [usize; 2],
    /// Non-zeros.
    pub(crate) live: usize,
}

/// How a layer in f32 is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Plan {
    Dense,
    Sparse(Tiling),
}

impl KernelCosts {
    /// Of an Intel Xeon with AVX-512.
    pub const BUILT_IN: Self = Self { strips: BlockCosts::BUILT_IN, maps: BlockCosts::BUILT_IN };

    /// The costs that models opened with these instructions use.
    pub(crate) fn of(instructions: Instructions, tuning: Tuning) -> Self {
        static FOUND: [OnceLock<KernelCosts>; 4] = [const { OnceLock::new() }; 4];
        let off = || std::env::var_os(SWITCH).is_some_and(|value| value == "off");
        if tuning == Tuning::BuiltIn || cfg!(target_family = "wasm") || off() {
            return Self::built_in(instructions);
        }
        *FOUND[instructions as usize]
            .get_or_init(|| keep::kept(instructions).unwrap_or_else(|| Self::measure(instructions)))
    }

    fn built_in(instructions: Instructions) -> Self {
        let maps = BlockCosts { block: instructions.map_block(), ..BlockCosts::BUILT_IN };
        Self { maps, ..Self::BUILT_IN }
    }

    /// Measures the costs and keeps them for the next process, where that is possible.
    pub fn measure(instructions: Instructions) -> Self {
        let Some(arch) = instructions.arch() else { return Self::BUILT_IN };
        let [strips, maps] = [STRIP, instructions.map_block()].map(|block| measure::measure(arch, block));
        let costs = Self { strips, maps };
        if !costs.is_plausible() {
            return Self::built_in(instructions);
        }
        keep::keep(instructions, &costs);
        costs
    }

    /// A measurement that something disturbed is worse than none.
    fn is_plausible(&self) -> bool {
        let blocks = self.strips.block == STRIP && [STRIP, BLOCK].contains(&self.maps.block);
        blocks && self.strips.is_plausible() && self.maps.is_plausible()
    }
}

impl BlockCosts {
    /// Of strips on an Intel Xeon with AVX-512, in units of `dense`.
    pub(super) const BUILT_IN: Self =
        Self { block: STRIP, dense: 1.0, far: [2.3, 3.6], near: [1.3, 2.4], row: 6.0, copy: 8.0 };

    fn is_plausible(&self) -> bool {
        let pairs = |costs: &Self| {
            [costs.far[0], costs.far[1], costs.near[0], costs.near[1], costs.row, costs.copy]
                .map(|cost| cost / costs.dense)
        };
        pairs(self)
            .into_iter()
            .zip(pairs(&Self::BUILT_IN))
            .all(|(cost, usual)| (usual / 8.0..usual * 8.0).contains(&cost))
    }

    /// The cheapest way. Layers that are more than half full are dense whatever it costs: a non-zero takes as much
    /// memory as two weights of theirs.
    pub(crate) fn plan(&self, shape: Shape) -> Plan {
        if 2 * shape.live > shape.rows * shape.columns {
            return Plan::Dense;
        }
        let (tiles, packed) = (Tiling::Tiles(self.tile(shape)), Tiling::Packed { block: self.block });
        let ways = [Plan::Dense, Plan::Sparse(Tiling::Whole), Plan::Sparse(tiles), Plan::Sparse(packed)];
        ways.into_iter().min_by(|a, b| self.cost(shape, *a).total_cmp(&self.cost(shape, *b))).expect("four ways")
    }

    fn cost(&self, shape: Shape, plan: Plan) -> f64 {
        let Shape { rows, columns, live, .. } = shape;
        let [rows, columns, live] = [rows, columns, live].map(|count| count as f64);
        let shifted = usize::from(shape.is_shifted());
        match plan {
            Plan::Dense => self.dense * rows * columns,
            Plan::Sparse(tiling) => {
                let tiles = tiling.tiles(shape.columns).count() as f64;
                let each = match tiling {
                    Tiling::Whole if self.tile(shape) < shape.columns => self.far[shifted],
                    Tiling::Whole | Tiling::Tiles(_) => self.near[shifted],
                    Tiling::Packed { .. } => self.near[0],
                };
                let copied = if tiling.is_packed() { self.copy * columns } else { 0.0 };
                // rows of a map lie pages apart
                let row = if shape.taps[1] > 1 { 2.0 * self.row } else { self.row };
                each * live + row * rows * tiles + copied
            }
        }
    }

    /// Columns whose part of x fits the first-level cache, as it lies in memory.
    fn tile(&self, shape: Shape) -> usize {
        // taps over time share a block and a line beyond, taps over rows do not
        let of_channel = shape.taps[1] * if shape.is_shifted() { self.block + Buffer::LINE } else { self.block };
        (PANEL / of_channel).max(1) * shape.taps[0] * shape.taps[1]
    }
}

impl Shape {
    fn is_shifted(&self) -> bool {
        self.taps != [1, 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointwise(live: f64) -> Shape {
        Shape { rows: 1024, columns: 1024, taps: [1, 1], live: (live * 1024.0 * 1024.0) as usize }
    }

    fn map(channels: usize, live: f64) -> Shape {
        let columns = 9 * channels;
        let live = (live * (channels * columns) as f64) as usize;
        Shape { rows: channels, columns, taps: [3, 3], live }
    }

    /// As measured on ECAPA C1024 and ResNet34: `bench/run inference`.
    #[test]
    fn the_cheapest_kernel_depends_on_shape_and_sparsity() {
        let costs = BlockCosts::BUILT_IN;
        assert_eq!(costs.plan(pointwise(1.0)), Plan::Dense);
        let slow = BlockCosts { dense: 9.0, ..costs };
        assert_eq!(slow.plan(pointwise(0.6)), Plan::Dense, "for its memory");
        assert_eq!(costs.plan(pointwise(0.25)), Plan::Sparse(Tiling::Tiles(90)));
        assert_eq!(costs.plan(pointwise(0.01)), Plan::Sparse(Tiling::Whole));
        assert_eq!(costs.plan(map(128, 1.0)), Plan::Dense);
        assert_eq!(costs.plan(map(128, 0.25)), Plan::Sparse(Tiling::Packed { block: STRIP }));
        assert_eq!(costs.plan(map(128, 0.01)), Plan::Sparse(Tiling::Whole));
    }

    #[test]
    fn a_tile_holds_whole_channels_and_fits_the_panel() {
        let wide = BlockCosts { block: BLOCK, ..BlockCosts::BUILT_IN };
        for (costs, shape, tile) in [
            (BlockCosts::BUILT_IN, pointwise(0.1), 90),
            (BlockCosts::BUILT_IN, map(64, 0.1), 25 * 9),
            (wide, pointwise(0.1), 45),
            (wide, map(64, 0.1), 13 * 9),
        ] {
            assert_eq!(costs.tile(shape), tile);
            assert_eq!(tile % (shape.taps[0] * shape.taps[1]), 0);
        }
    }

    #[test]
    fn a_disturbed_measurement_is_refused() {
        assert!(KernelCosts::BUILT_IN.is_plausible());
        for costs in [
            BlockCosts { dense: 0.0, ..BlockCosts::BUILT_IN },
            BlockCosts { row: f64::NAN, ..BlockCosts::BUILT_IN },
            BlockCosts { near: [-1.0, 1.0], ..BlockCosts::BUILT_IN },
            BlockCosts { copy: 1e3, ..BlockCosts::BUILT_IN },
        ] {
            for disturbed in [
                KernelCosts { strips: costs, ..KernelCosts::BUILT_IN },
                KernelCosts { maps: costs, ..KernelCosts::BUILT_IN },
            ] {
                assert!(!disturbed.is_plausible(), "{disturbed:?}");
            }
        }
    }
}
