//! eˣ, tanh and the logistic function in single precision, for training and serving alike.
//!
//! Plain arithmetic without branches or tables, so that the compiler vectorizes the loops that call them, and without
//! fused multiply-adds, so that they give the same bits with every instruction set.

/// eˣ to 1 ulp for −87 ≤ x ≤ 88, and the value there outside. x = n·ln 2 + r, a polynomial for eʳ (Moshier's Cephes
/// `expf`), the exponent added as bits. NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer and leaves that in the last bits
    // ln 2 in two parts, the first of few enough bits that n times it is exact
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let p = 1.987_569_2e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    // 2ⁿ; a conversion of n to an integer would keep the loop from being vectorized
    p * f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh: an odd polynomial near zero, where 1 − 2/(e²ˣ + 1) would cancel, and that elsewhere.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
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

    /// Every how many-th number is tried.
    const STRIDE: usize = if cfg!(miri) { 10_000_019 } else { 499 };

    /// The largest error in units in the last place of the exact result, over the numbers between ±`bound`.
    fn worst(bound: f32, ours: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> f64 {
        let numbers = (0..=bound.to_bits()).step_by(STRIDE).map(f32::from_bits).flat_map(|x| [x, -x]);
        let error = |x: f32| {
            let exact = exact(f64::from(x));
            let exponent = (exact.abs().max(f64::from(f32::MIN_POSITIVE)).to_bits() >> 52) as i32 - 1023;
            (f64::from(ours(x)) - exact).abs() / 2f64.powi(exponent - 23)
        };
        numbers.map(error).fold(0.0, f64::max)
    }

    #[test]
    fn results_are_within_their_units_in_the_last_place() {
        let found = [
            worst(86.9, exp, f64::exp),
            worst(86.9, sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
            worst(86.9, tanh, f64::tanh),
        ];
        let allowed = [1.0, 2.5, 1.5];
        assert!(found.iter().zip(allowed).all(|(&found, allowed)| found <= allowed), "{found:?} of {allowed:?} ulp");
    }

    #[test]
    fn limits_are_exact_and_nan_stays() {
        assert_eq!((exp(0.0), sigmoid(0.0), tanh(0.0)), (1.0, 0.5, 0.0));
        assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (exp(88.0), exp(-87.0)));
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY), sigmoid(f32::INFINITY)), (1.0, -1.0, 1.0));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
    }
}
