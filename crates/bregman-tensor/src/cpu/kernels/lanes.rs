//! Sixteen f32 at a time, with the few operations that rounding and Winograd's transforms need: AVX-512 with its bf16
//! conversions, or plain arrays that the compiler turns into whatever SIMD there is.

#![allow(unsafe_code, clippy::needless_range_loop)]

pub(super) use bregman_base::simd::prefetch;

use super::bf16::pair;
use crate::cpu::math::simd;

/// Values per vector.
pub(super) const LANES: usize = 16;

/// Vectors of 16 f32.
pub(super) trait Lanes: Copy {
    type Vector: Copy;
    fn zero(self) -> Self::Vector;
    fn splat(self, value: f32) -> Self::Vector;
    fn load(self, from: &[f32; LANES]) -> Self::Vector;
    fn store(self, vector: Self::Vector, to: &mut [f32; LANES]);
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `from[at + i]` in lane i, zero outside of the slice.
    fn load_clipped(self, from: &[f32], at: isize) -> Self::Vector;
    /// The first `to.len()` lanes, at most 16.
    fn store_clipped(self, vector: Self::Vector, to: &mut [f32]);
    /// The even and the odd ones of 32 values.
    fn deinterleave(self, values: [Self::Vector; 2]) -> [Self::Vector; 2];
    /// The reverse.
    fn interleave(self, values: [Self::Vector; 2]) -> [Self::Vector; 2];
    /// Word i holds lane i of both, rounded to bf16, the first below.
    fn store_pairs(self, first: Self::Vector, second: Self::Vector, to: &mut [u32; LANES]);
    /// All lanes rounded to bf16, side by side.
    fn store_rounded(self, vector: Self::Vector, to: &mut [u16; LANES]);
}

/// Something to do with vectors.
pub(super) trait Work {
    fn run<L: Lanes>(self, lanes: L);
}

/// Does it with the best vectors of this CPU.
pub(super) fn dispatch(work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    if let Some(lanes) = avx512::Avx512::new() {
        return avx512::run(work, lanes);
    }
    simd!(work.run(Plain));
}

/// Arrays.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Lanes for Plain {
    type Vector = [f32; LANES];

    #[inline(always)]
    fn zero(self) -> Self::Vector {
        [0.0; LANES]
    }
    #[inline(always)]
    fn splat(self, value: f32) -> Self::Vector {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::Vector {
        *from
    }
    #[inline(always)]
    fn store(self, vector: Self::Vector, to: &mut [f32; LANES]) {
        *to = vector;
    }
    #[inline(always)]
    fn add(self, mut a: Self::Vector, b: Self::Vector) -> Self::Vector {
        (0..LANES).for_each(|i| a[i] += b[i]);
        a
    }
    #[inline(always)]
    fn sub(self, mut a: Self::Vector, b: Self::Vector) -> Self::Vector {
        (0..LANES).for_each(|i| a[i] -= b[i]);
        a
    }
    #[inline(always)]
    fn load_clipped(self, from: &[f32], at: isize) -> Self::Vector {
        let mut vector = [0.0; LANES];
        for (i, lane) in vector.iter_mut().enumerate() {
            *lane = usize::try_from(at + i as isize).ok().and_then(|at| from.get(at)).copied().unwrap_or(0.0);
        }
        vector
    }
    #[inline(always)]
    fn store_clipped(self, vector: Self::Vector, to: &mut [f32]) {
        to.iter_mut().zip(vector).for_each(|(to, value)| *to = value);
    }
    #[inline(always)]
    fn deinterleave(self, values: [Self::Vector; 2]) -> [Self::Vector; 2] {
        let values = values.as_flattened();
        let mut halves = [[0.0; LANES]; 2];
        for i in 0..LANES {
            (halves[0][i], halves[1][i]) = (values[2 * i], values[2 * i + 1]);
        }
        halves
    }
    #[inline(always)]
    fn interleave(self, halves: [Self::Vector; 2]) -> [Self::Vector; 2] {
        let mut values = [[0.0; LANES]; 2];
        for i in 0..LANES {
            (values.as_flattened_mut()[2 * i], values.as_flattened_mut()[2 * i + 1]) = (halves[0][i], halves[1][i]);
        }
        values
    }
    #[inline(always)]
    fn store_pairs(self, first: Self::Vector, second: Self::Vector, to: &mut [u32; LANES]) {
        (0..LANES).for_each(|i| to[i] = pair(first[i], second[i]));
    }
    #[inline(always)]
    fn store_rounded(self, vector: Self::Vector, to: &mut [u16; LANES]) {
        (0..LANES).for_each(|i| to[i] = pair(vector[i], 0.0) as u16);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use bregman_base::simd::Level;

    use super::{LANES, Lanes, Work};

    /// Proof that the CPU has the instructions.
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(());

    impl Avx512 {
        pub(super) fn new() -> Option<Self> {
            Level::Avx512Bf16.is_usable().then_some(Self(()))
        }
    }

    pub(super) fn run(work: impl Work, lanes: Avx512) {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
        fn compiled<W: Work>(work: W, lanes: Avx512) {
            work.run(lanes);
        }
        // SAFETY: `lanes` is the proof.
        unsafe { compiled(work, lanes) }
    }

    const EVEN: [u32; LANES] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];
    const ODD: [u32; LANES] = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31];
    const LOW: [u32; LANES] = [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];
    const HIGH: [u32; LANES] = [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31];
    /// Halves i and 16 + i in turn.
    const PAIRS: [u32; LANES] = {
        let mut words = [0; LANES];
        let mut i = 0;
        while i < LANES {
            words[i] = (i | (16 + i) << 16) as u32;
            i += 1;
        }
        words
    };

    impl Avx512 {
        #[inline(always)]
        fn index(self, index: &[u32; LANES]) -> __m512i {
            // SAFETY: AVX-512F, and 16 words to read.
            unsafe { _mm512_loadu_si512(index.as_ptr().cast()) }
        }
    }

    impl Lanes for Avx512 {
        type Vector = __m512;

        #[inline(always)]
        fn zero(self) -> __m512 {
            self.splat(0.0)
        }
        #[inline(always)]
        fn splat(self, value: f32) -> __m512 {
            // SAFETY: AVX-512F.
            unsafe { _mm512_set1_ps(value) }
        }
        #[inline(always)]
        fn load(self, from: &[f32; LANES]) -> __m512 {
            // SAFETY: AVX-512F, and 16 values to read.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        }
        #[inline(always)]
        fn store(self, vector: __m512, to: &mut [f32; LANES]) {
            // SAFETY: AVX-512F, and 16 values to write.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), vector) }
        }
        #[inline(always)]
        fn add(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: AVX-512F.
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        fn sub(self, a: __m512, b: __m512) -> __m512 {
            // SAFETY: AVX-512F.
            unsafe { _mm512_sub_ps(a, b) }
        }
        #[inline(always)]
        fn load_clipped(self, from: &[f32], at: isize) -> __m512 {
            let before = (-at).clamp(0, LANES as isize) as u32;
            let until = (from.len() as isize - at).clamp(0, LANES as isize) as u32;
            let mask = ((1u32 << until) - 1) & !((1u32 << before) - 1);
            // SAFETY: AVX-512F; lanes before and after the slice are masked out and not read.
            unsafe { _mm512_maskz_loadu_ps(mask as __mmask16, from.as_ptr().wrapping_offset(at)) }
        }
        #[inline(always)]
        fn store_clipped(self, vector: __m512, to: &mut [f32]) {
            let mask = (1u32 << to.len().min(LANES)) - 1;
            // SAFETY: AVX-512F; lanes past the slice are masked out and not written.
            unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), mask as __mmask16, vector) }
        }
        #[inline(always)]
        fn deinterleave(self, [a, b]: [__m512; 2]) -> [__m512; 2] {
            // SAFETY: AVX-512F.
            unsafe { [_mm512_permutex2var_ps(a, self.index(&EVEN), b), _mm512_permutex2var_ps(a, self.index(&ODD), b)] }
        }
        #[inline(always)]
        fn interleave(self, [a, b]: [__m512; 2]) -> [__m512; 2] {
            // SAFETY: AVX-512F.
            unsafe { [_mm512_permutex2var_ps(a, self.index(&LOW), b), _mm512_permutex2var_ps(a, self.index(&HIGH), b)] }
        }
        #[inline(always)]
        fn store_pairs(self, first: __m512, second: __m512, to: &mut [u32; LANES]) {
            // SAFETY: AVX-512F, BW and BF16, and 16 words to write; a vector of 32 bf16 is one of 16 words.
            unsafe {
                let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_permutexvar_epi16(self.index(&PAIRS), halves));
            }
        }
        #[inline(always)]
        fn store_rounded(self, vector: __m512, to: &mut [u16; LANES]) {
            // SAFETY: AVX-512F and BF16, and 16 halves to write; a vector of 16 bf16 is one of 16 halves.
            unsafe {
                _mm256_storeu_si256(
                    to.as_mut_ptr().cast(),
                    std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(vector)),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::Random;
    use super::*;

    /// What every operation makes of some values.
    struct Everything<'a> {
        values: &'a [f32; 2 * LANES],
        results: &'a mut Vec<u32>,
    }

    impl Work for Everything<'_> {
        fn run<L: Lanes>(self, lanes: L) {
            let (values, _) = self.values.as_chunks::<LANES>();
            let [a, b] = [lanes.load(&values[0]), lanes.load(&values[1])];
            let mut out = vec![lanes.zero(), lanes.splat(0.5), lanes.add(a, b), lanes.sub(a, b)];
            out.extend(lanes.deinterleave([a, b]));
            out.extend(lanes.interleave([a, b]));
            out.extend((-20..40).map(|at| lanes.load_clipped(self.values, at)));
            for vector in out {
                let mut stored = [0.0; LANES];
                lanes.store(vector, &mut stored);
                self.results.extend(stored.map(f32::to_bits));
            }
            for len in 0..=LANES {
                let mut stored = [7.0; LANES];
                lanes.store_clipped(a, &mut stored[..len]);
                self.results.extend(stored.map(f32::to_bits));
            }
            let (mut pairs, mut halves) = ([0; LANES], [0; LANES]);
            lanes.store_pairs(a, b, &mut pairs);
            lanes.store_rounded(a, &mut halves);
            self.results.extend(pairs);
            self.results.extend(halves.map(u32::from));
        }
    }

    #[test]
    fn the_best_vectors_of_this_cpu_do_what_arrays_do() {
        let mut random = Random::new(1);
        for _ in 0..20 {
            let values: [f32; 2 * LANES] = random.values(2 * LANES, 0.1).try_into().expect("two vectors");
            let (mut best, mut plain) = (Vec::new(), Vec::new());
            dispatch(Everything { values: &values, results: &mut best });
            Everything { values: &values, results: &mut plain }.run(Plain);
            assert_eq!(best, plain);
        }
    }
}
