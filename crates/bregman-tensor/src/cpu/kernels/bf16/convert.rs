//! f32 ↔ bf16, the upper half of an f32: same range, 8 significant bits. Rounding is to nearest, ties to even, on every
//! CPU; NaN stays NaN.

use crate::cpu::math::simd;

/// The bf16 nearest to `value`, as the upper half of a word whose lower half is zero.
#[inline(always)]
pub(super) fn round_word(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    let quiet_nan = bits | 0x0040_0000;
    (if bits & 0x7FFF_FFFF > 0x7F80_0000 { quiet_nan } else { rounded }) & 0xFFFF_0000
}

/// The bf16 nearest to `value`, as f32.
#[inline(always)]
pub(in super::super) fn round(value: f32) -> f32 {
    f32::from_bits(round_word(value))
}

/// Two values as neighbouring bf16, the first at the lower address.
#[inline(always)]
pub(in super::super) fn pair(first: f32, second: f32) -> u32 {
    round_word(first) >> 16 | round_word(second)
}

/// 32 neighbouring values.
#[inline(always)]
pub(in super::super) fn pairs(values: &[f32; 32]) -> [u32; 16] {
    let mut narrow = [0u16; 32];
    for (to, &from) in narrow.iter_mut().zip(values) {
        *to = ((round_word(from) >> 16) as u16).to_le();
    }
    bytemuck::cast(narrow)
}

/// The bf16 nearest to each value.
///
/// # Panics
/// If the lengths differ.
pub fn to_bf16(from: &[f32], to: &mut [u16]) {
    assert_eq!(from.len(), to.len(), "lengths of a conversion");
    simd!(from.iter().zip(to).for_each(|(&from, to)| *to = (round_word(from) >> 16) as u16));
}

/// The f32 equal to each bf16.
///
/// # Panics
/// If the lengths differ.
pub fn to_f32(from: &[u16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "lengths of a conversion");
    simd!(from.iter().zip(to).for_each(|(&from, to)| *to = f32::from_bits(u32::from(from) << 16)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nearest by trying the two neighbours; ties to the even one.
    fn nearest(value: f32) -> u16 {
        let below = (value.to_bits() >> 16) as u16;
        let widen = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
        // one step past the largest bf16 counts as 2^128, as in IEEE rounding
        let distance = |bits: u16| {
            (if widen(bits).is_infinite() { 2f64.powi(128).copysign(widen(bits)) } else { widen(bits) }
                - f64::from(value))
            .abs()
        };
        match distance(below).total_cmp(&distance(below + 1)) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Greater => below + 1,
            std::cmp::Ordering::Equal => below + (below & 1),
        }
    }

    #[test]
    fn pairs_are_packed_with_the_first_value_below() {
        let values = std::array::from_fn(|i| i as f32);
        assert_eq!(pairs(&values), std::array::from_fn(|i| pair(values[2 * i], values[2 * i + 1])));
    }

    #[test]
    fn every_upper_half_rounds_to_the_nearest_even_neighbour() {
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF] {
                let value = f32::from_bits(u32::from(upper) << 16 | lower);
                let mut ours = [0];
                to_bf16(&[value], &mut ours);
                let mut back = [0.0];
                to_f32(&ours, &mut back);
                if value.is_nan() {
                    assert!(back[0].is_nan());
                } else if value.is_infinite() {
                    assert_eq!(back[0], value);
                } else {
                    assert_eq!(ours[0], nearest(value), "{value:e}");
                }
            }
        }
    }
}
