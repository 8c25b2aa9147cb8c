//! A layer, once over a map.

use std::ops::Range;

use bregman_base::Disjoint;
use pulp::{Arch, Simd, WithSimd};

use super::super::Epilogue;
use super::product::{Filters, Inputs, Sums, multiply};
use super::{CHUNK, GROUP, Grid, OUTPUTS, PAIR, PLACES, SET, Scratch, TILE, Winograd, transform};

/// What is done for every number.
pub(crate) type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// What a thread transforms before its first task, the smaller of the two. Each thread does so for itself: that is
/// faster than to wait for what another core has made, and to fetch it from its cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// And for each task the inputs of a set of tiles.
    Filters,
    /// And for each task the filters of a pair of groups of outputs.
    Inputs,
}

/// How a layer goes over a map.
#[derive(Clone, Copy)]
struct Plan {
    first: First,
    /// Sets of tiles.
    sets: usize,
    /// Tiles of a set, even.
    tiles: usize,
    /// Pairs of groups of outputs.
    pairs: usize,
    /// Groups of inputs whose filters are in memory at a time.
    chunk: usize,
    /// Numbers from one place of transformed inputs to the next.
    input_place: usize,
    /// Numbers from one place of transformed filters to the next.
    filter_place: usize,
}

impl Plan {
    fn new(weights: &Winograd, grid: Grid) -> Self {
        let first = if grid.count() > weights.outputs * GROUP { First::Filters } else { First::Inputs };
        let sets = grid.count().div_ceil(SET).max(1);
        let tiles = grid.count().div_ceil(sets).next_multiple_of(2);
        let chunk = if first == First::Filters { weights.inputs } else { CHUNK.min(weights.inputs) };
        let groups = if first == First::Filters { weights.outputs } else { PAIR };
        Self {
            first,
            sets,
            tiles,
            pairs: weights.outputs.div_ceil(PAIR),
            chunk,
            input_place: apart(weights.inputs * tiles),
            filter_place: apart(groups * chunk * GROUP),
        }
    }

    fn sums(&self) -> usize {
        self.tiles * PAIR * PLACES * GROUP
    }

    /// Numbers of transformed inputs, of transformed filters, and of sums that a thread has.
    fn memory(&self) -> [usize; 3] {
        let sets = if self.first == First::Filters { 1 } else { self.sets };
        [sets * PLACES * self.input_place, PLACES * self.filter_place, sets * self.sums()]
    }
}

/// Numbers from one place to the next if each has `lines` lines: an odd number of lines, so that the same line of all
/// places lies in different sets of the cache.
fn apart(lines: usize) -> usize {
    (lines | 1) * GROUP
}

impl Winograd {
    /// `y = epilogue(W ∗ x)` over all of a map, or every other row of it if `to` has half as many, by
    /// `each`, which calls a function for every number below a count, on any thread.
    ///
    /// # Panics
    /// If a map has another length or size.
    #[expect(clippy::too_many_arguments, reason = "two maps, how they lie and how they are shared out")]
    pub(crate) fn convolve(
        &self,
        arch: Arch,
        each: &dyn Fn(usize, &Work),
        threads: usize,
        [grid, to]: [Grid; 2],
        x: &[f32],
        epilogue: &Epilogue,
        y: &mut [f32],
        scratch: &mut Scratch,
    ) {
        assert!(x.len() >= self.inputs * grid.size, "the map has too few channels");
        assert!(y.len() >= self.outputs * to.size, "there is no room for all channels");
        epilogue.check(self.matrix[0], Disjoint::new(y));
        let plan = Plan::new(self, grid);
        scratch.reserve(plan.memory().iter().sum(), threads);
        let tasks = if plan.first == First::Filters { plan.sets } else { plan.pairs };
        let pass =
            Pass { weights: self, plan, grid, to, stride: grid.stride(to), x, epilogue, y: Disjoint::new(y), scratch };
        each(tasks, &|task| arch.dispatch(Task { pass: &pass, task }));
    }
}

/// One call of [`Winograd::convolve`], checked.
struct Pass<'a> {
    weights: &'a Winograd,
    plan: Plan,
    grid: Grid,
    /// Of the outputs.
    to: Grid,
    stride: usize,
    x: &'a [f32],
    epilogue: &'a Epilogue<'a>,
    y: Disjoint<'a>,
    scratch: &'a Scratch,
}

impl Pass<'_> {
    fn tiles_of(&self, set: usize) -> Range<usize> {
        let tiles = self.plan.tiles;
        set * tiles..((set + 1) * tiles).min(self.grid.count())
    }

    /// Transforms the inputs under a set of tiles.
    #[inline(always)]
    fn transform_inputs<S: Simd>(&self, simd: S, set: usize, to: &mut [f32]) {
        let (grid, plan) = (self.grid, &self.plan);
        for (number, tile) in self.tiles_of(set).enumerate() {
            let [row, frame] = grid.corner(tile);
            for group in 0..self.weights.inputs {
                // one row and one frame before the outputs
                let x = &self.x[group * grid.size + row * grid.pitch + frame * GROUP..];
                let x = &x[..(TILE - 1) * grid.pitch + TILE * GROUP];
                for lane in (0..GROUP).step_by(S::F32_LANES) {
                    let mut d = [[simd.splat_f32s(0.0); TILE]; TILE];
                    for i in 0..TILE {
                        for j in 0..TILE {
                            // SAFETY: within the length of x, as just cut.
                            d[i][j] = unsafe { load::<S>(x.as_ptr().add(i * grid.pitch + j * GROUP + lane)) };
                        }
                    }
                    let places = transform::inputs(simd, d);
                    let at = (group * plan.tiles + number) * GROUP + lane;
                    write_places::<S>(&places, to, at, plan.input_place);
                }
            }
        }
    }

    /// Transforms the filters of a group of outputs on some groups of inputs.
    #[inline(always)]
    fn transform_filters<S: Simd>(&self, simd: S, group: usize, inputs: Range<usize>, to: &mut [f32]) {
        let filter = 9 * GROUP;
        let of_group = self.weights.inputs * GROUP * filter;
        let taps = &self.weights.taps[group * of_group..][..of_group];
        for (number, input) in (inputs.start * GROUP..inputs.end * GROUP).enumerate() {
            let taps = &taps[input * filter..][..filter];
            for lane in (0..GROUP).step_by(S::F32_LANES) {
                let mut g = [[simd.splat_f32s(0.0); 3]; 3];
                for i in 0..3 {
                    for j in 0..3 {
                        // SAFETY: within the length of the filter, as just cut.
                        g[i][j] = unsafe { load::<S>(taps.as_ptr().add((3 * i + j) * GROUP + lane)) };
                    }
                }
                let places = transform::filters(simd, g);
                write_places::<S>(&places, to, number * GROUP + lane, self.plan.filter_place);
            }
        }
    }

    /// Transforms the sums of a set of tiles back, and stores them.
    #[inline(always)]
    fn transform_outputs<S: Simd>(&self, simd: S, set: usize, groups: Range<usize>, sums: &[f32]) {
        let (grid, to, stride) = (self.grid, self.to, self.stride);
        let pad = |vector: &[f32], group: usize| {
            let mut padded = [0.0; GROUP];
            let some = &vector[group * GROUP..vector.len().min((group + 1) * GROUP)];
            padded[..some.len()].copy_from_slice(some);
            padded
        };
        for (local, group) in groups.enumerate() {
            let bias = pad(self.epilogue.bias, group);
            let norm = (!self.epilogue.norm[0].is_empty()).then(|| self.epilogue.norm.map(|vector| pad(vector, group)));
            for (number, tile) in self.tiles_of(set).enumerate() {
                let corner @ [row, frame] = grid.corner(tile);
                let [height, width] = grid.extent(corner);
                let sums = &sums[(number * PAIR + local) * PLACES * GROUP..][..PLACES * GROUP];
                for lane in (0..GROUP).step_by(S::F32_LANES) {
                    // SAFETY: all of them within a group.
                    let of = |values: &[f32; GROUP]| unsafe { load::<S>(values.as_ptr().add(lane)) };
                    let mut m = [simd.splat_f32s(0.0); PLACES];
                    for place in 0..PLACES {
                        // SAFETY: within the length of the sums, as just cut.
                        m[place] = unsafe { load::<S>(sums.as_ptr().add(place * GROUP + lane)) };
                    }
                    let (outputs, bias) = (transform::outputs(simd, m), of(&bias));
                    let norm = norm.as_ref().map(|[scale, shift]| [of(scale), of(shift)]);
                    for i in (0..height).step_by(stride) {
                        let at = group * to.size + to.at((row + i) / stride, frame) + lane;
                        // SAFETY: each task has its own tiles or its own groups.
                        let y = unsafe { self.y.part(at, (OUTPUTS - 1) * GROUP + S::F32_LANES) };
                        for j in 0..OUTPUTS {
                            if j < width {
                                let sum = simd.add_f32s(outputs[i][j], bias);
                                self.epilogue.write_vector::<S>(simd, sum, norm, at + j * GROUP, &mut y[j * GROUP..]);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// # Safety
/// A vector may be read there.
#[inline(always)]
unsafe fn load<S: Simd>(from: *const f32) -> S::f32s {
    // SAFETY: as the caller promises.
    unsafe { from.cast::<S::f32s>().read_unaligned() }
}

/// Writes a vector of each place.
#[inline(always)]
fn write_places<S: Simd>(places: &[S::f32s; PLACES], to: &mut [f32], at: usize, pitch: usize) {
    assert!(at + (PLACES - 1) * pitch + S::F32_LANES <= to.len(), "places beyond their memory");
    for place in 0..PLACES {
        // SAFETY: inside, as just checked.
        unsafe { to.as_mut_ptr().add(at + place * pitch).cast::<S::f32s>().write_unaligned(places[place]) };
    }
}

/// Transforms, multiplies and transforms back: a set of tiles with all filters, or all tiles with a pair of groups of
/// outputs.
struct Task<'a> {
    pass: &'a Pass<'a>,
    task: usize,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { pass, task } = self;
        let Pass { plan, weights, .. } = pass;
        let mut own = pass.scratch.any();
        let own = &mut *own;
        let [inputs, filters, _] = plan.memory();
        let (inputs, rest) = own.values.split_at_mut(inputs);
        let (filters, sums) = rest.split_at_mut(filters);
        let (of_set, of_group) = (PLACES * plan.input_place, plan.chunk * GROUP * GROUP);
        let of_pair = |pair: usize| pair * PAIR..((pair + 1) * PAIR).min(weights.outputs);

        // what the thread has for all tasks, and what for this one
        let (sets, pairs) = match plan.first {
            First::Filters => (task..task + 1, 0..plan.pairs),
            First::Inputs => (0..plan.sets, task..task + 1),
        };
        let all_filters = plan.first == First::Filters && !own.prepared;
        if plan.first == First::Filters || !own.prepared {
            for (set, inputs) in sets.clone().zip(inputs.chunks_exact_mut(of_set)) {
                pass.transform_inputs(simd, set, inputs);
            }
        }
        own.prepared = true;

        for chunk in (0..weights.inputs).step_by(plan.chunk) {
            let end = (chunk + plan.chunk).min(weights.inputs);
            if all_filters || plan.first == First::Inputs {
                let groups = of_pair(pairs.start).start..of_pair(pairs.end - 1).end;
                for (number, group) in groups.enumerate() {
                    pass.transform_filters(simd, group, chunk..end, &mut filters[number * of_group..]);
                }
            }
            for pair in pairs.clone() {
                let groups = of_pair(pair);
                let filters = &filters[(pair - pairs.start) * PAIR * of_group..];
                let last = (PLACES - 1) * plan.filter_place + groups.len() * of_group;
                assert!(filters.len() >= last, "filters beyond their memory");
                for (number, set) in sets.clone().enumerate() {
                    let inputs = &inputs[number * of_set..][..of_set];
                    let sums = &mut sums[number * plan.sums()..][..plan.sums()];
                    for place in 0..PLACES {
                        // SAFETY: each of a place, within their lengths as just cut and checked.
                        unsafe {
                            let v = inputs.as_ptr().add(place * plan.input_place + chunk * plan.tiles * GROUP);
                            multiply(
                                simd,
                                end - chunk,
                                groups.len(),
                                Inputs { start: v, tiles: plan.tiles },
                                Filters { start: filters.as_ptr().add(place * plan.filter_place), pitch: of_group },
                                Sums { start: sums.as_mut_ptr().add(place * GROUP), first: chunk == 0 },
                            );
                        }
                    }
                    if end == weights.inputs {
                        pass.transform_outputs(simd, set, groups.clone(), sums);
                    }
                }
            }
        }
    }
}
