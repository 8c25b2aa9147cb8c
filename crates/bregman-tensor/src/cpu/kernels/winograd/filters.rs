//! Weights in the transformed domain, `U = G · g · Gᵀ`: made once per optimizer step.

use rayon::prelude::*;

use super::super::bf16::{DEPTH, SIDE, Tile, pairs};
use super::super::cost::Dense;
use super::super::lanes::LANES;
use super::transform::{PLACES, filters};
use crate::cpu::math::simd;

/// The filters of a 3 × 3 convolution or, transposed and reversed, of its input gradient. Keeps its memory.
#[derive(Clone)]
pub struct Filters {
    pub(super) dense: Dense,
    pub(super) rows: usize,
    pub(super) channels: usize,
    /// f32: `[rows, places, channels]`.
    pub(super) values: Vec<f32>,
    /// bf16: tiles `[tile rows, places, depth]`.
    pub(super) tiles: Vec<Tile>,
}

impl Default for Filters {
    fn default() -> Self {
        Self { dense: Dense::F32, rows: 0, channels: 0, values: Vec::new(), tiles: Vec::new() }
    }
}

impl std::fmt::Debug for Filters {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Filters {{ rows: {}, channels: {}, {:?} }}", self.rows, self.channels, self.dense)
    }
}

impl Filters {
    /// Of the convolution with `weights[rows, channels, 3 · 3]`, rows `stride` apart.
    pub fn pack(&mut self, dense: Dense, weights: &[f32], rows: usize, channels: usize, stride: usize) {
        self.transform(dense, rows, channels, |row, channel| {
            let taps: &[f32; 9] = weights[row * stride + 9 * channel..][..9].try_into().expect("nine taps");
            *taps
        });
    }

    /// Of its input gradient: rows and channels change places, taps are reversed.
    pub fn pack_transposed(&mut self, dense: Dense, weights: &[f32], rows: usize, channels: usize, stride: usize) {
        self.transform(dense, channels, rows, |channel, row| {
            let mut taps: [f32; 9] = weights[row * stride + 9 * channel..][..9].try_into().expect("nine taps");
            taps.reverse();
            taps
        });
    }

    /// Tiles of one row of tiles and place.
    pub(super) fn depth(&self) -> usize {
        self.channels.div_ceil(DEPTH)
    }

    fn transform(
        &mut self,
        dense: Dense,
        rows: usize,
        channels: usize,
        taps: impl Fn(usize, usize) -> [f32; 9] + Sync,
    ) {
        (self.dense, self.rows, self.channels) = (dense, rows, channels);
        let sixteen = |row: usize, first: usize| {
            let mut g = [[0.0; LANES]; 9];
            for (lane, channel) in (first..channels.min(first + LANES)).enumerate() {
                let taps = taps(row, channel);
                (0..9).for_each(|tap| g[tap][lane] = taps[tap]);
            }
            simd!(filters(&g))
        };
        if dense == Dense::F32 {
            self.values.resize(rows * PLACES * channels, 0.0);
            self.values.par_chunks_mut((PLACES * channels).max(1)).enumerate().for_each(|(row, values)| {
                for first in (0..channels).step_by(LANES) {
                    let count = LANES.min(channels - first);
                    for (place, values) in sixteen(row, first).iter().zip(values.chunks_exact_mut(channels)) {
                        values[first..first + count].copy_from_slice(&place[..count]);
                    }
                }
            });
        } else {
            let depth = self.depth();
            self.tiles.resize(rows.div_ceil(SIDE) * PLACES * depth, Tile::ZERO);
            self.tiles.par_chunks_mut((PLACES * depth).max(1)).enumerate().for_each(|(tile_row, tiles)| {
                for row in 0..SIDE.min(rows - tile_row * SIDE) {
                    for block in 0..depth {
                        let [low, high] = [0, LANES].map(|half| sixteen(tile_row * SIDE + row, block * DEPTH + half));
                        for (place, tiles) in tiles.chunks_exact_mut(depth).enumerate() {
                            let mut values = [0.0; DEPTH];
                            values[..LANES].copy_from_slice(&low[place]);
                            values[LANES..].copy_from_slice(&high[place]);
                            tiles[block].0[row] = pairs(&values);
                        }
                    }
                }
            });
        }
    }
}
