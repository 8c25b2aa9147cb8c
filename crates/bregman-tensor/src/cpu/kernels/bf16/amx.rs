//! Intel AMX: eight registers of 16 rows × 64 bytes, and an instruction that multiplies two of them.
//!
//! `tdpbf16ps` adds the product of a left tile (16 × 32 bf16) and a right tile (32 × 16, pairs interleaved) to 16 × 16
//! f32. A block of 2 × 2 results needs 4 registers for sums and 4 for operands, and each loaded tile is used twice.
//!
//! The kernel is written over a [`TileRegisters`] trait whose methods are single instructions. The hardware
//! implementation is inline assembly, because the intrinsics are not stable in Rust; the emulated one keeps the
//! registers in memory, so that tests prove the kernel on any CPU.
//! Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 1 ch. 18; Linux
//! `Documentation/arch/x86/xstate.rst`.

use super::kernel::{Lines, Sums};
use super::tile::SIDE;

/// Eight tile registers; every method is one instruction.
pub(super) trait TileRegisters {
    /// Register ← 0.
    fn zero<const REGISTER: u8>(&mut self);
    /// Register ← 16 rows of 16 words, `pitch` words apart.
    fn load<const REGISTER: u8>(&mut self, words: &[u32], pitch: usize);
    /// Register `SUM` += left · right.
    fn multiply_add<const SUM: u8, const LEFT: u8, const RIGHT: u8>(&mut self);
    /// 16 rows of 16 f32, `pitch` apart ← register.
    fn store<const REGISTER: u8>(&mut self, sums: &mut [f32], pitch: usize);
}

/// Sums of at most 2 × 2 tiles. A second row or column that is not there is multiplied like the first, and forgotten.
pub(super) fn multiply(registers: &mut impl TileRegisters, left: Lines, right: Lines, mut sums: Sums) {
    assert!(left.count() <= 2 && right.count() <= 2 && left.depth() == right.depth());
    let (row, column) = (left.count() - 1, right.count() - 1);
    begin::<0>(registers, &mut sums, 0, 0);
    begin::<1>(registers, &mut sums, 0, column);
    begin::<2>(registers, &mut sums, row, 0);
    begin::<3>(registers, &mut sums, row, column);
    for k in 0..left.depth() {
        registers.load::<4>(left.tile(0, k), left.pitch());
        registers.load::<6>(right.tile(0, k), right.pitch());
        registers.multiply_add::<0, 4, 6>();
        registers.load::<7>(right.tile(column, k), right.pitch());
        registers.multiply_add::<1, 4, 7>();
        registers.load::<5>(left.tile(row, k), left.pitch());
        registers.multiply_add::<2, 5, 6>();
        registers.multiply_add::<3, 5, 7>();
    }
    // where two of these are the same tile, they hold the same sums
    let pitch = sums.pitch();
    registers.store::<0>(sums.tile(0, 0), pitch);
    if column == 1 {
        registers.store::<1>(sums.tile(0, 1), pitch);
    }
    if row == 1 {
        registers.store::<2>(sums.tile(1, 0), pitch);
    }
    if row == 1 && column == 1 {
        registers.store::<3>(sums.tile(1, 1), pitch);
    }
}

/// Register ← the sums so far.
#[inline(always)]
fn begin<const REGISTER: u8>(registers: &mut impl TileRegisters, sums: &mut Sums, row: usize, column: usize) {
    if sums.add {
        let pitch = sums.pitch();
        registers.load::<REGISTER>(bytemuck::cast_slice(sums.tile(row, column)), pitch);
    } else {
        registers.zero::<REGISTER>();
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use hardware::{Hardware, available};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod hardware {
    use std::arch::{asm, x86_64};
    use std::marker::PhantomData;
    use std::sync::OnceLock;

    use super::*;

    /// Whether the CPU has AMX with bf16, the kernel lets this process use it, and nobody asked for less. Asks for that
    /// permission on the first call.
    pub(in super::super) fn available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| !bregman_base::simd::is_limited() && cpu_has_amx() && operating_system_permits())
    }

    fn cpu_has_amx() -> bool {
        const OSXSAVE: u32 = 1 << 27; // leaf 1, ecx
        const AMX_BF16: u32 = 1 << 22; // leaf 7, edx
        const AMX_TILE: u32 = 1 << 24;
        const TILE_STATE: u64 = 1 << 17 | 1 << 18; // XCR0: tile configuration and data
        #[allow(unused_unsafe)] // safe functions in newer toolchains
        // SAFETY: every x86-64 CPU has `cpuid`; a leaf it lacks reads as data of another leaf, which the first test
        // excludes.
        let (highest, basic, features) =
            unsafe { (x86_64::__cpuid(0).eax, x86_64::__cpuid(1).ecx, x86_64::__cpuid_count(7, 0).edx) };
        if highest < 7 || basic & OSXSAVE == 0 || features & AMX_BF16 == 0 || features & AMX_TILE == 0 {
            return false;
        }
        let (low, high): (u32, u32);
        // SAFETY: OSXSAVE says that `xgetbv` exists; register 0 always does.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
        };
        (u64::from(high) << 32 | u64::from(low)) & TILE_STATE == TILE_STATE
    }

    /// Linux gives a process the 8 KiB of tile state only on request: `arch_prctl(ARCH_REQ_XCOMP_PERM,
    /// XFEATURE_XTILEDATA)`.
    #[cfg(target_os = "linux")]
    fn operating_system_permits() -> bool {
        const ARCH_PRCTL: isize = 158;
        const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
        const XFEATURE_XTILEDATA: usize = 18;
        let result: isize;
        // SAFETY: a system call that reads no memory of ours; it overwrites rax, rcx and r11, which are declared.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        result == 0
    }

    #[cfg(not(target_os = "linux"))]
    fn operating_system_permits() -> bool {
        false
    }

    /// The operand of `ldtilecfg`: palette 1, eight registers of 16 rows × 64 bytes.
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        bytes_per_row: [u16; 16],
        rows: [u8; 16],
    }

    static CONFIGURATION: Configuration = Configuration {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        bytes_per_row: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
    };

    /// The registers of this thread, configured while the value lives. Not `Send`: they belong to the thread.
    pub(in super::super) struct Hardware(PhantomData<*const ()>);

    impl Hardware {
        /// # Panics
        /// Without AMX.
        pub(in super::super) fn new() -> Self {
            assert!(available(), "no AMX");
            // SAFETY: AMX is there and permitted; the configuration is 64 valid bytes.
            unsafe {
                asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(readonly, nostack, preserves_flags))
            };
            Self(PhantomData)
        }
    }

    impl Drop for Hardware {
        fn drop(&mut self) {
            // SAFETY: AMX is there, or `new` would have panicked.
            unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
        }
    }

    // The compiler itself never uses tile registers, and `asm!` blocks without `pure` keep their order: the state
    // carries over.
    impl TileRegisters for Hardware {
        #[inline(always)]
        fn zero<const REGISTER: u8>(&mut self) {
            // SAFETY: configured registers 0 to 7 of this thread.
            unsafe { asm!("tilezero tmm{}", const REGISTER, options(nomem, nostack, preserves_flags)) };
        }

        #[inline(always)]
        fn load<const REGISTER: u8>(&mut self, words: &[u32], pitch: usize) {
            assert!((SIDE - 1) * pitch + SIDE <= words.len(), "a tile outside its slice");
            // SAFETY: as above; reads 16 × 64 bytes, rows `4 · pitch` bytes apart, inside `words` as just checked.
            unsafe {
                asm!(
                    "tileloadd tmm{}, [{} + {}*1]",
                    const REGISTER,
                    in(reg) words.as_ptr(),
                    in(reg) 4 * pitch,
                    options(readonly, nostack, preserves_flags)
                );
            }
        }

        #[inline(always)]
        fn multiply_add<const SUM: u8, const LEFT: u8, const RIGHT: u8>(&mut self) {
            // SAFETY: as above; the three registers are different.
            unsafe {
                asm!("tdpbf16ps tmm{}, tmm{}, \
                    tmm{}", const SUM, const LEFT, const RIGHT, options(nomem, nostack, preserves_flags));
            }
        }

        #[inline(always)]
        fn store<const REGISTER: u8>(&mut self, sums: &mut [f32], pitch: usize) {
            assert!((SIDE - 1) * pitch + SIDE <= sums.len(), "a tile outside the sums");
            // SAFETY: as above; writes 16 rows of 64 bytes inside `sums`, as just checked.
            unsafe {
                asm!(
                    "tilestored [{} + {}*1], tmm{}",
                    in(reg) sums.as_mut_ptr(),
                    in(reg) 4 * pitch,
                    const REGISTER,
                    options(nostack, preserves_flags)
                );
            }
        }
    }
}

#[cfg(test)]
pub(super) use emulated::Emulated;

#[cfg(test)]
mod emulated {
    use super::*;

    /// The registers as arrays, the instructions as the manual's pseudo-code.
    #[derive(Default)]
    pub(in super::super) struct Emulated([[[u32; 16]; 16]; 8]);

    impl TileRegisters for Emulated {
        fn zero<const REGISTER: u8>(&mut self) {
            self.0[usize::from(REGISTER)] = [[0; 16]; 16];
        }

        fn load<const REGISTER: u8>(&mut self, words: &[u32], pitch: usize) {
            for (row, words) in self.0[usize::from(REGISTER)].iter_mut().zip(words.chunks(pitch)) {
                row.copy_from_slice(&words[..SIDE]);
            }
        }

        fn multiply_add<const SUM: u8, const LEFT: u8, const RIGHT: u8>(&mut self) {
            let [left, right] = [LEFT, RIGHT].map(|register| self.0[usize::from(register)]);
            for (sums, left) in self.0[usize::from(SUM)].iter_mut().zip(left) {
                for (a, right) in left.into_iter().zip(right) {
                    for (sum, b) in sums.iter_mut().zip(right) {
                        let product = |half: fn(u32) -> f32| half(a) * half(b);
                        let even = product(|word| f32::from_bits(word << 16));
                        let odd = product(|word| f32::from_bits(word & 0xFFFF_0000));
                        *sum = (f32::from_bits(*sum) + even + odd).to_bits();
                    }
                }
            }
        }

        fn store<const REGISTER: u8>(&mut self, sums: &mut [f32], pitch: usize) {
            for (sums, words) in sums.chunks_mut(pitch).zip(self.0[usize::from(REGISTER)]) {
                sums[..SIDE].copy_from_slice(&words.map(f32::from_bits));
            }
        }
    }
}
