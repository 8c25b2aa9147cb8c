//! Kernels that reduce over the positions of an item, or spread one value per channel and item over them. See
//! kernels/pooling.cu.

use super::Cuda;
use crate::{Pooling, Result, Spread, View, ViewMut};

impl Spread {
    /// ε, and whether it is a floor.
    fn numbers(self) -> (f32, i32) {
        match self {
            Self::Raised(epsilon) => (epsilon, 0),
            Self::Floored(epsilon) => (epsilon, 1),
        }
    }
}

impl Pooling for Cuda {
    fn mean_forward(&self, x: View<Self>, mean: ViewMut<Self>) -> Result<()> {
        let (shape, x, mean) = (x.shape, self.rows(x), self.rows_mut(&mean));
        let variant = x.variant();
        let launch = self.device.variant("mean", variant).view(x).arg(shape.positions() as u32);
        let launch = launch.view(mean).arg(x.channels);
        // SAFETY: `mean` has a row per item of x.
        unsafe { self.over_items(launch, variant, shape.batch, x.channels, 1) }
    }

    fn gate_forward(&self, x: View<Self>, gate: View<Self>, residual: View<Self>, y: ViewMut<Self>) -> Result<()> {
        let (shape, x, gate, residual, y) =
            (x.shape, self.rows(x), self.rows(gate), self.rows(residual), self.rows_mut(&y));
        let variant = x.variant_with(&[residual, y]);
        let launch = self.device.variant("gate", variant).view(x).view(gate).view(residual).view(y);
        // SAFETY: the maps are alike; `gate` has a row per item.
        unsafe {
            self.over_items(launch.arg(shape.positions() as u32).arg(x.channels), variant, shape.batch, x.channels, 0)
        }
    }

    fn gate_backward_gate(&self, x: View<Self>, dy: View<Self>, dgate: ViewMut<Self>) -> Result<()> {
        let (shape, x, dy, dgate) = (x.shape, self.rows(x), self.rows(dy), self.rows_mut(&dgate));
        let variant = x.variant_with(&[dy]);
        let launch = self.device.variant("gate_backward_gate", variant).view(x).view(dy);
        let launch = launch.view(dgate).arg(shape.positions() as u32).arg(x.channels);
        // SAFETY: the maps are alike; `dgate` has a row per item.
        unsafe { self.over_items(launch, variant, shape.batch, x.channels, 1) }
    }

    fn gate_backward_input(
        &self,
        gate: View<Self>,
        dmean: View<Self>,
        dy: View<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, gate, dmean, dy, dx) =
            (dy.shape, self.rows(gate), self.rows(dmean), self.rows(dy), self.rows_mut(&dx));
        let variant = dy.variant_with(&[dx]);
        let launch = self.device.variant("gate_backward_input", variant).view(gate).view(dmean).view(dy).view(dx);
        // SAFETY: the maps are alike; `gate` and `dmean` have a row per item.
        unsafe {
            self.over_items(launch.arg(shape.positions() as u32).arg(dy.channels), variant, shape.batch, dy.channels, 0)
        }
    }

    fn moments_forward(&self, x: View<Self>, spread: Spread, stats: ViewMut<Self>) -> Result<()> {
        let (epsilon, floored) = spread.numbers();
        let (shape, x, stats) = (x.shape, self.rows(x), self.rows_mut(&stats));
        let variant = x.variant();
        let launch = self.device.variant("moments", variant).view(x).arg(shape.width as u32).arg(shape.height as u32);
        let launch = launch.arg(epsilon).arg(floored).view(stats).arg(x.channels);
        // SAFETY: `stats` has 2 · channels · height values per item.
        unsafe { self.over_items(launch, variant, shape.batch * shape.height, x.channels, 1) }
    }

    fn moments_backward(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        spread: Spread,
        add: bool,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        moments_backward(self, x, [stats, dstats], spread, add, false, dx)
    }

    fn moments_backward_through_relu(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        spread: Spread,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        moments_backward(self, x, [stats, dstats], spread, true, true, dx)
    }

    fn context_add(&self, context: View<Self>, h: ViewMut<Self>) -> Result<()> {
        let (shape, context, h) = (h.shape, self.rows(context), self.rows_mut(&h));
        let variant = h.variant();
        let launch = self.device.variant("context_add", variant).view(context).view(h);
        let launch = launch.arg(shape.positions() as u32).arg(h.channels);
        // SAFETY: `context` has a row per item.
        unsafe { self.over_items(launch, variant, shape.batch, h.channels, 0) }
    }

    fn context_add_backward(&self, dh: View<Self>, dcontext: ViewMut<Self>) -> Result<()> {
        let (shape, dh, dcontext) = (dh.shape, self.rows(dh), self.rows_mut(&dcontext));
        let variant = dh.variant();
        let launch = self.device.variant("context_add_backward", variant).view(dh).view(dcontext);
        let launch = launch.arg(shape.positions() as u32).arg(dh.channels);
        // SAFETY: `dcontext` has a row per item.
        unsafe { self.over_items(launch, variant, shape.batch, dh.channels, 1) }
    }

    fn context_tanh(&self, context: Option<View<Self>>, h: ViewMut<Self>) -> Result<()> {
        let (shape, context, h) = (h.shape, context.map(|c| self.rows(c)), self.rows_mut(&h));
        let variant = h.variant();
        let launch =
            self.device.variant("context_tanh", variant).optional_view(context).view(h).arg(shape.positions() as u32);
        // SAFETY: `context` has a row per item or is absent.
        unsafe { self.over_items(launch.arg(h.channels), variant, shape.batch, h.channels, 0) }
    }

    fn context_tanh_backward(&self, a: View<Self>, d: ViewMut<Self>, dcontext: Option<ViewMut<Self>>) -> Result<()> {
        let (shape, a, d, dcontext) = (a.shape, self.rows(a), self.rows_mut(&d), dcontext.map(|c| self.rows_mut(&c)));
        let variant = a.variant_with(&[d]);
        let launch = self.device.variant("context_tanh_backward", variant).view(a).view(d);
        let launch = launch.optional_view(dcontext).arg(shape.positions() as u32);
        // SAFETY: the maps are alike; `dcontext` has a row per item or is absent.
        unsafe { self.over_items(launch.arg(a.channels), variant, shape.batch, a.channels, 1) }
    }

    fn attentive_forward(
        &self,
        x: View<Self>,
        attention: ViewMut<Self>,
        floor: f32,
        stats: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, x, attention, stats) = (x.shape, self.rows(x), self.rows_mut(&attention), self.rows_mut(&stats));
        let variant = x.variant_with(&[attention]);
        let launch = self.device.variant("attentive", variant).view(x).view(attention).arg(floor);
        let launch = launch.view(stats).arg(shape.positions() as u32).arg(x.channels);
        // SAFETY: the maps are alike; `stats` has 2 · channels values per item.
        unsafe { self.over_items(launch, variant, shape.batch, x.channels, 4) }
    }

    fn attentive_backward(
        &self,
        x: View<Self>,
        attention: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        floor: f32,
        dlogits: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (shape, x, attention, stats, dstats) =
            (x.shape, self.rows(x), self.rows(attention), self.rows(stats), self.rows(dstats));
        let (dlogits, dx) = (self.rows_mut(&dlogits), self.rows_mut(&dx));
        let variant = x.variant_with(&[attention, dlogits, dx]);
        let launch = self.device.variant("attentive_backward", variant).view(x).view(attention);
        let launch = launch.view(stats).view(dstats).arg(floor);
        let launch = launch.view(dlogits).view(dx);
        // SAFETY: the maps are alike; the statistics have 2 · channels values per item.
        unsafe {
            self.over_items(launch.arg(shape.positions() as u32).arg(x.channels), variant, shape.batch, x.channels, 0)
        }
    }
}

fn moments_backward(
    cuda: &Cuda,
    x: View<Cuda>,
    statistics: [View<Cuda>; 2],
    spread: Spread,
    add: bool,
    through_relu: bool,
    dx: ViewMut<Cuda>,
) -> Result<()> {
    let (shape, x, [stats, dstats], dx) =
        (x.shape, cuda.rows(x), statistics.map(|view| cuda.rows(view)), cuda.rows_mut(&dx));
    let variant = x.variant_with(&[dx]);
    let launch = cuda.device.variant("moments_backward", variant).view(x).view(stats);
    let (epsilon, floored) = spread.numbers();
    let launch = launch.view(dstats).arg(epsilon).arg(floored).arg(i32::from(add)).arg(i32::from(through_relu));
    let launch = launch.view(dx).arg(shape.width as u32).arg(shape.height as u32).arg(x.channels);
    // SAFETY: the maps are alike; the statistics have 2 · channels · height values per item.
    unsafe { cuda.over_items(launch, variant, shape.batch * shape.height, x.channels, 0) }
}
