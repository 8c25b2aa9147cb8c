//! One tile of a sparse matrix in compressed rows: the unit that is refreshed, transposed and multiplied.
//!
//! Columns are numbered inside the tile, so 16 bits suffice and a non-zero costs 6 bytes, in a transpose 10.
//! ```text
//!  0 a 0 b      start   0 2 2 3
//!  0 0 0 0      column  1 3 0
//!  c 0 0 0      value   a b c
//! ```

use rayon::prelude::*;

/// Compressed rows; the vectors only grow, so a refresh allocates nothing once the non-zeros stop growing.
#[derive(Clone, Debug, Default)]
pub(super) struct Tile {
    /// Where each row begins in `column` and `value`; one more than rows.
    pub(super) start: Vec<u32>,
    pub(super) column: Vec<u16>,
    pub(super) value: Vec<f32>,
    /// Of a transpose: where each entry is in the tile that it was made from.
    source: Vec<u32>,
    /// Write positions of [`transpose_from`](Self::transpose_from), kept to avoid allocation.
    cursor: Vec<u32>,
}

/// Entries whose values a task takes.
const ENTRIES: usize = 4096;
/// Most columns a tile may have.
pub(super) const MAX_COLUMNS: usize = u16::MAX as usize;

impl Tile {
    /// Non-zeros.
    pub(super) fn nnz(&self) -> usize {
        self.value.len()
    }

    /// Rows in the tile.
    pub(super) fn rows(&self) -> usize {
        self.start.len().saturating_sub(1)
    }

    /// Takes the entries of the given rows of a dense matrix, each with its row of the support, where that is not zero;
    /// all have the same length. `-0.0` is a zero, NaN is not.
    pub(super) fn compress<'a>(&mut self, rows: impl Iterator<Item = [&'a [f32]; 2]>) {
        self.start.clear();
        self.column.clear();
        self.value.clear();
        self.start.push(0);
        for [row, support] in rows {
            debug_assert!(row.len() <= MAX_COLUMNS);
            append_entries(row, support, &mut self.column, &mut self.value);
            self.start.push(self.value.len() as u32);
        }
    }

    /// Takes the values of the entries anew from the rows that were compressed.
    pub(super) fn take_values<'a>(&mut self, row: impl Fn(usize) -> &'a [f32] + Sync) {
        take_values(&self.start, &self.column, 0, &mut self.value, &row);
    }

    /// Takes the values anew from the tile of which this is the transpose.
    pub(super) fn transpose_values(&mut self, other: &Tile) {
        let entries = self.value.par_iter_mut().zip(&self.source).with_min_len(ENTRIES);
        entries.for_each(|(value, &source)| *value = other.value[source as usize]);
    }

    /// Becomes the transpose of `other`, whose columns are `(channel, tap)`: here rows are channels and columns `(row,
    /// tap)`.
    pub(super) fn transpose_from(&mut self, other: &Tile, channels: usize, taps: usize) {
        // The common kernel sizes as constants: division by a variable would dominate.
        match taps as u16 {
            1 => self.counting_sort(other, channels, 1, |column| (column, 0)),
            3 => self.counting_sort(other, channels, 3, |column| (column / 3, column % 3)),
            5 => self.counting_sort(other, channels, 5, |column| (column / 5, column % 5)),
            9 => self.counting_sort(other, channels, 9, |column| (column / 9, column % 9)),
            taps => self.counting_sort(other, channels, taps, |column| (column / taps, column % taps)),
        }
    }

    /// Linear in the non-zeros; `split` takes a column of `other` apart into channel and tap.
    #[inline(always)]
    fn counting_sort(&mut self, other: &Tile, channels: usize, taps: u16, split: impl Fn(u16) -> (u16, u16)) {
        self.cursor.clear();
        self.cursor.resize(channels + 1, 0);
        for &column in &other.column {
            self.cursor[usize::from(split(column).0) + 1] += 1;
        }
        for channel in 0..channels {
            self.cursor[channel + 1] += self.cursor[channel];
        }
        self.start.clear();
        self.start.extend_from_slice(&self.cursor);
        self.column.resize(other.nnz(), 0);
        self.value.resize(other.nnz(), 0.0);
        self.source.resize(other.nnz(), 0);
        for (row, range) in other.start.windows(2).enumerate() {
            for source in range[0]..range[1] {
                let (channel, tap) = split(other.column[source as usize]);
                let at = &mut self.cursor[usize::from(channel)];
                self.column[*at as usize] = row as u16 * taps + tap;
                self.value[*at as usize] = other.value[source as usize];
                self.source[*at as usize] = source;
                *at += 1;
            }
        }
    }
}

/// Takes the values of the entries of some rows, which begin at `start` and the first of which is row `first`.
fn take_values<'a>(
    start: &[u32],
    column: &[u16],
    first: usize,
    value: &mut [f32],
    row: &(impl Fn(usize) -> &'a [f32] + Sync),
) {
    let rows = start.len().saturating_sub(1);
    if rows > 1 && value.len() > ENTRIES {
        let half = rows / 2;
        let (column, later_column) = column.split_at((start[half] - start[0]) as usize);
        let (value, later_value) = value.split_at_mut(column.len());
        rayon::join(
            || take_values(&start[..=half], column, first, value, row),
            || take_values(&start[half..], later_column, first + half, later_value, row),
        );
        return;
    }
    for (at, ends) in start.windows(2).enumerate() {
        let row = row(first + at);
        let range = (ends[0] - start[0]) as usize..(ends[1] - start[0]) as usize;
        let entries = column[range.clone()].iter().zip(&mut value[range]);
        entries.for_each(|(&column, value)| *value = row[usize::from(column)]);
    }
}

/// Appends index and value of the entries of `row` where `support` is not zero to two vectors of the same length.
fn append_entries(row: &[f32], support: &[f32], columns: &mut Vec<u16>, values: &mut Vec<f32>) {
    assert_eq!(columns.len(), values.len(), "one column per value");
    assert_eq!(row.len(), support.len(), "one place of the support per entry");
    #[cfg(target_arch = "x86_64")]
    if bregman_base::simd::Level::Avx512.is_usable() {
        columns.reserve(row.len() + SLACK);
        values.reserve(row.len() + SLACK);
        // SAFETY: the CPU has both features, the slices and the vectors are of one length each, and there is room.
        #[allow(unsafe_code)]
        unsafe {
            append_entries_avx512(row, support, columns, values)
        };
        return;
    }
    append_entries_portable(row, support, columns, values);
}

fn append_entries_portable(row: &[f32], support: &[f32], columns: &mut Vec<u16>, values: &mut Vec<f32>) {
    for ((block, kept), base) in row.chunks(8).zip(support.chunks(8)).zip((0..).step_by(8)) {
        // Most blocks are empty: one test for eight weights.
        if kept.iter().fold(0, |bits, kept| bits | kept.to_bits() << 1) != 0 {
            for (i, (&value, _)) in block.iter().zip(kept).enumerate().filter(|(_, (_, kept))| **kept != 0.0) {
                columns.push(base + i as u16);
                values.push(value);
            }
        }
    }
}

/// Room past the last entry, where whole vectors are stored.
#[cfg(target_arch = "x86_64")]
const SLACK: usize = 16;

/// # Safety
/// The CPU has AVX-512F and POPCNT; `support` is as long as `row`; both vectors have the same length and room for
/// `row.len() + SLACK` more elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt")]
#[allow(unsafe_code)]
unsafe fn append_entries_avx512(row: &[f32], support: &[f32], columns: &mut Vec<u16>, values: &mut Vec<f32>) {
    use std::arch::x86_64::*;
    let mut len = values.len();
    debug_assert!(values.capacity() >= len + row.len() + SLACK && columns.capacity() >= len + row.len() + SLACK);
    let mut index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (block, kept) in row.chunks(16).zip(support.chunks(16)) {
        let inside = (u16::MAX as u32 >> (16 - block.len())) as __mmask16;
        // SAFETY: masked lanes are not read, the others are inside `block` and `kept`, which are equally long.
        let [weights, kept] = unsafe { [block, kept].map(|from| _mm512_maskz_loadu_ps(inside, from.as_ptr())) };
        let mask = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(kept, _mm512_setzero_ps());
        if mask != 0 {
            let kept = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(mask, index));
            // SAFETY: at most `row.len()` elements are kept, so `len + 16` stays inside the reserved capacity.
            unsafe {
                _mm512_storeu_ps(values.as_mut_ptr().add(len), _mm512_maskz_compress_ps(mask, weights));
                _mm256_storeu_si256(columns.as_mut_ptr().add(len).cast(), kept);
            }
            len += mask.count_ones() as usize;
        }
        index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
    }
    // SAFETY: the first `len` elements are written, and `len` is within the capacity.
    unsafe {
        values.set_len(len);
        columns.set_len(len);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reference::Random;
    use super::*;

    #[test]
    fn the_fast_and_the_portable_compression_agree() {
        let mut random = Random::new(1);
        for len in [0, 1, 7, 15, 16, 17, 301] {
            for zeros in [0.0, 0.5, 0.95, 1.0] {
                let [row, other] = [(); 2].map(|()| random.values(len, zeros));
                for support in [&row, &other] {
                    let (mut columns, mut values) = (Vec::new(), Vec::new());
                    append_entries(&row, support, &mut columns, &mut values);
                    let (mut plain_columns, mut plain_values) = (Vec::new(), Vec::new());
                    append_entries_portable(&row, support, &mut plain_columns, &mut plain_values);
                    assert_eq!(columns.len(), support.iter().filter(|x| **x != 0.0).count());
                    assert_eq!((columns, values), (plain_columns, plain_values));
                }
            }
        }
    }
}
