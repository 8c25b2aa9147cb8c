//! Mean and standard deviation of the n largest of many values, without sorting them.
//!
//! Bisection on the value: counting how many lie at or above a threshold is one vectorised pass, and about ten passes
//! over a row in the first-level cache leave a few candidates around the n-th largest. A partial sort takes
//! several times as long.

use pulp::{Arch, Simd, WithSimd};

/// Candidates that are sorted rather than bisected further.
const FEW: usize = 48;
/// Vectors summed in f32 before they go to f64: the sums keep the precision of their terms.
const SHORT: usize = 8;

/// Mean and population standard deviation of the `n` largest `values`, which are finite.
pub(super) fn top_moments(arch: Arch, values: &[f32], n: usize) -> (f64, f64) {
    debug_assert!(0 < n && n <= values.len());
    arch.dispatch(TopMoments { values, n })
}

struct TopMoments<'a> {
    values: &'a [f32],
    n: usize,
}

impl WithSimd for TopMoments<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f64) {
        let Self { values, n } = self;
        // Invariant: at least n values are ≥ low, fewer than n are ≥ high.
        let [mut low, largest] = extremes(simd, values);
        let (mut high, mut at_low, mut at_high) = (largest.next_up(), values.len(), 0);
        while at_low - at_high > FEW {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                break; // adjacent floats: the candidates are all equal
            }
            let at_middle = count_from(simd, values, middle);
            if at_middle >= n {
                (low, at_low) = (middle, at_middle);
            } else {
                (high, at_high) = (middle, at_middle);
            }
        }
        let mut candidates = between(simd, values, low, high);
        candidates.sort_unstable_by(|a, b| b.total_cmp(a));

        // Sums of distances from `low`, which are small, so that the variance loses nothing to cancellation.
        let (mut sum, mut squares) = sums_from(simd, values, high, low);
        for &x in &candidates[..n - at_high] {
            let distance = f64::from(x - low);
            (sum, squares) = (sum + distance, squares + distance * distance);
        }
        let mean = sum / n as f64;
        (mean + f64::from(low), (squares / n as f64 - mean * mean).max(0.0).sqrt())
    }
}

/// The smallest and the largest value.
#[inline(always)]
fn extremes<S: Simd>(simd: S, values: &[f32]) -> [f32; 2] {
    let (vectors, rest) = S::as_simd_f32s(values);
    let (mut low, mut high) = (simd.splat_f32s(f32::INFINITY), simd.splat_f32s(f32::NEG_INFINITY));
    for &x in vectors {
        (low, high) = (simd.min_f32s(low, x), simd.max_f32s(high, x));
    }
    let ends = [simd.reduce_min_f32s(low), simd.reduce_max_f32s(high)];
    rest.iter().fold(ends, |[low, high], &x| [low.min(x), high.max(x)])
}

/// How many values are ≥ `threshold`.
#[inline(always)]
fn count_from<S: Simd>(simd: S, values: &[f32], threshold: f32) -> usize {
    let (vectors, rest) = S::as_simd_f32s(values);
    let (quads, odd) = vectors.as_chunks::<4>();
    let (zero, one, level) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0), simd.splat_f32s(threshold));
    let mut counts = [zero; 4]; // whole numbers below 2²⁴ are exact
    for quad in quads {
        for (count, &x) in counts.iter_mut().zip(quad) {
            *count = simd.add_f32s(*count, simd.select_f32s(simd.greater_than_or_equal_f32s(x, level), one, zero));
        }
    }
    for &x in odd {
        counts[0] = simd.add_f32s(counts[0], simd.select_f32s(simd.greater_than_or_equal_f32s(x, level), one, zero));
    }
    let counted: f32 = counts.into_iter().map(|count| simd.reduce_sum_f32s(count)).sum();
    counted as usize + rest.iter().filter(|&&x| x >= threshold).count()
}

/// The values in low..high.
#[inline(always)]
fn between<S: Simd>(simd: S, values: &[f32], low: f32, high: f32) -> Vec<f32> {
    let (vectors, rest) = S::as_simd_f32s(values);
    let (from, to) = (simd.splat_f32s(low), simd.splat_f32s(high));
    let mut found = Vec::with_capacity(2 * FEW);
    let mut collect = |part: &[f32]| found.extend(part.iter().filter(|&&x| x >= low && x < high));
    for (x, lanes) in vectors.iter().zip(values.chunks_exact(S::F32_LANES)) {
        let inside = simd.and_m32s(simd.greater_than_or_equal_f32s(*x, from), simd.less_than_f32s(*x, to));
        if simd.first_true_m32s(inside) < S::F32_LANES {
            collect(lanes);
        }
    }
    collect(rest);
    found
}

/// Σ (x − origin) and Σ (x − origin)² of the values ≥ `threshold`.
#[inline(always)]
fn sums_from<S: Simd>(simd: S, values: &[f32], threshold: f32, origin: f32) -> (f64, f64) {
    let (vectors, rest) = S::as_simd_f32s(values);
    let (zero, level, base) = (simd.splat_f32s(0.0), simd.splat_f32s(threshold), simd.splat_f32s(origin));
    let (mut sum, mut squares) = (0.0, 0.0);
    for part in vectors.chunks(SHORT) {
        let (mut part_sum, mut part_squares) = (zero, zero);
        for &x in part {
            let distance = simd.select_f32s(simd.greater_than_or_equal_f32s(x, level), simd.sub_f32s(x, base), zero);
            part_sum = simd.add_f32s(part_sum, distance);
            part_squares = simd.mul_add_e_f32s(distance, distance, part_squares);
        }
        sum += f64::from(simd.reduce_sum_f32s(part_sum));
        squares += f64::from(simd.reduce_sum_f32s(part_squares));
    }
    for distance in rest.iter().filter(|&&x| x >= threshold).map(|&x| f64::from(x - origin)) {
        (sum, squares) = (sum + distance, squares + distance * distance);
    }
    (sum, squares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_base::simd;
    use proptest::prelude::*;

    fn by_sorting(values: &[f32], n: usize) -> (f64, f64) {
        let mut sorted: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let mean = sorted[..n].iter().sum::<f64>() / n as f64;
        (mean, (sorted[..n].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64).sqrt())
    }

    proptest! {
        #[test]
        fn top_moments_equal_those_of_a_sort(
            mut values in proptest::collection::vec(-1f32..1.0, 1..600),
            pick in 0usize..10_000,
            steps in 0u32..12,
        ) {
            if steps > 0 { // many ties
                values.iter_mut().for_each(|x| *x = (*x * steps as f32).round() / steps as f32);
            }
            let n = 1 + pick % values.len();
            let (ours, sorted) = (top_moments(simd::arch(), &values, n), by_sorting(&values, n));
            // A term passes about 14 roundings of u = 2⁻²⁴ (difference, 8 sums, 4 to fold the lanes), each relative to
            // its distance d from `low`, which is no less than the smallest value: 14u·E[d] on the mean, 14u·E[d²] +
            // 2·14u·E[d]² on the variance.
            let (lowest, roundings) = (values.iter().fold(1f32, |low, &x| low.min(x)), 14.0 * 2f64.powi(-24));
            let distance = sorted.0 - f64::from(lowest);
            let squares = sorted.1.powi(2) + distance.powi(2);
            prop_assert!((ours.0 - sorted.0).abs() <= roundings * distance + 1e-12, "{ours:?} {sorted:?}");
            let variance = (ours.1.powi(2) - sorted.1.powi(2)).abs();
            prop_assert!(variance <= 3.0 * roundings * squares + 1e-12, "{ours:?} {sorted:?}");
        }
    }

    #[test]
    fn equal_and_extreme_values_end_the_bisection() {
        assert_eq!(top_moments(simd::arch(), &[0.5; 300], 7), (0.5, 0.0));
        let mut values = vec![f32::MIN_POSITIVE; 200];
        values.extend([0.0; 200]);
        values.extend([1e30, -1e30]);
        assert_eq!(top_moments(simd::arch(), &values, 1), (1e30f32.into(), 0.0));
    }
}
