//! Mirrored signals. See kernels/reflection.cu.

use super::Cuda;
use crate::{Reflection, Result, View, ViewMut};

impl Reflection for Cuda {
    fn reflect(&self, x: View<Self>, y: ViewMut<Self>) -> Result<()> {
        let (n, edge) = (x.shape.width as u32, x.shape.mirrored_in(y.shape) as u32);
        let (x, y) = (self.rows(x), self.rows_mut(&y));
        let variant = x.variant_with(&[y]);
        let launch = self.device.variant("reflect", variant).view(x).view(y).arg(n).arg(edge);
        // SAFETY: y has 2 · edge rows more than x for every item, and x more than `edge`.
        unsafe { self.over_rows(launch.arg(y.rows).arg(y.channels), variant, y.rows, y.channels) }
    }

    fn reflect_backward(&self, dy: View<Self>, add: bool, dx: ViewMut<Self>) -> Result<()> {
        let (n, edge) = (dx.shape.width as u32, dx.shape.mirrored_in(dy.shape) as u32);
        let (dy, dx) = (self.rows(dy), self.rows_mut(&dx));
        let variant = dy.variant_with(&[dx]);
        let launch = self.device.variant("reflect_backward", variant).view(dy).view(dx);
        let launch = launch.arg(i32::from(add)).arg(n).arg(edge).arg(dx.rows).arg(dx.channels);
        // SAFETY: as in `reflect`.
        unsafe { self.over_rows(launch, variant, dx.rows, dx.channels) }
    }
}
