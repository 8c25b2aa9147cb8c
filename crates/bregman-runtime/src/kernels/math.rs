//! Loops over rows that are no products: sums, gates, statistics, exponentials.
//!
//! [`vectorized!`] compiles a function once per instruction set and picks one at run time. The loops inside are plain
//! and without closures, which the compiler would keep out of the vectorized code.
#![allow(clippy::needless_range_loop, reason = "loops over lanes of a fixed number are what the compiler vectorizes")]

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

const LANES: usize = 16;

/// Sums in sixteen lanes: folded in a fixed order, so that a sum does not depend on the instructions.
#[derive(Clone, Copy)]
struct Lanes([f32; LANES]);

impl Lanes {
    const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    fn total(self) -> f32 {
        let mut total = 0.0;
        for lane in self.0 {
            total += lane;
        }
        total
    }
}

/// Σx
#[inline(always)]
fn sum(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut lanes = Lanes::ZERO;
    for chunk in chunks {
        for i in 0..LANES {
            lanes.0[i] += chunk[i];
        }
    }
    for (i, x) in rest.iter().enumerate() {
        lanes.0[i] += x;
    }
    lanes.total()
}

/// Σ(x − centre)²
#[inline(always)]
fn squares(x: &[f32], centre: f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut lanes = Lanes::ZERO;
    for chunk in chunks {
        for i in 0..LANES {
            lanes.0[i] += (chunk[i] - centre) * (chunk[i] - centre);
        }
    }
    for (i, x) in rest.iter().enumerate() {
        lanes.0[i] += (x - centre) * (x - centre);
    }
    lanes.total()
}

/// The largest number; −∞ for none.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
        }
    }
    for (i, &x) in rest.iter().enumerate() {
        lanes[i] = if x > lanes[i] { x } else { lanes[i] };
    }
    let mut largest = f32::NEG_INFINITY;
    for lane in lanes {
        largest = if lane > largest { lane } else { largest };
    }
    largest
}

/// Adds Σw, Σwx and Σwx² with w = e^(logit − largest).
#[inline(always)]
fn add_weighted(x: &[f32], logits: &[f32], largest: f32, [total, first, second]: &mut [Lanes; 3]) {
    let ((x_chunks, x_rest), (chunks, rest)) = (x.as_chunks::<LANES>(), logits.as_chunks::<LANES>());
    for (x, logits) in x_chunks.iter().zip(chunks) {
        for i in 0..LANES {
            let weight = exp(logits[i] - largest);
            total.0[i] += weight;
            first.0[i] += weight * x[i];
            second.0[i] += weight * x[i] * x[i];
        }
    }
    for (i, (x, logit)) in x_rest.iter().zip(rest).enumerate() {
        let weight = exp(logit - largest);
        total.0[i] += weight;
        first.0[i] += weight * x;
        second.0[i] += weight * x * x;
    }
}

/// ε under the square roots of standard deviations.
const POOL_EPSILON: f32 = 1e-7;

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
    /// `y = x + gate[r] · z` for rows r of `PITCH` numbers.
    fn gated<'a>(x: &'a [f32], z: &'a [f32], gate: &'a [f32], y: &'a mut [f32]) {
        const PITCH: usize = super::BLOCK;
        let (x, z, y) = (x.as_chunks::<PITCH>().0, z.as_chunks::<PITCH>().0, y.as_chunks_mut::<PITCH>().0);
        for (((y, x), z), &gate) in y.iter_mut().zip(x).zip(z).zip(gate) {
            for i in 0..PITCH {
                y[i] = x[i] + gate * z[i];
            }
        }
    }
}

vectorized! {
    /// `x = tanh(x + shift[r])` for rows r of `pitch` numbers.
    fn shifted_tanh<'a>(rows: &'a mut [f32], pitch: usize, shift: &'a [f32]) {
        for (row, &shift) in rows.chunks_exact_mut(pitch).zip(shift) {
            for x in row {
                *x = tanh(*x + shift);
            }
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
    /// Mean and √(unbiased variance + ε) of rows `first …`, as many as there are `means`.
    fn moments<'a>(x: &'a [f32], pieces: Pieces, first: usize, means: &'a mut [f32], deviations: &'a mut [f32]) {
        for (i, (mean, deviation)) in means.iter_mut().zip(deviations).enumerate() {
            let mut total = 0.0;
            for piece in 0..pieces.count {
                total += sum(pieces.of(x, piece, first + i));
            }
            *mean = total / pieces.length as f32;
            let mut deviating = 0.0;
            for piece in 0..pieces.count {
                deviating += squares(pieces.of(x, piece, first + i), *mean);
            }
            // one frame has no variance
            *deviation = (deviating / (pieces.length.max(2) - 1) as f32 + POOL_EPSILON).sqrt();
        }
    }
}

vectorized! {
    /// With w = softmax of a row's logits: Σwx and √max(Σwx² − (Σwx)², ε) of rows `first …`.
    fn attended<'a>(x: &'a [f32], logits: &'a [f32], pieces: Pieces, first: usize, means: &'a mut [f32], deviations: &'a mut [f32]) {
        for (i, (mean, deviation)) in means.iter_mut().zip(deviations).enumerate() {
            let mut top = f32::NEG_INFINITY;
            for piece in 0..pieces.count {
                let here = largest(pieces.of(logits, piece, first + i));
                top = if here > top { here } else { top };
            }
            let mut sums = [Lanes::ZERO; 3];
            for piece in 0..pieces.count {
                add_weighted(pieces.of(x, piece, first + i), pieces.of(logits, piece, first + i), top, &mut sums);
            }
            let [total, first, second] = [sums[0].total(), sums[1].total(), sums[2].total()];
            *mean = first / total;
            let variance = second / total - *mean * *mean;
            *deviation = if variance < POOL_EPSILON { POOL_EPSILON } else { variance }.sqrt();
        }
    }
}

/// eˣ to about 2 ulp for −87 ≤ x ≤ 88, and the value there outside: 2ⁿ·eʳ with |r| ≤ ½·ln 2 and Taylor's series for eʳ.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = (3 << 22) as f32; // adding and subtracting it rounds to a whole number
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    // ln 2 in two parts, the first of few enough bits that n times it is exact
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let series = (1.0 / 5040.0) * r + 1.0 / 720.0;
    let series = (series * r + 1.0 / 120.0) * r + 1.0 / 24.0;
    let series = (series * r + 1.0 / 6.0) * r + 0.5;
    let series = (series * r + 1.0) * r + 1.0;
    series * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh: its continued fraction near zero, where (1 − e⁻²ˣ)/(1 + e⁻²ˣ) would cancel.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let square = x * x;
    let near = x * (945.0 + square * (105.0 + square)) / (945.0 + square * (420.0 + 15.0 * square));
    let small = exp(-2.0 * x.abs());
    let far = ((1.0 - small) / (1.0 + small)).copysign(x);
    if x.abs() < 0.5 { near } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_sigmoid_and_tanh_are_within_a_few_ulp_of_the_standard_library() {
        for i in -8600..=8700 {
            let x = i as f32 * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 5e-7 * exact, "exp({x})");
            let exact = f64::from(x).tanh();
            assert!((f64::from(tanh(x)) - exact).abs() <= 5e-7 * exact.abs(), "tanh({x}) = {} not {exact}", tanh(x));
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(sigmoid(x)) - exact).abs() <= 1e-6 * exact, "sigmoid({x})");
        }
    }

    #[test]
    fn sums_squares_and_maxima_of_any_length_are_right() {
        for length in 0..100usize {
            let values: Vec<f32> = (0..length).map(|i| ((i * 37) % 29) as f32 - 7.0).collect();
            assert_eq!(sum(&values), values.iter().sum::<f32>());
            assert_eq!(squares(&values, 1.0), values.iter().map(|x| (x - 1.0) * (x - 1.0)).sum::<f32>());
            assert_eq!(largest(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
