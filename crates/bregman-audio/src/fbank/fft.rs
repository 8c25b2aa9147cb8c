//! The power spectra of several frames at once, one frame per SIMD lane.
//!
//! A real transform of length n is a complex one of length h = n/2 over z[i] = x[2i] + i·x[2i+1], then a split. Every
//! step is the same for all lanes, so nothing is shuffled inside a register, and a lane's result does not depend on its
//! neighbours.
//!
//! Decimation in frequency (Cooley & Tukey 1965; Gentleman & Sande 1966), in place, radix 4 as far as it goes, then 2
//! and odd primes. One stage of radix p and size m, q = m/p, turns every block of m values into p blocks of q:
//!
//! ```text
//! y[j + r·q] = w_m^{jr} · Σ_s w_p^{rs} · z[j + s·q],   j < q, r < p,   w_m = exp(−2πi/m)
//! ```
//!
//! It leaves frequency k at a digit-reversed index, which [`RealFft::place`] returns.

use std::f64::consts::TAU;

use pulp::Simd;

/// Tables for real transforms of one even length.
#[derive(Clone, Debug)]
pub(crate) struct RealFft {
    half: usize,
    stages: Vec<Stage>,
    /// The index of frequency k < h after the complex transform.
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

impl RealFft {
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
        Self {
            half,
            stages,
            places: (0..half).map(place).collect(),
            split: (0..=half / 2).map(|k| root(k, n_fft)).collect(),
        }
    }

    /// Vectors that a transform works on.
    pub(crate) fn len(&self) -> usize {
        2 * self.half
    }

    /// The index of the vector for sample n of the frames.
    #[inline(always)]
    pub(crate) fn input(&self, n: usize) -> usize {
        n / 2 + n % 2 * self.half
    }

    /// The index of the vector with |X[k]|² after [`RealFft::power`], k ≤ n/2.
    pub(crate) fn place(&self, k: usize) -> u32 {
        if k == self.half { self.half as u32 } else { self.places[k] }
    }

    /// From frames with sample n in vector [`RealFft::input`]`(n)` of `work` to their power spectra, frequency k in
    /// `work[place(k)]`.
    #[inline(always)]
    pub(crate) fn power<S: Simd>(&self, simd: S, work: &mut [S::f32s]) {
        let (re, im) = work[..2 * self.half].split_at_mut(self.half);
        for stage in &self.stages {
            if stage.radix == 4 && stage.size == 4 {
                last_radix_4(simd, re, im);
                continue;
            }
            for (re, im) in re.chunks_exact_mut(stage.size).zip(im.chunks_exact_mut(stage.size)) {
                if stage.radix == 4 { stage.radix_4(simd, re, im) } else { stage.any_radix(simd, re, im) }
            }
        }
        self.split(simd, re, im);
    }

    /// From the complex transform Z to |X[k]|² with X[k] = E + w·O, X[h − k] = conj(E − w·O), E, O = (Z[k] ± conj Z[h −
    /// k]) / 2 (1, i).
    #[inline(always)]
    fn split<S: Simd>(&self, simd: S, re: &mut [S::f32s], im: &mut [S::f32s]) {
        let half = simd.splat_f32s(0.5);
        let (sum, difference) = (simd.add_f32s(re[0], im[0]), simd.sub_f32s(re[0], im[0]));
        (re[0], im[0]) = (simd.mul_f32s(sum, sum), simd.mul_f32s(difference, difference));
        for k in 1..=self.half / 2 {
            let (a, b) = (self.places[k] as usize, self.places[self.half - k] as usize);
            let (a_re, a_im, b_re, b_im) = (re[a], im[a], re[b], im[b]);
            let even = Pair {
                re: simd.mul_f32s(half, simd.add_f32s(a_re, b_re)),
                im: simd.mul_f32s(half, simd.sub_f32s(a_im, b_im)),
            };
            let odd = Pair {
                re: simd.mul_f32s(half, simd.add_f32s(a_im, b_im)),
                im: simd.mul_f32s(half, simd.sub_f32s(b_re, a_re)),
            };
            let turned = odd.times(simd, self.split[k]);
            let (low, high) = (even.plus(simd, turned), even.minus(simd, turned));
            re[a] = simd.mul_add_e_f32s(low.re, low.re, simd.mul_f32s(low.im, low.im));
            re[b] = simd.mul_add_e_f32s(high.re, high.re, simd.mul_f32s(high.im, high.im));
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

    #[inline(always)]
    fn store(self, re: &mut S::f32s, im: &mut S::f32s) {
        (*re, *im) = (self.re, self.im);
    }

    /// Times −i.
    #[inline(always)]
    fn turned(self, simd: S) -> Self {
        Self { re: self.im, im: simd.neg_f32s(self.re) }
    }

    #[inline(always)]
    fn times(self, simd: S, factor: [f32; 2]) -> Self {
        let (re, im) = (simd.splat_f32s(factor[0]), simd.splat_f32s(factor[1]));
        Self {
            re: simd.negate_mul_add_e_f32s(self.im, im, simd.mul_f32s(self.re, re)),
            im: simd.mul_add_e_f32s(self.re, im, simd.mul_f32s(self.im, re)),
        }
    }
}

impl Stage {
    #[inline(always)]
    fn radix_4<S: Simd>(&self, simd: S, re: &mut [S::f32s], im: &mut [S::f32s]) {
        let quarter = self.size / 4;
        let ([re_0, re_1, re_2, re_3], [im_0, im_1, im_2, im_3]) = (quarters(re, quarter), quarters(im, quarter));
        for (j, twiddles) in self.twiddles.as_chunks::<3>().0.iter().enumerate() {
            let (a, b) = (Pair::<S> { re: re_0[j], im: im_0[j] }, Pair { re: re_1[j], im: im_1[j] });
            let (c, d) = (Pair::<S> { re: re_2[j], im: im_2[j] }, Pair { re: re_3[j], im: im_3[j] });
            let [y_0, y_1, y_2, y_3] = fourier_4(simd, [a, b, c, d]);
            y_0.store(&mut re_0[j], &mut im_0[j]);
            y_1.times(simd, twiddles[0]).store(&mut re_1[j], &mut im_1[j]);
            y_2.times(simd, twiddles[1]).store(&mut re_2[j], &mut im_2[j]);
            y_3.times(simd, twiddles[2]).store(&mut re_3[j], &mut im_3[j]);
        }
    }

    /// The defining sum: correct for every radix, fast only for small ones.
    #[inline(always)]
    fn any_radix<S: Simd>(&self, simd: S, re: &mut [S::f32s], im: &mut [S::f32s]) {
        let (radix, quotient) = (self.radix, self.size / self.radix);
        let mut z = vec![Pair::<S> { re: simd.splat_f32s(0.0), im: simd.splat_f32s(0.0) }; radix];
        for j in 0..quotient {
            for (s, z) in z.iter_mut().enumerate() {
                *z = Pair { re: re[j + s * quotient], im: im[j + s * quotient] };
            }
            for r in 0..radix {
                let mut sum = z[0];
                for (s, z) in z.iter().enumerate().skip(1) {
                    sum = sum.plus(simd, z.times(simd, self.roots[r * s % radix]));
                }
                if r > 0 {
                    sum = sum.times(simd, self.twiddles[j * (radix - 1) + r - 1]);
                }
                sum.store(&mut re[j + r * quotient], &mut im[j + r * quotient]);
            }
        }
    }
}

/// The stage of radix 4 and size 4: its twiddles are 1.
#[inline(always)]
fn last_radix_4<S: Simd>(simd: S, re: &mut [S::f32s], im: &mut [S::f32s]) {
    for ([re_0, re_1, re_2, re_3], [im_0, im_1, im_2, im_3]) in
        re.as_chunks_mut().0.iter_mut().zip(im.as_chunks_mut().0)
    {
        let (a, b) = (Pair::<S> { re: *re_0, im: *im_0 }, Pair { re: *re_1, im: *im_1 });
        let (c, d) = (Pair::<S> { re: *re_2, im: *im_2 }, Pair { re: *re_3, im: *im_3 });
        let [y_0, y_1, y_2, y_3] = fourier_4(simd, [a, b, c, d]);
        y_0.store(re_0, im_0);
        y_1.store(re_1, im_1);
        y_2.store(re_2, im_2);
        y_3.store(re_3, im_3);
    }
}

/// The Fourier transform of four values.
#[inline(always)]
fn fourier_4<S: Simd>(simd: S, [a, b, c, d]: [Pair<S>; 4]) -> [Pair<S>; 4] {
    let (even, odd) = (a.plus(simd, c), a.minus(simd, c));
    let (even_2, odd_2) = (b.plus(simd, d), b.minus(simd, d).turned(simd));
    [even.plus(simd, even_2), odd.plus(simd, odd_2), even.minus(simd, even_2), odd.minus(simd, odd_2)]
}

#[inline(always)]
fn quarters<T>(values: &mut [T], quarter: usize) -> [&mut [T]; 4] {
    let (a, values) = values.split_at_mut(quarter);
    let (b, values) = values.split_at_mut(quarter);
    let (c, d) = values.split_at_mut(quarter);
    [a, b, c, &mut d[..quarter]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_base::simd;
    use pulp::WithSimd;
    use realfft::RealFftPlanner;

    struct Run<'a>(&'a RealFft, &'a [f32]);

    impl WithSimd for Run<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Vec<f32> {
            let Self(plan, samples) = self;
            let mut work = vec![simd.splat_f32s(0.0); plan.len()];
            samples.iter().enumerate().for_each(|(n, &x)| work[plan.input(n)] = simd.splat_f32s(x));
            plan.power(simd, &mut work);
            (0..=samples.len() / 2).map(|k| simd.reduce_max_f32s(work[plan.place(k) as usize])).collect()
        }
    }

    #[test]
    fn power_spectrum_equals_realfft_for_every_even_length() {
        for n in (2..=130).step_by(2).chain([400, 512, 1024, 2048, 2 * 31 * 37]) {
            let samples: Vec<f32> = (0..n).map(|i| ((i * i * 31 + 7 * i) % 257) as f32 / 128.0 - 1.0).collect();
            let fft = RealFftPlanner::<f64>::new().plan_fft_forward(n);
            let mut spectrum = fft.make_output_vec();
            fft.process(&mut samples.iter().map(|&x| x.into()).collect::<Vec<f64>>(), &mut spectrum)
                .expect("lengths agree");
            let ours = simd::arch().dispatch(Run(&RealFft::new(n), &samples));
            let scale = n as f64;
            for (k, (ours, reference)) in ours.iter().zip(&spectrum).enumerate() {
                let error = (f64::from(*ours) - reference.norm_sqr()).abs();
                assert!(
                    error < 1e-5 * scale * (1.0 + reference.norm_sqr() / scale),
                    "n {n}, k {k}: {ours} for {}",
                    reference.norm_sqr()
                );
            }
        }
    }
}
