//! Small pieces shared by the kernels: running a loop with the widest SIMD of this CPU or on all threads, sums of long
//! rows.
//!
//! The loops are plain Rust; [`simd!`] compiles them once per instruction set and picks one at run time. Sums go into a
//! fixed number of lanes that are folded in a fixed order, so they do not depend on the instruction set; unlike those
//! of `bregman_base::lanes` they are folded into f64 now and then and so hardly lose precision on long rows.

use rayon::prelude::*;

/// Evaluates an expression compiled for the widest instruction set of this CPU, or for that of `arch`. All functions in
/// it must be `#[inline(always)]`.
///
/// The closure gives away a value of its own, so that it can be called once only: one that could be called again would
/// be called through a function that the compiler adds, and adds for the smallest CPU.
macro_rules! simd {
    ($work:expr) => {
        $crate::cpu::math::simd!(bregman_base::simd::arch(), $work)
    };
    ($arch:expr, $work:expr) => {{
        let once = $crate::cpu::math::Once;
        $arch.dispatch(
            #[inline(always)]
            || {
                let _given_away = once;
                $work
            },
        )
    }};
}
pub(super) use simd;

/// What a closure can give away once.
pub(super) struct Once;

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

/// `Σ f(x)`
#[inline(always)]
pub(super) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    sum2(x, x, |x, _| (f(x), 0.0)).0
}

/// `Σ f(x, y)` for two slices of the same length.
#[inline(always)]
pub(super) fn sum_over(x: &[f32], y: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    sum2(x, y, |x, y| (f(x, y), 0.0)).0
}

/// Two sums in one pass over two slices of the same length.
#[inline(always)]
pub(super) fn sum2(x: &[f32], y: &[f32], f: impl Fn(f32, f32) -> (f32, f32)) -> (f32, f32) {
    assert_eq!(x.len(), y.len(), "lengths of two summands");
    let (mut total_a, mut total_b) = (0.0f64, 0.0f64);
    for (x, y) in x.chunks(RUN).zip(y.chunks(RUN)) {
        let (mut a, mut b) = ([0.0f32; LANES], [0.0f32; LANES]);
        let ((x, last_x), (y, last_y)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
        for (x, y) in x.iter().zip(y) {
            for lane in 0..LANES {
                let (u, v) = f(x[lane], y[lane]);
                a[lane] += u;
                b[lane] += v;
            }
        }
        for (&x, &y) in last_x.iter().zip(last_y) {
            let (u, v) = f(x, y);
            a[0] += u;
            b[0] += v;
        }
        total_a += fold(a);
        total_b += fold(b);
    }
    (total_a as f32, total_b as f32)
}

#[inline(always)]
fn fold(lanes: [f32; LANES]) -> f64 {
    lanes.iter().map(|&lane| f64::from(lane)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_any_length_match_f64() {
        for len in [0, 1, 7, 31, 32, 33, 4095, 4097, 100_003] {
            let values: Vec<f32> = (0..len).map(|i| 1.0 + (i % 17) as f32 * 1e-3).collect();
            let exact: f64 = values.iter().map(|&v| f64::from(v)).sum();
            let got = simd!(sum(&values, |value| value));
            assert!((f64::from(got) - exact).abs() <= 2e-7 * exact.max(1.0), "{len}: {got} not {exact}");
        }
    }
}
