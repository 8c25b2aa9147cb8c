//! Every kernel against sums in 64 bits.

use proptest::prelude::*;

use super::*;

/// All that this CPU has, whatever `BREGMAN_SIMD` says.
fn kernels() -> Vec<Kernel> {
    let mut kernels = vec![Kernel::Portable];
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let vnni512 = has!("avx512f") && has!("avx512bw") && has!("avx512vnni") && has!("avx512vbmi");
        let found = [(Kernel::Vnni512, vnni512), (Kernel::Vnni256, has!("avxvnni")), (Kernel::Avx2, has!("avx2"))];
        kernels.extend(found.into_iter().filter(|&(_, has)| has).map(|(kernel, _)| kernel));
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        kernels.push(Kernel::Dot);
    }
    kernels
}

/// Rows of columns and levels, the codes of so many inputs, and positions of a block.
type Layer = (Vec<Vec<(u32, i8)>>, Vec<i8>, usize);

fn layer() -> impl Strategy<Value = Layer> {
    // extremes often: there sums of 16 bits would overflow
    let level = || prop_oneof![Just(127i8), Just(-127), -127i8..=127];
    let rows = prop::collection::vec(prop::collection::vec((0u32..12, level()), 0..11), 1..20);
    let codes =
        prop_oneof![prop::collection::vec(level(), 13 * BLOCK), level().prop_map(|code| vec![code; 13 * BLOCK])];
    (rows, codes, 1usize..=BLOCK)
}

proptest! {
    #[test]
    fn every_kernel_sums_exactly((found, codes, width) in layer()) {
        let quads = Quads::of_rows(&found, vec![1.0; found.len()], 1.0);
        let offsets: Vec<u32> = quads.columns.iter().map(|column| column * BLOCK as u32).collect();
        for kernel in kernels() {
            let stored: Vec<u8> = codes.iter().map(|&code| code as u8 ^ kernel.flip()).collect();
            let mut sums = vec![[7; SUMS]; found.len()];
            let rows = Rows {
                starts: &quads.starts,
                totals: &quads.totals,
                offsets: offsets.as_chunks().0,
                levels: &quads.levels,
                codes: stored.as_ptr(),
                width,
            };
            // SAFETY: the CPU has the kernel's instructions; a block follows the last of twelve inputs.
            unsafe { kernel.sums(rows, &mut sums) };
            for (sums, &row) in sums.iter().zip(&quads.order) {
                for (p, &sum) in sums.iter().enumerate().take(width) {
                    let product =
                        |&(column, level): &(u32, i8)| i64::from(level) * i64::from(codes[column as usize * BLOCK + p]);
                    let expected: i64 = found[row as usize].iter().map(product).sum();
                    prop_assert_eq!(i64::from(sum), expected, "{:?}, position {}", kernel, p);
                }
            }
        }
    }

    #[test]
    fn codes_are_the_nearest_levels_at_every_level_of_instructions(
        values in prop::collection::vec(-3.0f32..3.0, 0..100),
        per_unit in 1f32..100.0,
        flip in prop::sample::select(vec![0u8, 0x80]),
    ) {
        let code = |value: &f32| (value * per_unit).clamp(-MOST, MOST).round_ties_even() as i8 as u8 ^ flip;
        let expected: Vec<u8> = values.iter().map(code).collect();
        for instructions in crate::Instructions::available() {
            let mut codes = vec![1; values.len()];
            super::super::math::encode(instructions.arch().unwrap(), &values, per_unit, flip, &mut codes);
            prop_assert_eq!(&codes, &expected, "{:?}", instructions);
        }
    }
}
