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

#[cfg(test)]
mod tests {
    use super::*;

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
