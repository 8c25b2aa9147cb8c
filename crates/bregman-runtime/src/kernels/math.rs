//! Loops over rows that the compiler turns into SIMD: sums, exponentials, statistics.
//!
//! [`simd!`] compiles an expression once per instruction set and picks the given one at run time.

/// Evaluates an expression compiled for the instructions of `arch`. All functions in it must be `#[inline(always)]`.
macro_rules! simd {
    ($arch:expr, $work:expr) => {
        $arch.dispatch(
            #[inline(always)]
            || $work,
        )
    };
}
pub(crate) use simd;

const LANES: usize = 16;

/// `Σ term(i)` for i below `length`, in sixteen sums.
#[inline(always)]
pub(crate) fn sum(length: usize, term: impl Fn(usize) -> f32) -> f32 {
    sums(length, |i| [term(i)])[0]
}

/// N sums in one pass.
#[inline(always)]
pub(crate) fn sums<const N: usize>(length: usize, terms: impl Fn(usize) -> [f32; N]) -> [f32; N] {
    let mut lanes = [[0f32; LANES]; N];
    let whole = length / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        for lane in 0..LANES {
            let terms = terms(start + lane);
            for n in 0..N {
                lanes[n][lane] += terms[n];
            }
        }
    }
    for i in whole..length {
        let terms = terms(i);
        for n in 0..N {
            lanes[n][i - whole] += terms[n];
        }
    }
    lanes.map(|lanes| lanes.iter().sum())
}

/// The largest number; −∞ for none.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

/// eˣ to about 2 ulp for −87 ≤ x ≤ 88, and the value there outside: 2ⁿ·eʳ with |r| ≤ ½·ln 2 and Taylor's series for eʳ.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = (3 << 22) as f32; // adding and subtracting it rounds to a whole number
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    // ln 2 in two parts, the first of few enough bits that n times it is exact
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let mut series = 1.0 / 5040.0;
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = series * r + factor;
    }
    series * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh: its continued fraction near zero, where (1 − e⁻²ˣ)/(1 + e⁻²ˣ) would cancel.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
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
    fn sums_and_maxima_of_any_length_are_right() {
        for length in 0..100usize {
            let values: Vec<f32> = (0..length).map(|i| ((i * 37) % 29) as f32 - 7.0).collect();
            assert_eq!(sums(length, |i| [values[i], 1.0]), [values.iter().sum(), length as f32]);
            assert_eq!(max(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
