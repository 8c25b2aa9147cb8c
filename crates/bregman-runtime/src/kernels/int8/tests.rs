//! Every kernel against sums in 64 bits.

use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;

/// All that this CPU has, whatever `BREGMAN_SIMD` says. What it lacks is a recorded skip.
fn kernels() -> &'static [Kernel] {
    static HERE: OnceLock<Vec<Kernel>> = OnceLock::new();
    HERE.get_or_init(|| {
        let mut all = vec![(Kernel::Portable, "", true)];
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let vnni512 = has!("avx512f") && has!("avx512bw") && has!("avx512vnni") && has!("avx512vbmi");
            all.extend([
                (Kernel::Vnni512, "vnni", vnni512),
                (Kernel::Vnni256, "vnni", has!("avxvnni")),
                (Kernel::Avx2, "avx2", has!("avx2")),
            ]);
        }
        #[cfg(target_arch = "aarch64")]
        all.push((Kernel::Dot, "dotprod", std::arch::is_aarch64_feature_detected!("dotprod")));
        let (here, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|&(.., has)| has);
        for (kernel, need, _) in missing {
            bregman_skip::skip(need, format!("this CPU lacks the kernel {kernel:?}"));
        }
        here.into_iter().map(|(kernel, ..)| kernel).collect()
    })
}

/// Rows of columns and levels, the codes of their inputs, and positions of a block.
type Layer = (Vec<Vec<(u32, i8)>>, Vec<i8>, usize);

fn layer() -> impl Strategy<Value = Layer> {
    // extremes often: there sums of 16 bits would overflow
    let level = || prop_oneof![Just(127i8), Just(-127), -127i8..=127];
    let rows = prop::collection::vec(prop::collection::vec((0u32..12, level()), 0..11), 1..20);
    let codes =
        prop_oneof![prop::collection::vec(level(), 13 * STRIP), level().prop_map(|code| vec![code; 13 * STRIP])];
    (rows, codes, 1usize..=STRIP)
}

proptest! {
    #[test]
    fn every_kernel_sums_exactly((found, codes, width) in layer()) {
        let quads = Quads::of_rows(&found, vec![1.0; found.len()], 1.0);
        let offsets: Vec<u32> = quads.columns.iter().map(|column| column * STRIP as u32).collect();
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
                        |&(column, level): &(u32, i8)| i64::from(level) * i64::from(codes[column as usize * STRIP + p]);
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
        let code = |value: &f32| (value * per_unit).clamp(-MAX_LEVEL, MAX_LEVEL).round_ties_even() as i8 as u8 ^ flip;
        let expected: Vec<u8> = values.iter().map(code).collect();
        for instructions in crate::Instructions::available() {
            let mut codes = vec![1; values.len()];
            super::super::math::encode(instructions.arch().unwrap(), &values, per_unit, flip, &mut codes);
            prop_assert_eq!(&codes, &expected, "{:?}", instructions);
        }
    }
}
