//! Mean and standard deviation of the n largest of many values, without sorting them.
//!
//! Bisection on the value: counting how many lie at or above a threshold is one pass that vectorises, and some ten passes over a row in
//! the first-level cache leave a handful of candidates around the n-th largest. A partial sort takes several times as long.

use pulp::Arch;

const LANES: usize = 16;
/// Candidates that are sorted rather than bisected further.
const FEW: usize = 48;

/// Mean and population standard deviation of the `n` largest `values`, which are finite.
pub(super) fn top_moments(arch: Arch, values: &[f32], n: usize) -> (f64, f64) {
    debug_assert!(0 < n && n <= values.len());
    let mut candidates = Vec::with_capacity(2 * FEW);
    arch.dispatch(
        #[inline(always)]
        || moments(values, n, &mut candidates),
    )
}

#[inline(always)]
fn moments(values: &[f32], n: usize, candidates: &mut Vec<f32>) -> (f64, f64) {
    // Invariant: at least n values are ≥ low, fewer than n are ≥ high.
    let (mut low, largest) = values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
    let (mut high, mut at_low, mut at_high) = (largest.next_up(), values.len(), 0);
    while at_low - at_high > FEW {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break; // neighbouring numbers: the candidates are all equal
        }
        let at_middle = count_from(values, middle);
        if at_middle >= n {
            (low, at_low) = (middle, at_middle);
        } else {
            (high, at_high) = (middle, at_middle);
        }
    }
    candidates.extend(values.iter().filter(|&&x| x >= low && x < high));
    candidates.sort_unstable_by(|a, b| b.total_cmp(a));

    // Sums of distances from `low`, which are small, so that the variance loses nothing to cancellation.
    let (mut sum, mut squares) = sums_from(values, high, low);
    for &x in &candidates[..n - at_high] {
        let distance = f64::from(x) - f64::from(low);
        (sum, squares) = (sum + distance, squares + distance * distance);
    }
    let mean = sum / n as f64;
    (mean + f64::from(low), (squares / n as f64 - mean * mean).max(0.0).sqrt())
}

/// How many values are ≥ `threshold`.
#[inline(always)]
fn count_from(values: &[f32], threshold: f32) -> usize {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut counts = [0u32; LANES];
    for chunk in chunks {
        for (count, &x) in counts.iter_mut().zip(chunk) {
            *count += u32::from(x >= threshold);
        }
    }
    counts.iter().sum::<u32>() as usize + rest.iter().filter(|&&x| x >= threshold).count()
}

/// Σ (x − origin) and Σ (x − origin)² of the values ≥ `threshold`.
#[inline(always)]
fn sums_from(values: &[f32], threshold: f32, origin: f32) -> (f64, f64) {
    let origin = f64::from(origin);
    let distance = |x: f32| if x >= threshold { f64::from(x) - origin } else { 0.0 };
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (mut sums, mut squares) = ([0.0f64; LANES], [0.0f64; LANES]);
    for chunk in chunks {
        for ((sum, square), &x) in sums.iter_mut().zip(&mut squares).zip(chunk) {
            let distance = distance(x);
            *sum += distance;
            *square += distance * distance;
        }
    }
    let rest = rest.iter().map(|&x| distance(x)).fold((0.0, 0.0), |(sum, square), d| (sum + d, square + d * d));
    (sums.iter().sum::<f64>() + rest.0, squares.iter().sum::<f64>() + rest.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_sorting(values: &[f32], n: usize) -> (f64, f64) {
        let mut sorted: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let mean = sorted[..n].iter().sum::<f64>() / n as f64;
        (mean, (sorted[..n].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64).sqrt())
    }

    proptest! {
        #[test]
        fn top_moments_equal_those_of_a_sort(mut values in proptest::collection::vec(-1f32..1.0, 1..600), pick in 0usize..10_000, steps in 0u32..12) {
            if steps > 0 { // many ties
                values.iter_mut().for_each(|x| *x = (*x * steps as f32).round() / steps as f32);
            }
            let n = 1 + pick % values.len();
            let (ours, sorted) = (top_moments(Arch::new(), &values, n), by_sorting(&values, n));
            prop_assert!((ours.0 - sorted.0).abs() < 1e-12, "{ours:?} {sorted:?}");
            prop_assert!((ours.1 - sorted.1).abs() < 1e-7, "{ours:?} {sorted:?}"); // √ of a variance known to 1e-15
        }
    }

    #[test]
    fn equal_and_extreme_values_end_the_bisection() {
        assert_eq!(top_moments(Arch::new(), &[0.5; 300], 7), (0.5, 0.0));
        let mut values = vec![f32::MIN_POSITIVE; 200];
        values.extend([0.0; 200]);
        values.extend([1e30, -1e30]);
        assert_eq!(top_moments(Arch::new(), &values, 1), (1e30f32.into(), 0.0));
    }
}
