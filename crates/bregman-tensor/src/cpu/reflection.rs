//! Mirrored signals: a row of frames lies contiguous.

use rayon::prelude::*;

use super::Cpu;
use super::math::{SERIAL, simd};
use crate::{Reflection, Result, View, ViewMut};

impl Reflection for Cpu {
    fn reflect(&self, x: View<Self>, y: ViewMut<Self>) -> Result<()> {
        let (n, edge) = (x.shape.width, x.shape.mirrored_in(y.shape));
        let rows = y.slice().par_chunks_mut(n + 2 * edge).zip(x.slice().par_chunks(n));
        rows.with_min_len(SERIAL.div_ceil(n)).for_each(|(y, x)| {
            let (before, rest) = y.split_at_mut(edge);
            let (own, after) = rest.split_at_mut(n);
            own.copy_from_slice(x);
            before.iter_mut().rev().zip(&x[1..]).for_each(|(y, x)| *y = *x);
            after.iter_mut().zip(x[..n - 1].iter().rev()).for_each(|(y, x)| *y = *x);
        });
        Ok(())
    }

    fn reflect_backward(&self, dy: View<Self>, add: bool, dx: ViewMut<Self>) -> Result<()> {
        let (n, edge) = (dx.shape.width, dx.shape.mirrored_in(dy.shape));
        let rows = dx.slice().par_chunks_mut(n).zip(dy.slice().par_chunks(n + 2 * edge));
        rows.with_min_len(SERIAL.div_ceil(n)).for_each(|(dx, dy)| {
            let (before, rest) = dy.split_at(edge);
            let (own, after) = rest.split_at(n);
            if add {
                simd!(dx.iter_mut().zip(own).for_each(|(dx, &dy)| *dx += dy));
            } else {
                dx.copy_from_slice(own);
            }
            dx[1..].iter_mut().zip(before.iter().rev()).for_each(|(dx, dy)| *dx += dy);
            dx[..n - 1].iter_mut().rev().zip(after).for_each(|(dx, dy)| *dx += dy);
        });
        Ok(())
    }
}
