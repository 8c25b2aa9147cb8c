//! Natural logarithm of a vector, from the exponent and a polynomial.

use pulp::Simd;

/// Bits of √½, the lower end of the interval that the mantissa is brought to.
const SQRT_HALF: u32 = 0x3f35_04f3;
/// Minimax polynomial for (ln(1 + t) − t + t²/2) / t³ on [√½ − 1, √2 − 1] (Moshier's Cephes `logf`).
const POLYNOMIAL: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_8e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];

/// ln(x) to about one unit in the last place, for positive normal x.
#[inline(always)]
pub(crate) fn ln<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (shift, one) = (simd.splat_u32s(23), simd.splat_u32s(0x3f80_0000));
    // x = 2^e · m with m in [√½, √2): moving √½ to 1 puts e + 127 into the exponent field.
    let moved = simd.add_u32s(simd.transmute_u32s_f32s(x), simd.splat_u32s(0x3f80_0000 - SQRT_HALF));
    let exponent = simd.wrapping_dyn_shr_u32s(moved, shift);
    let mantissa = simd.add_u32s(simd.and_u32s(moved, simd.splat_u32s(0x007f_ffff)), simd.splat_u32s(SQRT_HALF));
    // The integer e + 127 as a float, through the mantissa of 2^23.
    let e = simd.transmute_f32s_u32s(simd.or_u32s(exponent, simd.splat_u32s(0x4b00_0000)));
    let e = simd.sub_f32s(e, simd.splat_f32s(8_388_608.0 + 127.0));
    let t = simd.sub_f32s(simd.transmute_f32s_u32s(mantissa), simd.transmute_f32s_u32s(one));
    let mut sum = simd.splat_f32s(POLYNOMIAL[0]);
    for c in &POLYNOMIAL[1..] {
        sum = simd.mul_add_e_f32s(sum, t, simd.splat_f32s(*c));
    }
    let square = simd.mul_f32s(t, t);
    // ln 2 in two parts, the first with trailing zeros, so that e · ln 2 is exact.
    let tail = simd.mul_add_e_f32s(e, simd.splat_f32s(-2.121_944_4e-4), simd.mul_f32s(simd.mul_f32s(sum, square), t));
    let tail = simd.mul_add_e_f32s(square, simd.splat_f32s(-0.5), tail);
    simd.mul_add_e_f32s(e, simd.splat_f32s(0.693_359_4), simd.add_f32s(t, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_base::simd;
    use pulp::WithSimd;

    struct Worst;

    impl WithSimd for Worst {
        type Output = f64;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f64 {
            // Every 1009th positive normal number.
            let numbers = (0x0080_0000..0x7f80_0000u32).step_by(1009).map(f32::from_bits);
            numbers.fold(0.0, |worst, x| {
                let (ours, exact) = (f64::from(simd.reduce_max_f32s(ln(simd, simd.splat_f32s(x)))), f64::from(x).ln());
                worst.max((ours - exact).abs() / exact.abs().max(1.0))
            })
        }
    }

    #[test]
    fn logarithm_is_exact_to_two_units_in_the_last_place() {
        let worst = simd::arch().dispatch(Worst);
        assert!(worst < 1.5e-7, "relative error {worst}");
    }
}
