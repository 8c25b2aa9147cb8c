//! The small linear maps into and out of the domain where a convolution is a product, sixteen tiles (or channels) at a
//! time.
//!
//! ```text
//!        1  0 -1  0           1  0  0           1  0
//!  Bᵀ =  0  1  1  0     G =   ½  ½  ½     A =   1  1
//!        0 -1  1  0           ½ -½  ½           1 -1
//!        0  1  0 -1           0  0  1           0 -1
//! ```

use super::super::lanes::{LANES, Lanes};
use super::super::output::SumStart;

/// Most tiles of a strip.
pub(super) const MAX_TILES: usize = 192;
/// Places of the transformed domain: 4 × 4.
pub(super) const PLACES: usize = 16;

/// Distance of two places that hold `words` each: an odd number of cache lines, so that the same element of all 16
/// places lies in 16 different sets of the first-level cache.
pub(super) fn place_stride(words: usize) -> usize {
    let lines = words.div_ceil(LANES);
    (lines + 1 - lines % 2) * LANES
}

/// Even and odd columns of `Bᵀ · d`, four rows each, under a run of tiles. Neighbouring tiles share columns, so only
/// the first of the two multiplications is done here, and the other one on reading.
#[derive(Clone)]
pub(super) struct Halves {
    even: [[f32; MAX_TILES + 2 * LANES]; 4],
    odd: [[f32; MAX_TILES + 2 * LANES]; 4],
}

impl Halves {
    pub(super) const ZERO: Self = Self { even: [[0.0; _]; 4], odd: [[0.0; _]; 4] };

    /// Takes the four rows from `top` on, columns from `left` on, of a map with `width` columns; zero outside of it.
    #[inline(always)]
    pub(super) fn fill<L: Lanes>(
        &mut self,
        lanes: L,
        map: &[f32],
        width: usize,
        [top, left]: [isize; 2],
        tiles: usize,
    ) {
        let rows: [&[f32]; 4] = [0, 1, 2, 3].map(|row| {
            let start = usize::try_from(top + row).unwrap_or(map.len() / width.max(1)) * width;
            map.get(start..start + width).unwrap_or(&[])
        });
        for chunk in 0..(tiles + 1).div_ceil(LANES) {
            let at = left + (2 * LANES * chunk) as isize;
            let [d0, d1] = [load(lanes, rows[0], at), load(lanes, rows[1], at)];
            let [d2, d3] = [load(lanes, rows[2], at), load(lanes, rows[3], at)];
            self.put(lanes, 0, chunk, sub(lanes, d0, d2));
            self.put(lanes, 1, chunk, add(lanes, d1, d2));
            self.put(lanes, 2, chunk, sub(lanes, d2, d1));
            self.put(lanes, 3, chunk, sub(lanes, d1, d3));
        }
    }

    #[inline(always)]
    fn put<L: Lanes>(&mut self, lanes: L, i: usize, chunk: usize, values: [L::Vector; 2]) {
        let [even, odd] = lanes.deinterleave(values);
        lanes.store(even, sixteen_mut(&mut self.even[i], LANES * chunk));
        lanes.store(odd, sixteen_mut(&mut self.odd[i], LANES * chunk));
    }

    /// Row `i` of `Bᵀ · d · B` for the 16 tiles from `at` on.
    #[inline(always)]
    pub(super) fn row<L: Lanes>(&self, lanes: L, i: usize, at: usize) -> [L::Vector; 4] {
        let (d0, d2) = (lanes.load(sixteen(&self.even[i], at)), lanes.load(sixteen(&self.even[i], at + 1)));
        let (d1, d3) = (lanes.load(sixteen(&self.odd[i], at)), lanes.load(sixteen(&self.odd[i], at + 1)));
        [lanes.sub(d0, d2), lanes.add(d1, d2), lanes.sub(d2, d1), lanes.sub(d1, d3)]
    }
}

// No closures over vectors below: a closure is compiled without the instructions, and calls to `map` are not always
// inlined.

#[inline(always)]
fn add<L: Lanes>(lanes: L, a: [L::Vector; 2], b: [L::Vector; 2]) -> [L::Vector; 2] {
    [lanes.add(a[0], b[0]), lanes.add(a[1], b[1])]
}

#[inline(always)]
fn sub<L: Lanes>(lanes: L, a: [L::Vector; 2], b: [L::Vector; 2]) -> [L::Vector; 2] {
    [lanes.sub(a[0], b[0]), lanes.sub(a[1], b[1])]
}

/// 32 columns of a row from `at` on, zero outside.
#[inline(always)]
fn load<L: Lanes>(lanes: L, row: &[f32], at: isize) -> [L::Vector; 2] {
    if at >= 0 && at as usize + 2 * LANES <= row.len() {
        [lanes.load(sixteen(row, at as usize)), lanes.load(sixteen(row, at as usize + LANES))]
    } else {
        [lanes.load_clipped(row, at), lanes.load_clipped(row, at + LANES as isize)]
    }
}

#[inline(always)]
pub(super) fn sixteen<T>(values: &[T], at: usize) -> &[T; LANES] {
    values[at..at + LANES].try_into().expect("sixteen values")
}

#[inline(always)]
pub(super) fn sixteen_mut<T>(values: &mut [T], at: usize) -> &mut [T; LANES] {
    (&mut values[at..at + LANES]).try_into().expect("sixteen values")
}

/// `Aᵀ · m · A`: for 16 tiles, the 32 outputs of both rows; place `i` of all of them starts at `m[i · step]`.
#[inline(always)]
pub(super) fn outputs<L: Lanes>(lanes: L, m: &[f32], step: usize) -> [[L::Vector; 2]; 2] {
    let mut down = [[lanes.zero(); 4]; 2];
    for j in 0..4 {
        let (m0, m1) = (lanes.load(sixteen(m, j * step)), lanes.load(sixteen(m, (4 + j) * step)));
        let (m2, m3) = (lanes.load(sixteen(m, (8 + j) * step)), lanes.load(sixteen(m, (12 + j) * step)));
        down[0][j] = lanes.add(m0, lanes.add(m1, m2));
        down[1][j] = lanes.sub(lanes.sub(m1, m2), m3);
    }
    [across(lanes, down[0]), across(lanes, down[1])]
}

#[inline(always)]
fn across<L: Lanes>(lanes: L, [s0, s1, s2, s3]: [L::Vector; 4]) -> [L::Vector; 2] {
    lanes.interleave([lanes.add(s0, lanes.add(s1, s2)), lanes.sub(lanes.sub(s1, s2), s3)])
}

/// `out = start + values`, at most 32 of them.
#[inline(always)]
pub(super) fn finish<L: Lanes>(lanes: L, start: SumStart, row: usize, values: [L::Vector; 2], out: &mut [f32]) {
    let (first, second) = out.split_at_mut(out.len().min(LANES));
    finish_half(lanes, start, row, values[0], first);
    finish_half(lanes, start, row, values[1], second);
}

#[inline(always)]
fn finish_half<L: Lanes>(lanes: L, start: SumStart, row: usize, value: L::Vector, out: &mut [f32]) {
    let value = match start {
        SumStart::Zero => value,
        SumStart::Bias(bias) => lanes.add(value, lanes.splat(bias[row])),
        SumStart::Accumulate => lanes.add(value, lanes.load_clipped(out, 0)),
    };
    lanes.store_clipped(value, out);
}

/// `A · dy · Aᵀ`, row by row: the gradients of 2 × 2 outputs of 16 tiles, from the columns from `left` on of two rows
/// of a map.
#[inline(always)]
pub(super) fn spread<L: Lanes>(lanes: L, rows: [&[f32]; 2], left: usize) -> [[L::Vector; 4]; 4] {
    let upper = lanes.deinterleave(load(lanes, rows[0], left as isize));
    let lower = lanes.deinterleave(load(lanes, rows[1], left as isize));
    [
        spread_row(lanes, upper),
        spread_row(lanes, add(lanes, upper, lower)),
        spread_row(lanes, sub(lanes, upper, lower)),
        spread_row(lanes, sub(lanes, [lanes.zero(); 2], lower)),
    ]
}

#[inline(always)]
fn spread_row<L: Lanes>(lanes: L, [even, odd]: [L::Vector; 2]) -> [L::Vector; 4] {
    [even, lanes.add(even, odd), lanes.sub(even, odd), lanes.sub(lanes.zero(), odd)]
}

/// One value for each of 16 channels.
pub(super) type Channels = [f32; LANES];

/// `G · g · Gᵀ`
#[inline(always)]
pub(super) fn filters(g: &[Channels; 9]) -> [Channels; PLACES] {
    let mut u = [[0.0; LANES]; PLACES];
    for c in 0..LANES {
        let mut down = [[0.0; 3]; 4];
        for j in 0..3 {
            let [g0, g1, g2] = [g[j][c], g[3 + j][c], g[6 + j][c]];
            let sides = 0.5 * (g0 + g2);
            (down[0][j], down[1][j], down[2][j], down[3][j]) = (g0, sides + 0.5 * g1, sides - 0.5 * g1, g2);
        }
        for (i, [g0, g1, g2]) in down.into_iter().enumerate() {
            let sides = 0.5 * (g0 + g2);
            (u[4 * i][c], u[4 * i + 1][c], u[4 * i + 2][c], u[4 * i + 3][c]) =
                (g0, sides + 0.5 * g1, sides - 0.5 * g1, g2);
        }
    }
    u
}

/// `Gᵀ · u · G`
#[inline(always)]
pub(super) fn taps(u: &[Channels; PLACES]) -> [Channels; 9] {
    let mut down = [[[0.0; LANES]; 4]; 3];
    for j in 0..4 {
        for c in 0..LANES {
            let [u0, u1, u2, u3] = [u[j][c], u[4 + j][c], u[8 + j][c], u[12 + j][c]];
            let sum = 0.5 * (u1 + u2);
            (down[0][j][c], down[1][j][c], down[2][j][c]) = (u0 + sum, 0.5 * (u1 - u2), sum + u3);
        }
    }
    let mut g = [[0.0; LANES]; 9];
    for i in 0..3 {
        for c in 0..LANES {
            let [u0, u1, u2, u3] = [down[i][0][c], down[i][1][c], down[i][2][c], down[i][3][c]];
            let sum = 0.5 * (u1 + u2);
            (g[3 * i][c], g[3 * i + 1][c], g[3 * i + 2][c]) = (u0 + sum, 0.5 * (u1 - u2), sum + u3);
        }
    }
    g
}
