//! Number formats of stored weights.

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use serde::{Deserialize, Serialize};

/// How a weight is stored. Inference computes in f32 whatever it is, but for layers in `Int8` whose [input's range is
/// known](super::Layer::input_range); biases, scales and shifts are always stored in f32.
///
/// | format | bytes | error |
/// | --- | --- | --- |
/// | `F32` | 4 | none |
/// | `F16` | 2 | 2⁻¹¹ of the value |
/// | `Int8` | 1, and 4 per output | 1/254 of the largest weight of its output |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueFormat {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Whole numbers from −127 to 127 times a scale per output.
    Int8,
}

impl ValueFormat {
    /// Bytes of one weight.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Int8 => 1,
        }
    }

    /// Bytes of `live` weights in `rows` outputs.
    pub(super) fn size(self, live: usize, rows: usize) -> Option<usize> {
        let scales = if self == Self::Int8 { rows.checked_mul(4)? } else { 0 };
        live.checked_mul(self.bytes())?.checked_add(scales)
    }

    /// Appends `values`, which belong to `rows` (rising); `None` where one does not fit the format.
    pub(super) fn encode(
        self,
        values: &[f32],
        row_of: impl Fn(usize) -> usize,
        rows: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match self {
            Self::F32 => values.iter().for_each(|value| out.extend(value.to_le_bytes())),
            Self::F16 => {
                for &value in values {
                    let half = f16::from_f32(value);
                    if !half.is_finite() {
                        return None;
                    }
                    out.extend(half.to_le_bytes());
                }
            }
            Self::Int8 => {
                let mut scales = vec![0f32; rows];
                values
                    .iter()
                    .enumerate()
                    .for_each(|(i, value)| scales[row_of(i)] = scales[row_of(i)].max(value.abs() / 127.0));
                scales.iter().for_each(|scale| out.extend(scale.to_le_bytes()));
                let level = |(i, value): (usize, &f32)| {
                    let scale = scales[row_of(i)];
                    if scale > 0.0 { (value / scale).round().clamp(-127.0, 127.0) as i8 as u8 } else { 0 }
                };
                out.extend(values.iter().enumerate().map(level));
            }
        }
        Some(())
    }

    /// Value `i`, which belongs to output `row`, of bytes whose number [`ValueFormat::size`] gave.
    #[inline]
    pub(super) fn get(self, bytes: &[u8], rows: usize, i: usize, row: usize) -> f32 {
        match self {
            Self::F32 => f32_at(bytes, i),
            Self::F16 => f16::from_bits(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])).to_f32(),
            Self::Int8 => f32_at(bytes, row) * f32::from(bytes[4 * rows + i] as i8),
        }
    }

    /// Values `from ..` of output `row`, as many as there is room for; faster than one after the other.
    pub(super) fn get_all(self, bytes: &[u8], rows: usize, from: usize, row: usize, to: &mut [f32]) {
        let (all, bytes) = (bytes, &bytes[self.bytes() * from..]);
        match self {
            Self::F32 => {
                for (to, bytes) in to.iter_mut().zip(bytes.as_chunks().0) {
                    *to = f32::from_le_bytes(*bytes);
                }
            }
            Self::F16 => {
                let mut halves = [f16::ZERO; 64];
                for (to, bytes) in to.chunks_mut(halves.len()).zip(bytes.as_chunks().0.chunks(halves.len())) {
                    let halves = &mut halves[..to.len()];
                    halves.iter_mut().zip(bytes).for_each(|(half, bytes)| *half = f16::from_le_bytes(*bytes));
                    halves.convert_to_f32_slice(to);
                }
            }
            Self::Int8 => {
                let scale = f32_at(all, row);
                to.iter_mut().zip(&bytes[4 * rows..]).for_each(|(to, &level)| *to = scale * f32::from(level as i8));
            }
        }
    }

    /// The whole numbers after the scales of `rows` outputs.
    pub(super) fn levels(self, bytes: &[u8], rows: usize) -> Option<&[u8]> {
        (self == Self::Int8).then(|| &bytes[4 * rows..])
    }
}

#[inline]
fn f32_at(bytes: &[u8], i: usize) -> f32 {
    f32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"))
}
