//! Which vector instructions kernels use: all that this CPU has, or fewer where `BREGMAN_SIMD` says so.
//!
//! Every kernel that exists in several forms asks here. So one variable makes the whole program compute as it does on a
//! smaller CPU, and a new machine tests what an old one will run: `BREGMAN_SIMD=avx2 tools/test`.

use std::sync::OnceLock;

use pulp::Arch;

/// Environment variable: the highest level to use, `scalar`, `avx2`, `avx512` or `avx512bf16` (on other CPUs `scalar`
/// or `platform`). What the CPU lacks stays unused, and AMX, which is above all of these, too.
pub const LIMIT: &str = "BREGMAN_SIMD";

/// Instructions, each level with all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What the compiler takes for granted: SSE2 on x86-64.
    Scalar,
    /// The vectors of the platform: NEON on ARM64, SIMD128 on wasm.
    #[cfg(not(target_arch = "x86_64"))]
    Platform,
    /// AVX2 and FMA (x86-64-v3).
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 (x86-64-v4): Intel Xeon since 2017.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 that rounds to bf16 and multiplies it: AMD since Zen 4, Intel Xeon since Cooper Lake.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

impl Level {
    /// All of this platform, lowest first.
    pub const ALL: &[Self] = &[
        Self::Scalar,
        #[cfg(not(target_arch = "x86_64"))]
        Self::Platform,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512Bf16,
    ];

    /// The highest that this CPU has and `BREGMAN_SIMD` allows; found out once.
    ///
    /// # Panics
    /// If `BREGMAN_SIMD` is not a level.
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| {
            let allowed = |level: Self| limit().is_none_or(|limit| level <= limit);
            let usable = |level: &Self| allowed(*level) && level.of_this_cpu().is_some();
            Self::ALL.iter().rev().copied().find(usable).unwrap_or(Self::Scalar)
        })
    }

    /// Whether kernels of this level may be called: this CPU has it, and `BREGMAN_SIMD` allows it.
    pub fn is_usable(self) -> bool {
        self <= Self::best()
    }

    /// Its instructions for `pulp`, if it [is usable](Self::is_usable). Nothing in there knows about bf16.
    pub fn arch(self) -> Option<Arch> {
        if self.is_usable() { self.of_this_cpu() } else { None }
    }

    /// Its word in `BREGMAN_SIMD`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(not(target_arch = "x86_64"))]
            Self::Platform => "platform",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => "avx512bf16",
        }
    }

    fn of_this_cpu(self) -> Option<Arch> {
        match self {
            Self::Scalar => Some(Arch::Scalar),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Platform => Some(Arch::new()),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => pulp::x86::V3::try_new().map(Arch::V3),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => pulp::x86::V4::try_new().map(Arch::V4),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 if std::arch::is_x86_feature_detected!("avx512bf16") => Self::Avx512.of_this_cpu(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => None,
        }
    }
}

/// The instructions to compile kernels for: those of [`Level::best`].
pub fn arch() -> Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    *ARCH.get_or_init(|| Level::best().arch().unwrap_or(Arch::Scalar))
}

/// Asks for the cache lines of a slice ahead of their use: for stretches that are too short for the CPU to notice in
/// time.
#[inline(always)]
pub fn prefetch(values: &[f32]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in values.chunks(crate::Buffer::LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 CPU has the instruction, and it cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = values;
}

/// Whether `BREGMAN_SIMD` is set, so that AMX stays unused.
pub fn is_limited() -> bool {
    limit().is_some()
}

fn limit() -> Option<Level> {
    static GIVEN: OnceLock<Option<Level>> = OnceLock::new();
    *GIVEN.get_or_init(|| std::env::var(LIMIT).ok().map(|word| named(&word)))
}

fn named(word: &str) -> Level {
    let names = || Level::ALL.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ");
    let level = Level::ALL.iter().find(|level| level.name() == word);
    *level.unwrap_or_else(|| panic!("{LIMIT} is `{word}`, which is none of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_a_word_and_no_other_word_is_taken() {
        assert!(Level::ALL.is_sorted() && Level::ALL.iter().all(|level| named(level.name()) == *level));
        let refusal = std::panic::catch_unwind(|| named("sse9")).unwrap_err().downcast::<String>().unwrap();
        assert!(refusal.contains("`sse9`") && refusal.contains("scalar"), "{refusal}");
    }

    /// So what `tools/check/aarch64` tests is NEON, not the scalar code.
    #[test]
    #[cfg(target_arch = "aarch64")]
    fn kernels_use_neon_on_arm64() {
        assert!(is_limited() || matches!(arch(), Arch::Neon(_)), "{:?}", arch());
    }

    #[test]
    fn levels_up_to_the_best_are_usable_and_none_exceeds_the_limit() {
        let best = Level::best();
        for &level in Level::ALL {
            assert_eq!(level.arch().is_some(), level <= best, "{level:?}");
        }
        match std::env::var(LIMIT) {
            // `tools/check/levels` sets only levels that the CPU has
            Ok(word) => assert!(best <= named(&word) && is_limited()),
            Err(_) => assert!(!is_limited()),
        }
    }
}
