//! Small pieces shared by the kernels: running a loop with the widest SIMD of this CPU, sums in fixed lanes, exp and
//! tanh.
//!
//! The loops are plain Rust; [`simd!`] compiles them once per instruction set and picks one at run time. Sums go into a
//! fixed number of lanes that are folded in a fixed order, so they do not depend on the instruction set and hardly lose
//! precision on long rows.

use rayon::prelude::*;

/// Evaluates an expression compiled for the widest instruction set of this CPU. All functions in it must be
/// `#[inline(always)]`.
macro_rules! simd {
    ($work:expr) => {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || $work,
        )
    };
}
pub(super) use simd;

/// Below this many values a kernel is not worth waking other threads for.
pub(super) const SERIAL: usize = 1 << 14;

/// Calls `work(i)` for `i` in `0..n`, in parallel when `values` (touched in all) make that worth it.
pub(super) fn each(n: usize, values: usize, work: impl Fn(usize) + Sync + Send) {
    if values < SERIAL || n < 2 || rayon::current_num_threads() == 1 {
        (0..n).for_each(work);
    } else {
        (0..n).into_par_iter().with_min_len(n.div_ceil(8 * rayon::current_num_threads())).for_each(work);
    }
}

const LANES: usize = 32;
/// Values after which the f32 lanes are folded into f64.
const RUN: usize = 4096;

/// `Σ f(i)` for the positions of slices of length `len`; `f` reads position `i`.
#[inline(always)]
pub(super) fn sum(len: usize, f: impl Fn(usize) -> f32) -> f32 {
    sum2(len, |i| (f(i), 0.0)).0
}

/// Two sums in one pass.
#[inline(always)]
pub(super) fn sum2(len: usize, f: impl Fn(usize) -> (f32, f32)) -> (f32, f32) {
    let (mut total_a, mut total_b) = (0.0f64, 0.0f64);
    let mut start = 0;
    while start < len {
        let end = (start + RUN).min(len);
        let (mut a, mut b) = ([0.0f32; LANES], [0.0f32; LANES]);
        let whole = start + (end - start) / LANES * LANES;
        let mut i = start;
        while i < whole {
            for lane in 0..LANES {
                let (u, v) = f(i + lane);
                a[lane] += u;
                b[lane] += v;
            }
            i += LANES;
        }
        for i in whole..end {
            let (u, v) = f(i);
            a[0] += u;
            b[0] += v;
        }
        total_a += fold(a);
        total_b += fold(b);
        start = end;
    }
    (total_a as f32, total_b as f32)
}

#[inline(always)]
fn fold(lanes: [f32; LANES]) -> f64 {
    lanes.iter().map(|&lane| f64::from(lane)).sum()
}

/// Largest value, −∞ for none.
#[inline(always)]
pub(super) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| a.max(b))
}

/// eˣ to about 2 ulp: x = n·ln 2 + r, a polynomial for eʳ, the exponent added as bits.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding and subtracting it rounds to an integer
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    // NaN passes both comparisons and so stays NaN
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let n = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    let r = x - n * LN2_HI - n * LN2_LO;
    let p = 1.987_569_2e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    p * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh: an odd polynomial near zero, where 1 − 2/(e²ˣ + 1) would cancel, and that elsewhere.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let p = -5.704_988_7e-3;
    let p = p * square + 2.063_909e-2;
    let p = p * square - 5.373_971_6e-2;
    let p = p * square + 1.333_144_2e-1;
    let p = p * square - 3.333_328e-1;
    let near = p * square * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 { near } else { far.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_tanh_are_within_a_few_ulp_of_the_standard_library() {
        for i in -8600..=8700 {
            let x = i as f32 * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 4e-7 * exact, "exp({x})");
            let exact = f64::from(x).tanh();
            assert!(
                (f64::from(tanh(x)) - exact).abs() <= 4e-7 * exact.abs().max(1e-30),
                "tanh({x}) = {} not {exact}",
                tanh(x)
            );
        }
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }

    #[test]
    fn sums_of_any_length_match_f64() {
        for len in [0, 1, 7, 31, 32, 33, 4095, 4097, 100_003] {
            let values: Vec<f32> = (0..len).map(|i| 1.0 + (i % 17) as f32 * 1e-3).collect();
            let exact: f64 = values.iter().map(|&v| f64::from(v)).sum();
            let got = simd!(sum(len, |i| values[i]));
            assert!((f64::from(got) - exact).abs() <= 2e-7 * exact.max(1.0), "{len}: {got} not {exact}");
        }
    }
}
