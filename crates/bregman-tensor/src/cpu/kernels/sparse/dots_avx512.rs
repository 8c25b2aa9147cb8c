//! [`dots`](super::dots) with AVX-512: four entries at a time, so that they share the additions across lanes; in bf16
//! by `vdpbf16ps`, which multiplies 32 columns at once.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use bregman_base::simd::Level;

use super::super::lanes::{LANES, Lanes, Work, dispatch};

/// What is multiplied: f32, or bf16 as halves of words.
pub(super) trait Number: Copy {
    /// Values in a vector.
    const LANES: usize;

    /// The instructions it needs.
    fn level() -> Level;

    /// [`piece`], compiled for these instructions.
    ///
    /// # Safety
    /// The CPU has them, and as for `piece`.
    unsafe fn piece<const V: usize>(job: Job<Self>);

    /// `sum + a · b`
    ///
    /// # Safety
    /// The CPU has the instructions, and there is a vector to read at `b`.
    unsafe fn add_product(sum: __m512, a: __m512i, b: *const Self) -> __m512;
}

impl Number for f32 {
    const LANES: usize = 16;

    fn level() -> Level {
        Level::Avx512
    }

    unsafe fn piece<const V: usize>(job: Job<Self>) {
        #[target_feature(enable = "avx512f")]
        unsafe fn compiled<const V: usize>(job: Job<f32>) {
            // SAFETY: by the contract of `Number::piece`.
            unsafe { piece::<f32, V>(job) }
        }
        // SAFETY: by this function's contract.
        unsafe { compiled::<V>(job) }
    }

    #[inline(always)]
    unsafe fn add_product(sum: __m512, a: __m512i, b: *const Self) -> __m512 {
        // SAFETY: by this function's contract.
        unsafe { _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_loadu_ps(b), sum) }
    }
}

impl Number for u16 {
    const LANES: usize = 32;

    fn level() -> Level {
        Level::Avx512Bf16
    }

    unsafe fn piece<const V: usize>(job: Job<Self>) {
        #[target_feature(enable = "avx512f,avx512bf16")]
        unsafe fn compiled<const V: usize>(job: Job<u16>) {
            // SAFETY: by the contract of `Number::piece`.
            unsafe { piece::<u16, V>(job) }
        }
        // SAFETY: by this function's contract.
        unsafe { compiled::<V>(job) }
    }

    #[inline(always)]
    unsafe fn add_product(sum: __m512, a: __m512i, b: *const Self) -> __m512 {
        // SAFETY: by this function's contract; a vector of 32 halves is one of 32 bf16.
        unsafe {
            let b = std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(b.cast()));
            _mm512_dpbf16_ps(sum, std::mem::transmute::<__m512i, __m512bh>(a), b)
        }
    }
}

/// A piece of a row of dY, and the entries of that row.
#[derive(Debug)]
pub(super) struct Job<'a, N> {
    pub(super) dy: &'a [N],
    /// The lines of X.
    pub(super) values: &'a [N],
    /// Where the line under each column of the tile begins.
    pub(super) offsets: &'a [u32],
    /// Columns of the entries.
    pub(super) columns: &'a [u16],
    /// One for each entry.
    pub(super) sums: &'a mut [f32],
}

/// Adds the dot products of `dy` with the lines under the entries.
///
/// # Safety
/// As many values as `dy` has follow each offset.
///
/// # Panics
/// If the CPU lacks the instructions, or `dy` is not whole vectors.
pub(super) unsafe fn add<N: Number>(job: Job<N>) {
    assert!(N::level().is_usable(), "{:?} on a CPU without it", N::level());
    assert!(job.dy.len().is_multiple_of(N::LANES), "a part of a vector of dY");
    let Job { mut dy, mut values, offsets, columns, sums } = job;
    while !dy.is_empty() {
        let vectors = match dy.len() / N::LANES {
            8.. => 8,
            6.. => 6,
            4.. => 4,
            few => few,
        };
        let job = Job { dy, values, offsets, columns, sums: &mut *sums };
        // SAFETY: the CPU has the instructions; the rest by this function's contract, for `values` begins as far behind
        // its start as `dy`.
        unsafe {
            match vectors {
                8 => N::piece::<8>(job),
                6 => N::piece::<6>(job),
                4 => N::piece::<4>(job),
                3 => N::piece::<3>(job),
                2 => N::piece::<2>(job),
                _ => N::piece::<1>(job),
            }
        }
        (dy, values) = (&dy[vectors * N::LANES..], &values[vectors * N::LANES..]);
    }
}

/// The first V vectors of `dy`.
///
/// # Safety
/// There are so many, and V vectors of values follow each offset.
// Without closures: they would not be compiled for the instructions of the function that this is inlined into.
#[inline(always)]
unsafe fn piece<N: Number, const V: usize>(Job { dy, values, offsets, columns, sums }: Job<N>) {
    debug_assert!(dy.len() >= V * N::LANES);
    // SAFETY: AVX-512F.
    let zero = unsafe { _mm512_setzero_ps() };
    // SAFETY: AVX-512F.
    let mut vectors = [unsafe { _mm512_setzero_si512() }; V];
    for (v, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: V vectors of dY by this function's contract.
        *vector = unsafe { _mm512_loadu_si512(dy.as_ptr().add(v * N::LANES).cast()) };
    }
    let ((columns, last_columns), (sums, last_sums)) = (columns.as_chunks::<4>(), sums.as_chunks_mut::<4>());
    for (&[a, b, c, d], sums) in columns.iter().zip(sums) {
        // SAFETY: by this function's contract, and there are four sums to read and write.
        unsafe {
            let four = [
                product(&vectors, values, offsets[usize::from(a)]),
                product(&vectors, values, offsets[usize::from(b)]),
                product(&vectors, values, offsets[usize::from(c)]),
                product(&vectors, values, offsets[usize::from(d)]),
            ];
            _mm_storeu_ps(sums.as_mut_ptr(), _mm_add_ps(_mm_loadu_ps(sums.as_ptr()), add_across(four)));
        }
    }
    for (&column, sum) in last_columns.iter().zip(last_sums) {
        // SAFETY: by this function's contract. The same additions as above: a sum does not depend on its neighbours.
        unsafe {
            let one = product(&vectors, values, offsets[usize::from(column)]);
            *sum += _mm_cvtss_f32(add_across([one, zero, zero, zero]));
        }
    }
}

/// The products of vectors with those that begin at `offset`, not yet added across.
///
/// # Safety
/// V vectors of values follow the offset, and the CPU has the instructions.
#[inline(always)]
unsafe fn product<N: Number, const V: usize>(vectors: &[__m512i; V], values: &[N], offset: u32) -> __m512 {
    debug_assert!(offset as usize + V * N::LANES <= values.len());
    // SAFETY: by this function's contract.
    unsafe {
        let from = values.as_ptr().add(offset as usize);
        let mut sum = _mm512_setzero_ps();
        for (v, &vector) in vectors.iter().enumerate() {
            sum = N::add_product(sum, vector, from.add(v * N::LANES));
        }
        sum
    }
}

/// The sum of the lanes of each of four vectors.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
unsafe fn add_across([a, b, c, d]: [__m512; 4]) -> __m128 {
    // SAFETY: by this function's contract.
    unsafe {
        let ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
        let cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
        let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
        // a, b, c, d in each quarter
        let quarters = _mm512_add_ps(low, high);
        let upper = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(quarters)));
        let halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), upper);
        _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves))
    }
}

/// Rounds whole vectors to bf16.
pub(super) fn round(wide: &[f32], halves: &mut [u16]) {
    dispatch(Round { wide, halves });
}

struct Round<'a> {
    wide: &'a [f32],
    halves: &'a mut [u16],
}

impl Work for Round<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (wide, halves) in self.wide.as_chunks::<LANES>().0.iter().zip(self.halves.as_chunks_mut::<LANES>().0) {
            lanes.store_rounded(lanes.load(wide), halves);
        }
    }
}
