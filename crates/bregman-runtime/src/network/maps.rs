//! Maps of several channels in two forms: in rows, each channel by itself, where plain convolutions are shifts; and in
//! groups of channels that lie together, for convolutions by [`winograd`](crate::kernels::winograd). A layer asks for
//! its inputs in the form that it needs, and a map that is there only in the other one is transposed.

use bregman_base::{Buffer, Disjoint};

use super::{Conv, Execution};
use crate::kernels::winograd::{GROUP, Grid, Rows, Scratch, Winograd, Work};

/// How the maps of a stage lie in memory.
#[derive(Clone, Copy, Default)]
pub(super) struct Shape {
    pub(super) channels: usize,
    pub(super) rows: Rows,
    /// Numbers of a map in rows.
    pub(super) length: usize,
    pub(super) grid: Grid,
}

/// A map, in one of the forms or in both.
#[derive(Default)]
pub(super) struct Map {
    rows: Form,
    groups: Form,
}

#[derive(Default)]
struct Form {
    values: Buffer,
    /// Whether it was made for the present shape, with the zeros around it.
    made: bool,
    /// Whether it has the values of the map.
    current: bool,
}

impl Form {
    fn make(&mut self, length: usize) -> &mut [f32] {
        if !self.made {
            self.values.grow(length);
            self.values.fill(0.0); // the zeros around the map lie elsewhere now
            self.made = true;
        }
        &mut self.values[..length]
    }
}

impl Map {
    /// Prepares for another shape.
    pub(super) fn forget(&mut self) {
        for form in [&mut self.rows, &mut self.groups] {
            (form.made, form.current) = (false, false);
        }
    }

    /// The map in rows.
    pub(super) fn rows(&mut self, run: &Execution, shape: Shape) -> &[f32] {
        let Self { rows, groups } = self;
        if !rows.current {
            let (x, y) = (groups.make(shape.grid.buffer(shape.channels)), Disjoint::new(rows.make(shape.length)));
            let (of_group, size) = (shape.grid.buffer(GROUP), shape.rows.channel);
            run.each(shape.channels.div_ceil(GROUP), |group| {
                let (first, channels) = (group * GROUP, GROUP.min(shape.channels - group * GROUP));
                // SAFETY: each task has its own channels.
                let y = unsafe { y.part(first * size, channels * size) };
                shape.grid.scatter(run.arch, channels, shape.rows, &x[group * of_group..][..of_group], y);
            });
            rows.current = true;
        }
        rows.make(shape.length)
    }

    /// The map in groups of channels.
    fn groups(&mut self, run: &Execution, shape: Shape) -> &[f32] {
        let Self { rows, groups } = self;
        let length = shape.grid.buffer(shape.channels);
        if !groups.current {
            let (x, y) = (rows.make(shape.length), Disjoint::new(groups.make(length)));
            let of_group = shape.grid.buffer(GROUP);
            run.each(shape.channels.div_ceil(GROUP), |group| {
                // SAFETY: each task has its own group.
                let y = unsafe { y.part(group * of_group, of_group) };
                let (first, size) = (group * GROUP, shape.rows.channel);
                let channels = GROUP.min(shape.channels - first);
                shape.grid.gather(run.arch, channels, shape.rows, &x[first * size..], y);
            });
            groups.current = true;
        }
        groups.make(length)
    }

    /// Room for the map in rows, which it is from now on.
    pub(super) fn rows_to_write(&mut self, shape: Shape) -> &mut [f32] {
        (self.rows.current, self.groups.current) = (true, false);
        self.rows.make(shape.length)
    }

    /// Room for the map in groups of channels, which it is from now on.
    fn groups_to_write(&mut self, shape: Shape) -> &mut [f32] {
        (self.rows.current, self.groups.current) = (false, true);
        self.groups.make(shape.grid.buffer(shape.channels))
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.values.bytes() + self.groups.values.bytes()
    }
}

/// `y = relu(conv(x) + residual)` of maps of one shape, but for the number of channels and, with a stride, of rows.
#[expect(clippy::too_many_arguments, reason = "the parts of one equation")]
pub(super) fn convolve(
    run: &mut Execution,
    conv: &Conv,
    winograd: &Winograd,
    [from, to]: [Shape; 2],
    x: &mut Map,
    residual: Option<&mut Map>,
    y: &mut Map,
    scratch: &mut Scratch,
) {
    run.timed(conv.layer, |run| {
        let x = x.groups(run, from);
        let residual = residual.map(|residual| residual.groups(run, to));
        let each = |count: usize, work: &Work| run.each(count, work);
        let y = y.groups_to_write(to);
        winograd.convolve(
            run.arch,
            &each,
            run.threads(),
            [from.grid, to.grid],
            x,
            &conv.epilogue(residual),
            y,
            scratch,
        );
    });
}
