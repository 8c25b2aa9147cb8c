//! Reductions over a slice in a fixed order that the compiler can vectorise.
//!
//! Floating-point addition does not commute with regrouping, so LLVM leaves a plain sum scalar. Summing into
//! [`LANES`] independent accumulators states an order that maps onto vector registers of any width, and gives the
//! same bits on every machine.

/// Independent accumulators: one AVX-512 register, two AVX2 registers, four NEON registers.
const LANES: usize = 16;

/// Σ f(x), each lane summed on its own, lanes then added from the first to the last.
#[inline(always)]
fn lane_sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let blocks = values.chunks_exact(LANES);
    let rest = blocks.remainder();
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane += f(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f(x);
    }
    lanes.iter().sum()
}

/// ‖x‖₂² in single precision: for slices short enough that this does not matter.
#[inline(always)]
pub(crate) fn sum_of_squares(values: &[f32]) -> f32 {
    lane_sum(values, |x| x * x)
}

/// How many elements are exactly zero.
#[inline(always)]
pub(crate) fn zeros(values: &[f32]) -> u64 {
    let mut count = 0;
    for &x in values {
        count += u32::from(x == 0.0);
    }
    u64::from(count)
}

/// An all-ones exponent marks NaN and infinity.
const EXPONENT: u32 = 0x7f80_0000;

/// x, or 0 in the place of NaN and infinity.
#[inline(always)]
pub(crate) fn finite_or_zero(x: f32) -> f32 {
    if x.to_bits() & EXPONENT == EXPONENT { 0.0 } else { x }
}

/// Whether every element is finite.
#[inline(always)]
pub(crate) fn all_finite(values: &[f32]) -> bool {
    let mut bad = 0;
    for &x in values {
        bad |= u32::from(x.to_bits() & EXPONENT == EXPONENT);
    }
    bad == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_sums_agree_with_plain_sums_at_odd_lengths() {
        for len in [0, 1, 15, 16, 17, 33, 1000] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37).sin()).collect();
            let plain: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            assert!((f64::from(sum_of_squares(&x)) - plain).abs() <= 1e-5 * plain, "length {len}");
        }
    }

    #[test]
    fn zeros_counts_both_signs_of_zero_and_nothing_else() {
        assert_eq!(zeros(&[0.0, -0.0, f32::MIN_POSITIVE / 2.0, 1.0, f32::NAN]), 2);
    }

    #[test]
    fn all_finite_refuses_nan_and_both_infinities() {
        assert!(all_finite(&[0.0, f32::MAX, -1.0]));
        assert_eq!(finite_or_zero(-f32::MAX), -f32::MAX);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!all_finite(&[1.0, bad, 2.0]));
            assert_eq!(finite_or_zero(bad), 0.0);
        }
    }
}
