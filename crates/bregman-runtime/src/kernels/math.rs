//! Loops over rows that are not products: sums, gates, statistics, exponentials.
//!
//! [`vectorized!`] compiles a function once per instruction set and picks one at run time. The loops inside are plain
//! and without closures, which the compiler would keep out of the vectorized code.
#![allow(clippy::needless_range_loop, reason = "loops over lanes of a fixed number are what the compiler vectorizes")]

use bregman_base::lanes::LANES;
use bregman_base::math::{exp, sigmoid, tanh};
use bregman_network::Deviation;
use pulp::Arch;

/// `fn name<'a>(arch, …)`: the body compiled for the instructions of `arch`. All functions in it must be
/// `#[inline(always)]`.
macro_rules! vectorized {
    ($(#[$attribute:meta])* fn $name:ident<'a>($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$attribute])*
        pub(crate) fn $name<'a>(arch: Arch, $($argument: $type),*) {
            struct Work<'a> {
                $($argument: $type),*
            }
            impl<'a> pulp::NullaryFnOnce for Work<'a> {
                type Output = ();
                #[inline(always)]
                fn call(self) {
                    let Self { $($argument),* } = self;
                    $body
                }
            }
            arch.dispatch(Work { $($argument),* });
        }
    };
}

/// The lanes of a row's numbers: `lane = add(lane, x)` for every x.
#[inline(always)]
fn add_lanes(x: &[f32], lanes: &mut [f32; LANES], add: impl Fn(f32, f32) -> f32 + Copy) {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut inside = *lanes;
    for chunk in chunks {
        for i in 0..LANES {
            inside[i] = add(inside[i], chunk[i]);
        }
    }
    *lanes = inside;
    lanes.iter_mut().zip(rest).for_each(|(lane, &x)| *lane = add(*lane, x));
}

/// All lanes as one, halves after halves.
#[inline(always)]
fn combined(mut lanes: [f32; LANES], add: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = add(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn plus(a: f32, b: f32) -> f32 {
    a + b
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[inline(always)]
fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    add_lanes(x, &mut lanes, plus);
    combined(lanes, plus)
}

/// Adds Σw, Σwu and Σwu² with w = e^(logit − largest) and u = x − origin.
#[inline(always)]
fn add_weighted(x: &[f32], logits: &[f32], largest: f32, origin: f32, sums: &mut [[f32; LANES]; 3]) {
    let ((x_chunks, x_rest), (chunks, rest)) = (x.as_chunks::<LANES>(), logits.as_chunks::<LANES>());
    let [mut total, mut first, mut second] = *sums;
    for (x, logits) in x_chunks.iter().zip(chunks) {
        for i in 0..LANES {
            let (weight, u) = (exp(logits[i] - largest), x[i] - origin);
            total[i] += weight;
            first[i] += weight * u;
            second[i] += weight * u * u;
        }
    }
    *sums = [total, first, second];
    let [total, first, second] = sums; // in memory, since the loop below counts through them
    for (i, (x, logit)) in x_rest.iter().zip(rest).enumerate() {
        let (weight, u) = (exp(logit - largest), x - origin);
        total[i] += weight;
        first[i] += weight * u;
        second[i] += weight * u * u;
    }
}

/// Rows that are cut into pieces: piece p of row r are the numbers from `p · step + r · pitch` on, `pitch` of them but
/// in the last piece.
#[derive(Clone, Copy)]
pub(crate) struct Pieces {
    pub(crate) count: usize,
    pub(crate) step: usize,
    pub(crate) pitch: usize,
    /// Numbers of a whole row.
    pub(crate) length: usize,
}

impl Pieces {
    #[inline(always)]
    fn of(self, x: &[f32], piece: usize, row: usize) -> &[f32] {
        let length = if piece + 1 == self.count { self.length - piece * self.pitch } else { self.pitch };
        &x[piece * self.step + row * self.pitch..][..length]
    }
}

vectorized! {
    /// `sums[r] = Σ` of the first `width` numbers of row r.
    fn row_sums<'a>(rows: &'a [f32], pitch: usize, width: usize, sums: &'a mut [f32]) {
        for (total, row) in sums.iter_mut().zip(rows.chunks_exact(pitch)) {
            *total = sum(&row[..width]);
        }
    }
}

vectorized! {
    /// `sums[r] = Σ` of `length` numbers of row r from `from` on.
    fn piece_sums<'a>(rows: &'a [f32], pitch: usize, from: usize, length: usize, sums: &'a mut [f32]) {
        for (r, total) in sums.iter_mut().enumerate() {
            *total = sum(&rows[r * pitch + from..][..length]);
        }
    }
}

vectorized! {
    /// `x = factors[r] · x` for `length` numbers of row r from `from` on.
    fn scale_pieces<'a>(rows: &'a mut [f32], pitch: usize, from: usize, length: usize, factors: &'a [f32]) {
        for (r, &factor) in factors.iter().enumerate() {
            for x in &mut rows[r * pitch + from..][..length] {
                *x *= factor;
            }
        }
    }
}

vectorized! {
    /// `y = max(scale[r] · x + shift[r], 0)` for `PITCH` numbers of row r from `from` on, into rows of `PITCH`.
    fn norm_relu<'a>(
        x: &'a [f32],
        pitch: usize,
        from: usize,
        scale: &'a [f32],
        shift: &'a [f32],
        y: &'a mut [f32],
    ) {
        const PITCH: usize = super::STRIP;
        for (r, ((y, &scale), &shift)) in y.as_chunks_mut::<PITCH>().0.iter_mut().zip(scale).zip(shift).enumerate() {
            let x: &[f32; PITCH] = x[r * pitch + from..].first_chunk().expect("a block lies beyond the last row");
            for i in 0..PITCH {
                let value = x[i] * scale + shift;
                y[i] = if value > 0.0 { value } else { 0.0 };
            }
        }
    }
}

vectorized! {
    /// `y = x + gate[r] · y` for rows r of `PITCH` numbers.
    fn gate<'a>(x: &'a [f32], gate: &'a [f32], y: &'a mut [f32]) {
        const PITCH: usize = super::STRIP;
        let (x, y) = (x.as_chunks::<PITCH>().0, y.as_chunks_mut::<PITCH>().0);
        for ((y, x), &gate) in y.iter_mut().zip(x).zip(gate) {
            for i in 0..PITCH {
                y[i] = x[i] + gate * y[i];
            }
        }
    }
}

vectorized! {
    /// `x = tanh x`
    fn tanhs<'a>(values: &'a mut [f32]) {
        for x in values {
            *x = tanh(*x);
        }
    }
}

vectorized! {
    /// `code = x · per_unit`, rounded to the nearest of −127..=127 and XORed with `flip`.
    fn encode<'a>(x: &'a [f32], per_unit: f32, flip: u8, codes: &'a mut [u8]) {
        const MAX: f32 = super::int8::MAX_LEVEL;
        // its last bits count units, so the sum's lowest byte is the rounded number
        const UNITS: f32 = (3 << 22) as f32;
        for (code, &x) in codes.iter_mut().zip(x) {
            let value = x * per_unit;
            let value = if value < MAX { value } else { MAX };
            let value = if value > -MAX { value } else { -MAX };
            *code = (value + UNITS).to_bits() as u8 ^ flip;
        }
    }
}

vectorized! {
    /// `x = 1 / (1 + e⁻ˣ)`
    fn sigmoids<'a>(values: &'a mut [f32]) {
        for x in values {
            *x = sigmoid(*x);
        }
    }
}

vectorized! {
    /// Mean and deviation of rows `first …`, as many as there are `means`.
    fn moments<'a>(
        x: &'a [f32],
        pieces: Pieces,
        first: usize,
        of: Deviation,
        means: &'a mut [f32],
        deviations: &'a mut [f32],
    ) {
        for (i, (mean, deviation)) in means.iter_mut().zip(deviations).enumerate() {
            let mut lanes = [0.0; LANES];
            for piece in 0..pieces.count {
                add_lanes(pieces.of(x, piece, first + i), &mut lanes, plus);
            }
            let middle = combined(lanes, plus) / pieces.length as f32;
            let mut lanes = [0.0; LANES];
            for piece in 0..pieces.count {
                add_lanes(
                    pieces.of(x, piece, first + i),
                    &mut lanes,
                    #[inline(always)]
                    |lane, x| lane + (x - middle) * (x - middle),
                );
            }
            *mean = middle;
            let squares = combined(lanes, plus);
            let variance = match of {
                // one frame has no variance
                Deviation::Plain | Deviation::Raised => squares / (pieces.length.max(2) - 1) as f32 + of.epsilon(),
                Deviation::Floored => larger(squares / pieces.length as f32, of.epsilon()),
            };
            *deviation = variance.sqrt();
        }
    }
}

vectorized! {
    /// With w = softmax of a row's logits: Σwx and √max(variance under w, ε) of rows `first …`. Numbers are taken
    /// relative to the row's first, so that a constant has no variance.
    #[expect(clippy::too_many_arguments, reason = "two rows, how they are cut, and two results")]
    fn attended<'a>(
        x: &'a [f32],
        logits: &'a [f32],
        pieces: Pieces,
        first: usize,
        epsilon: f32,
        means: &'a mut [f32],
        deviations: &'a mut [f32],
    ) {
        for (i, (mean, deviation)) in means.iter_mut().zip(deviations).enumerate() {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            for piece in 0..pieces.count {
                add_lanes(pieces.of(logits, piece, first + i), &mut lanes, larger);
            }
            let top = combined(lanes, larger);
            let (mut sums, origin) = ([[0.0; LANES]; 3], pieces.of(x, 0, first + i)[0]);
            for piece in 0..pieces.count {
                let (x, logits) = (pieces.of(x, piece, first + i), pieces.of(logits, piece, first + i));
                add_weighted(x, logits, top, origin, &mut sums);
            }
            let [weight, first, second] = sums.map(
                #[inline(always)]
                |lanes| combined(lanes, plus),
            );
            let beyond = first / weight;
            *mean = origin + beyond;
            *deviation = larger(second / weight - beyond * beyond, epsilon).sqrt();
        }
    }
}
