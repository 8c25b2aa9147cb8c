//! Reductions over a slice in a fixed order that the compiler can vectorize.
//!
//! Floating-point addition does not commute with regrouping, so LLVM leaves a plain sum scalar. Summing into
//! [`LANES`] independent accumulators states an order that maps onto vector registers of any width, and gives the
//! same bits on every machine.
//!
//! All functions are inlined, so that they are compiled with the instructions of the caller (see `pulp::Arch`).

/// Independent accumulators: one AVX-512 register, two AVX2 registers, four NEON registers.
pub const LANES: usize = 16;

/// Σ f(x), each lane summed on its own, then folded by [`total`]; what is left at the end goes to the first lanes.
#[inline(always)]
fn sum_of(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane += f(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f(x);
    }
    total(lanes)
}

/// The sum of the lanes, from the first to the last.
#[inline(always)]
pub fn total(lanes: [f32; LANES]) -> f32 {
    lanes.iter().sum()
}

/// Σx
#[inline(always)]
pub fn sum(values: &[f32]) -> f32 {
    sum_of(
        values,
        #[inline(always)]
        |x| x,
    )
}

/// ‖x‖₂² in single precision: for slices short enough that this does not matter.
#[inline(always)]
pub fn sum_of_squares(values: &[f32]) -> f32 {
    sum_of(
        values,
        #[inline(always)]
        |x| x * x,
    )
}

/// Σ(x − centre)²
#[inline(always)]
pub fn squared_deviations(values: &[f32], centre: f32) -> f32 {
    sum_of(
        values,
        #[inline(always)]
        |x| (x - centre) * (x - centre),
    )
}

/// The largest value; −∞ for none. NaN is passed over.
#[inline(always)]
pub fn largest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = if x > *lane { x } else { *lane };
    }
    lanes.iter().fold(f32::NEG_INFINITY, |largest, &lane| if lane > largest { lane } else { largest })
}

/// How many values are exactly zero, of either sign.
#[inline(always)]
pub fn zeros(values: &[f32]) -> usize {
    // 32-bit counters, as wide as the values; a piece is short enough for them
    let pieces = values.chunks(1 << 30);
    pieces.map(|piece| piece.iter().map(|&x| u32::from(x == 0.0)).sum::<u32>() as usize).sum()
}

/// How many values are not zero.
#[inline(always)]
pub fn nonzeros(values: &[f32]) -> usize {
    values.len() - zeros(values)
}

/// An all-ones exponent marks NaN and infinity.
const EXPONENT: u32 = 0x7f80_0000;

/// x, or 0 in the place of NaN and infinity.
#[inline(always)]
pub fn finite_or_zero(x: f32) -> f32 {
    if x.to_bits() & EXPONENT == EXPONENT { 0.0 } else { x }
}

/// Whether every value is finite.
#[inline(always)]
pub fn all_finite(values: &[f32]) -> bool {
    let mut bad = 0;
    for &x in values {
        bad |= u32::from(x.to_bits() & EXPONENT == EXPONENT);
    }
    bad == 0
}

/// The cosine of two vectors, the score of a trial; 0 where one of them is zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let lengths = (product(a, a) * product(b, b)).sqrt();
    if lengths > 0.0 { product(a, b) / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maxima_of_any_length_are_exact_on_whole_numbers() {
        for length in 0..100usize {
            let values: Vec<f32> = (0..length).map(|i| ((i * 37) % 29) as f32 - 7.0).collect();
            assert_eq!(sum(&values), values.iter().sum::<f32>());
            assert_eq!(sum_of_squares(&values), values.iter().map(|x| x * x).sum::<f32>());
            assert_eq!(squared_deviations(&values, 1.0), values.iter().map(|x| (x - 1.0) * (x - 1.0)).sum::<f32>());
            assert_eq!(largest(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }

    #[test]
    fn value_i_goes_to_lane_i_mod_16_and_lanes_are_added_in_order() {
        // the CUDA kernel of the group norm sums in this order
        let values: Vec<f32> = (0..53).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut lanes = [0.0; LANES];
        values.iter().enumerate().for_each(|(i, x)| lanes[i % LANES] += x * x);
        assert_eq!(sum_of_squares(&values), lanes.iter().fold(0.0, |sum, lane| sum + lane));
    }

    #[test]
    fn zeros_counts_both_signs_of_zero_and_nothing_else() {
        let values = [0.0, -0.0, f32::MIN_POSITIVE / 2.0, 1.0, f32::NAN];
        assert_eq!((zeros(&values), nonzeros(&values)), (2, 3));
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

    #[test]
    fn cosines_are_between_minus_one_and_one_and_zero_for_nothing() {
        assert_eq!(cosine(&[3.0, 0.0], &[2.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[-4.0, 0.0]), -1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 1.0]), 0.0);
    }
}
