//! The products of one place of the transformed domain: `m[tile, output] = Σ v[tile, input] · u[input, output]`.

use pulp::Simd;

use super::{GROUP, PAIR, PLACES};

/// One place of transformed inputs, `[input / 16][tile][16]`, of as many tiles as a set has.
#[derive(Clone, Copy)]
pub(super) struct Inputs {
    pub(super) start: *const f32,
    pub(super) tiles: usize,
}

/// One place of transformed filters, `[input][16]` for each of one or two groups of outputs.
#[derive(Clone, Copy)]
pub(super) struct Filters {
    pub(super) start: *const f32,
    /// Numbers from one group to the next.
    pub(super) pitch: usize,
}

/// One place of sums, `[tile][group][place][16]`, of which `start` is that of tile 0 and group 0.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    pub(super) start: *mut f32,
    /// Whether they begin with 0, or with what is there.
    pub(super) first: bool,
}

/// `inputs` is a number of groups.
///
/// # Safety
/// All of the three must lie in memory that is theirs, and nothing else may use the sums meanwhile.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(simd: S, inputs: usize, groups: usize, v: Inputs, u: Filters, m: Sums) {
    // SAFETY: as the caller promises.
    unsafe {
        match (S::F32_LANES, groups) {
            // sums of 2 × 12 vectors, of the 32 registers
            (16, PAIR) => sets::<S, 1, PAIR>(simd, 12, inputs, v, u, m),
            (16, _) => sets::<S, 1, 1>(simd, 12, inputs, v, u, m),
            // of 2 × 6, of 16 registers
            (8, _) => each_group::<S, 2>(simd, 6, inputs, groups, v, u, m),
            // of 4 × 6 or, in wasm, which mostly runs on CPUs with 16 registers, 4 × 2
            (4, _) if S::REGISTER_COUNT >= 32 && !cfg!(target_family = "wasm") => {
                each_group::<S, 4>(simd, 6, inputs, groups, v, u, m)
            }
            (4, _) => each_group::<S, 4>(simd, 2, inputs, groups, v, u, m),
            (1, _) => each_group::<S, GROUP>(simd, 2, inputs, groups, v, u, m),
            (lanes, _) => unreachable!("no CPU has vectors of {lanes}"),
        }
    }
}

/// One group after the other, where there are no registers for the sums of two.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn each_group<S: Simd, const V: usize>(
    simd: S,
    most: usize,
    inputs: usize,
    groups: usize,
    v: Inputs,
    u: Filters,
    m: Sums,
) {
    for group in 0..groups {
        // SAFETY: as the caller promises.
        unsafe {
            let u = Filters { start: u.start.add(group * u.pitch), ..u };
            let m = Sums { start: m.start.add(group * PLACES * GROUP), ..m };
            sets::<S, V, 1>(simd, most, inputs, v, u, m);
        }
    }
}

/// At most `most` tiles at a time.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn sets<S: Simd, const V: usize, const G: usize>(
    simd: S,
    most: usize,
    inputs: usize,
    v: Inputs,
    u: Filters,
    m: Sums,
) {
    let mut from = 0;
    while from < v.tiles {
        let count = most.min(v.tiles - from);
        // SAFETY: as the caller promises.
        unsafe {
            match count {
                12 => multiply_tiles::<S, V, G, 12>(simd, from, inputs, v, u, m),
                10 => multiply_tiles::<S, V, G, 10>(simd, from, inputs, v, u, m),
                8 => multiply_tiles::<S, V, G, 8>(simd, from, inputs, v, u, m),
                6 => multiply_tiles::<S, V, G, 6>(simd, from, inputs, v, u, m),
                4 => multiply_tiles::<S, V, G, 4>(simd, from, inputs, v, u, m),
                _ => multiply_tiles::<S, V, G, 2>(simd, from, inputs, v, u, m),
            }
        }
        from += count;
    }
}

/// T tiles from tile `from` on, G groups of outputs, V vectors each.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn multiply_tiles<S: Simd, const V: usize, const G: usize, const T: usize>(
    simd: S,
    from: usize,
    inputs: usize,
    v: Inputs,
    u: Filters,
    m: Sums,
) {
    // SAFETY: a vector of the sums of a tile and a group, both within their memory.
    let m_at = |tile: usize, group: usize, vector: usize| unsafe {
        let at = ((from + tile) * PAIR + group) * PLACES * GROUP + vector * S::F32_LANES;
        m.start.add(at).cast::<S::f32s>()
    };
    let mut sums = [[[simd.splat_f32s(0.0); V]; G]; T];
    if !m.first {
        for tile in 0..T {
            for group in 0..G {
                for vector in 0..V {
                    // SAFETY: the sums lie in their memory, as the caller promises.
                    sums[tile][group][vector] = unsafe { m_at(tile, group, vector).read_unaligned() };
                }
            }
        }
    }
    for block in 0..inputs {
        // SAFETY: the filters and the tiles of a group of inputs lie in their memory, as the caller promises.
        let (v, u) = unsafe {
            (v.start.add((block * v.tiles + from) * GROUP), Filters { start: u.start.add(block * GROUP * GROUP), ..u })
        };
        for input in 0..GROUP {
            let mut filters = [[simd.splat_f32s(0.0); V]; G];
            for group in 0..G {
                for vector in 0..V {
                    // SAFETY: a vector of the filters of one input, within their memory.
                    filters[group][vector] = unsafe {
                        let at = group * u.pitch + input * GROUP + vector * S::F32_LANES;
                        u.start.add(at).cast::<S::f32s>().read_unaligned()
                    };
                }
            }
            for tile in 0..T {
                // SAFETY: one input of one tile, within the memory of the inputs.
                let value = simd.splat_f32s(unsafe { *v.add(tile * GROUP + input) });
                for group in 0..G {
                    for vector in 0..V {
                        sums[tile][group][vector] =
                            simd.mul_add_e_f32s(value, filters[group][vector], sums[tile][group][vector]);
                    }
                }
            }
        }
    }
    for tile in 0..T {
        for group in 0..G {
            for vector in 0..V {
                // SAFETY: the sums lie in their memory, and nothing else uses them, as the caller promises.
                unsafe { m_at(tile, group, vector).write_unaligned(sums[tile][group][vector]) };
            }
        }
    }
}
