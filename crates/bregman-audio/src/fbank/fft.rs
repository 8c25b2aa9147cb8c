//! The power spectra of several frames at once, one frame per SIMD lane.
//!
//! A real transform of length n is a complex one of length h = n/2 over z[i] = x[2i] + i·x[2i+1], then a split. Every step is the
//! same for all lanes, so nothing is shuffled inside a register, and a lane's result does not depend on its neighbours.
//!
//! Decimation in frequency (Cooley & Tukey 1965; Gentleman & Sande 1966), in place, radix 4 as far as it goes, then 2 and odd
//! primes. One stage of radix p and size m, q = m/p, turns every block of m values into p blocks of q:
//!
//! ```text
//! y[j + r·q] = w_m^{jr} · Σ_s w_p^{rs} · z[j + s·q],   j < q, r < p,   w_m = exp(−2πi/m)
//! ```
//!
//! It leaves frequency k at a digit-reversed place; [`Plan::place`] says where, and the reader of the spectrum looks there.

use std::f64::consts::TAU;

use pulp::Simd;

/// Tables for real transforms of one even length.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    half: usize,
    stages: Vec<Stage>,
    /// Where frequency k < h of the complex transform ends up.
    places: Vec<u32>,
    /// exp(−2πik/n) for k ≤ h/2.
    split: Vec<[f32; 2]>,
}

#[derive(Clone, Debug)]
struct Stage {
    radix: usize,
    size: usize,
    /// w_size^{jr} for every j < size/radix, r = 1 … radix − 1.
    twiddles: Vec<[f32; 2]>,
    /// w_radix^{i}, for odd radices.
    roots: Vec<[f32; 2]>,
}

fn root(power: usize, order: usize) -> [f32; 2] {
    let angle = -TAU * (power % order) as f64 / order as f64;
    [angle.cos() as f32, angle.sin() as f32]
}

fn radices(mut length: usize) -> Vec<usize> {
    let mut radices = Vec::new();
    for radix in [4, 2].into_iter().chain((3..).step_by(2)) {
        while length.is_multiple_of(radix) {
            radices.push(radix);
            length /= radix;
        }
        if length == 1 {
            break;
        }
    }
    radices
}

impl Plan {
    /// # Panics
    /// If `n_fft` is odd or zero.
    pub(crate) fn new(n_fft: usize) -> Self {
        assert!(n_fft > 0 && n_fft.is_multiple_of(2), "the FFT length is even");
        let half = n_fft / 2;
        let radices = radices(half);
        let mut size = half;
        let mut stages = Vec::with_capacity(radices.len());
        for &radix in &radices {
            let twiddles = (0..size / radix).flat_map(|j| (1..radix).map(move |r| root(j * r, size))).collect();
            stages.push(Stage { radix, size, twiddles, roots: (0..radix).map(|i| root(i, radix)).collect() });
            size /= radix;
        }
        let place = |mut k: usize| {
            let (mut place, mut size) = (0, half);
            for radix in &radices {
                size /= radix;
                place += k % radix * size;
                k /= radix;
            }
            place as u32
        };
        Self { half, stages, places: (0..half).map(place).collect(), split: (0..=half / 2).map(|k| root(k, n_fft)).collect() }
    }

    /// Vectors that a transform works on.
    pub(crate) fn len(&self) -> usize {
        2 * self.half
    }

    /// The vector that holds |X[k]|² after [`Plan::power`], k ≤ n/2.
    pub(crate) fn place(&self, k: usize) -> u32 {
        if k == self.half { self.half as u32 } else { self.places[k] }
    }

    /// Power spectra of the frames whose sample n, for all lanes, is `sample(n)`; frequency k is left in `work[place(k)]`.
    #[inline(always)]
    pub(crate) fn power<S: Simd>(&self, simd: S, sample: impl Fn(usize) -> S::f32s, work: &mut [S::f32s]) {
        let (re, im) = work[..2 * self.half].split_at_mut(self.half);
        let Some((first, rest)) = self.stages.split_first() else {
            // n = 2: the two values are the transform.
            (re[0], im[0]) = (sample(0), sample(1));
            return self.split(simd, re, im);
        };
        first.run(simd, |i| (sample(2 * i), sample(2 * i + 1)), re, im);
        for stage in rest {
            for (re, im) in re.chunks_exact_mut(stage.size).zip(im.chunks_exact_mut(stage.size)) {
                stage.run_in_place(simd, re, im);
            }
        }
        self.split(simd, re, im);
    }

    /// From the complex transform Z to |X[k]|² with X[k] = E + w·O, X[h − k] = conj(E − w·O), E, O = (Z[k] ± conj Z[h − k]) / 2 (1, i).
    #[inline(always)]
    fn split<S: Simd>(&self, simd: S, re: &mut [S::f32s], im: &mut [S::f32s]) {
        let square = |x| simd.mul_f32s(x, x);
        let half = simd.splat_f32s(0.5);
        let (sum, difference) = (simd.add_f32s(re[0], im[0]), simd.sub_f32s(re[0], im[0]));
        (re[0], im[0]) = (square(sum), square(difference));
        for k in 1..=self.half / 2 {
            let (a, b) = (self.places[k] as usize, self.places[self.half - k] as usize);
            let (a_re, a_im, b_re, b_im) = (re[a], im[a], re[b], im[b]);
            let even = Pair { re: simd.mul_f32s(half, simd.add_f32s(a_re, b_re)), im: simd.mul_f32s(half, simd.sub_f32s(a_im, b_im)) };
            let odd = Pair { re: simd.mul_f32s(half, simd.add_f32s(a_im, b_im)), im: simd.mul_f32s(half, simd.sub_f32s(b_re, a_re)) };
            let turned = odd.times(simd, self.split[k]);
            let (low, high) = (even.plus(simd, turned), even.minus(simd, turned));
            re[a] = simd.mul_add_e_f32s(low.re, low.re, square(low.im));
            re[b] = simd.mul_add_e_f32s(high.re, high.re, square(high.im));
        }
    }
}

/// Complex numbers, one per lane.
struct Pair<S: Simd> {
    re: S::f32s,
    im: S::f32s,
}

impl<S: Simd> Clone for Pair<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Simd> Copy for Pair<S> {}

impl<S: Simd> Pair<S> {
    #[inline(always)]
    fn plus(self, simd: S, other: Self) -> Self {
        Self { re: simd.add_f32s(self.re, other.re), im: simd.add_f32s(self.im, other.im) }
    }

    #[inline(always)]
    fn minus(self, simd: S, other: Self) -> Self {
        Self { re: simd.sub_f32s(self.re, other.re), im: simd.sub_f32s(self.im, other.im) }
    }

    /// Times −i.
    #[inline(always)]
    fn turned(self, simd: S) -> Self {
        Self { re: self.im, im: simd.neg_f32s(self.re) }
    }

    #[inline(always)]
    fn times(self, simd: S, factor: [f32; 2]) -> Self {
        let [re, im] = factor.map(|x| simd.splat_f32s(x));
        Self {
            re: simd.negate_mul_add_e_f32s(self.im, im, simd.mul_f32s(self.re, re)),
            im: simd.mul_add_e_f32s(self.re, im, simd.mul_f32s(self.im, re)),
        }
    }
}

impl Stage {
    #[inline(always)]
    fn run_in_place<S: Simd>(&self, simd: S, re: &mut [S::f32s], im: &mut [S::f32s]) {
        let quotient = self.size / self.radix;
        match self.radix {
            4 => {
                for (j, twiddles) in self.twiddles.as_chunks().0.iter().enumerate() {
                    let z = [0, 1, 2, 3].map(|s| Pair { re: re[j + s * quotient], im: im[j + s * quotient] });
                    store(radix_4(simd, z, twiddles), re, im, j, quotient);
                }
            }
            _ => self.any_radix(simd, re, im),
        }
    }

    /// The first stage: it reads `input` and writes to `re`, `im`.
    #[inline(always)]
    fn run<S: Simd>(&self, simd: S, input: impl Fn(usize) -> (S::f32s, S::f32s), re: &mut [S::f32s], im: &mut [S::f32s]) {
        if self.radix == 4 {
            let quotient = self.size / 4;
            for (j, twiddles) in self.twiddles.as_chunks().0.iter().enumerate() {
                let z = [0, 1, 2, 3].map(|s| {
                    let (re, im) = input(j + s * quotient);
                    Pair { re, im }
                });
                store(radix_4(simd, z, twiddles), re, im, j, quotient);
            }
        } else {
            (0..self.size).for_each(|i| (re[i], im[i]) = input(i));
            self.any_radix(simd, re, im);
        }
    }

    /// The defining sum. Correct for every radix, meant for small ones.
    #[inline(always)]
    fn any_radix<S: Simd>(&self, simd: S, re: &mut [S::f32s], im: &mut [S::f32s]) {
        let (radix, quotient) = (self.radix, self.size / self.radix);
        let mut z = vec![Pair::<S> { re: simd.splat_f32s(0.0), im: simd.splat_f32s(0.0) }; radix];
        for j in 0..quotient {
            (0..radix).for_each(|s| z[s] = Pair { re: re[j + s * quotient], im: im[j + s * quotient] });
            for r in 0..radix {
                let mut sum = (1..radix).fold(z[0], |sum, s| sum.plus(simd, z[s].times(simd, self.roots[r * s % radix])));
                if r > 0 {
                    sum = sum.times(simd, self.twiddles[j * (radix - 1) + r - 1]);
                }
                (re[j + r * quotient], im[j + r * quotient]) = (sum.re, sum.im);
            }
        }
    }
}

#[inline(always)]
fn store<S: Simd>(y: [Pair<S>; 4], re: &mut [S::f32s], im: &mut [S::f32s], j: usize, quotient: usize) {
    for (r, y) in y.into_iter().enumerate() {
        (re[j + r * quotient], im[j + r * quotient]) = (y.re, y.im);
    }
}

#[inline(always)]
fn radix_4<S: Simd>(simd: S, z: [Pair<S>; 4], twiddles: &[[f32; 2]; 3]) -> [Pair<S>; 4] {
    let [a, b, c, d] = z;
    let (even, odd) = (a.plus(simd, c), a.minus(simd, c));
    let (even_2, odd_2) = (b.plus(simd, d), b.minus(simd, d).turned(simd));
    [
        even.plus(simd, even_2),
        odd.plus(simd, odd_2).times(simd, twiddles[0]),
        even.minus(simd, even_2).times(simd, twiddles[1]),
        odd.minus(simd, odd_2).times(simd, twiddles[2]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, WithSimd};
    use realfft::RealFftPlanner;

    struct Run<'a>(&'a Plan, &'a [f32]);

    impl WithSimd for Run<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
            let Self(plan, samples) = self;
            let mut work = vec![simd.splat_f32s(0.0); plan.len()];
            plan.power(simd, |n| simd.splat_f32s(samples[n]), &mut work);
            (0..=samples.len() / 2).map(|k| simd.reduce_max_f32s(work[plan.place(k) as usize])).collect()
        }
    }

    #[test]
    fn power_spectrum_equals_realfft_for_every_even_length() {
        for n in (2..=130).step_by(2).chain([400, 512, 1024, 2048, 2 * 31 * 37]) {
            let samples: Vec<f32> = (0..n).map(|i| ((i * i * 31 + 7 * i) % 257) as f32 / 128.0 - 1.0).collect();
            let fft = RealFftPlanner::<f64>::new().plan_fft_forward(n);
            let mut spectrum = fft.make_output_vec();
            fft.process(&mut samples.iter().map(|&x| x.into()).collect::<Vec<f64>>(), &mut spectrum).expect("lengths agree");
            let ours = Arch::new().dispatch(Run(&Plan::new(n), &samples));
            let scale = n as f64;
            for (k, (ours, reference)) in ours.iter().zip(&spectrum).enumerate() {
                let error = (f64::from(*ours) - reference.norm_sqr()).abs();
                assert!(error < 1e-5 * scale * (1.0 + reference.norm_sqr() / scale), "n {n}, k {k}: {ours} for {}", reference.norm_sqr());
            }
        }
    }
}
