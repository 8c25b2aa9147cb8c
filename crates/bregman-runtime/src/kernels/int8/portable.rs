//! Plain loops, which compilers vectorize for any CPU.

use super::{FOUR, Rows, Sums};

/// # Safety
/// `rows.codes` is as its field says.
pub(super) unsafe fn sums(rows: Rows, sums: &mut [Sums]) {
    for (i, sums) in sums.iter_mut().enumerate() {
        sums.fill(0);
        for (offsets, levels) in rows.fours(i) {
            // SAFETY: as many codes as a row has sums may be read from every offset on.
            let codes: [&[i8; size_of::<Sums>() / 4]; FOUR] =
                std::array::from_fn(|k| unsafe { &*rows.codes.add(offsets[k] as usize).cast() });
            let levels = levels.map(i16::from);
            for (p, sum) in sums.iter_mut().enumerate().take(rows.width) {
                // two products fit 16 bits
                let pair = |k: usize| levels[k] * i16::from(codes[k][p]) + levels[k + 1] * i16::from(codes[k + 1][p]);
                *sum += i32::from(pair(0)) + i32::from(pair(2));
            }
        }
    }
}
