//! Kernels that reduce over the positions of an item, or spread one value per channel and item over them. See
//! kernels/pooling.cu.

use super::Cuda;
use crate::{Result, View, ViewMut};

pub(super) fn mean(cuda: &Cuda, x: View<Cuda>, mean: ViewMut<Cuda>) -> Result<()> {
    let (shape, x, mean) = (x.shape, cuda.rows(x), cuda.rows_mut(&mean));
    let variant = x.variant();
    let launch = cuda.device.variant("mean", variant).arg(x.pointer).arg(x.stride).arg(shape.positions() as u32);
    let launch = launch.arg(mean.pointer).arg(mean.stride).arg(x.channels);
    // SAFETY: `mean` has a row per item of x.
    unsafe { cuda.over_items(launch, variant, shape.batch, x.channels, 1) }
}

pub(super) fn gate(cuda: &Cuda, x: View<Cuda>, gate: View<Cuda>, residual: View<Cuda>, y: ViewMut<Cuda>) -> Result<()> {
    let (shape, x, gate, residual, y) =
        (x.shape, cuda.rows(x), cuda.rows(gate), cuda.rows(residual), cuda.rows_mut(&y));
    let variant = x.variant_with(&[residual, y]);
    let launch = cuda.device.variant("gate", variant).arg(x.pointer).arg(x.stride).arg(gate.pointer).arg(gate.stride);
    let launch = launch.arg(residual.pointer).arg(residual.stride).arg(y.pointer).arg(y.stride);
    // SAFETY: the maps are alike; `gate` has a row per item.
    unsafe {
        cuda.over_items(launch.arg(shape.positions() as u32).arg(x.channels), variant, shape.batch, x.channels, 0)
    }
}

pub(super) fn gate_backward_gate(cuda: &Cuda, x: View<Cuda>, dy: View<Cuda>, dgate: ViewMut<Cuda>) -> Result<()> {
    let (shape, x, dy, dgate) = (x.shape, cuda.rows(x), cuda.rows(dy), cuda.rows_mut(&dgate));
    let variant = x.variant_with(&[dy]);
    let launch =
        cuda.device.variant("gate_backward_gate", variant).arg(x.pointer).arg(x.stride).arg(dy.pointer).arg(dy.stride);
    let launch = launch.arg(dgate.pointer).arg(dgate.stride).arg(shape.positions() as u32).arg(x.channels);
    // SAFETY: the maps are alike; `dgate` has a row per item.
    unsafe { cuda.over_items(launch, variant, shape.batch, x.channels, 1) }
}

pub(super) fn gate_backward_input(
    cuda: &Cuda,
    gate: View<Cuda>,
    dmean: View<Cuda>,
    dy: View<Cuda>,
    dx: ViewMut<Cuda>,
) -> Result<()> {
    let (shape, gate, dmean, dy, dx) = (dy.shape, cuda.rows(gate), cuda.rows(dmean), cuda.rows(dy), cuda.rows_mut(&dx));
    let variant = dy.variant_with(&[dx]);
    let launch =
        cuda.device.variant("gate_backward_input", variant).arg(gate.pointer).arg(gate.stride).arg(dmean.pointer);
    let launch = launch.arg(dmean.stride).arg(dy.pointer).arg(dy.stride).arg(dx.pointer).arg(dx.stride);
    // SAFETY: the maps are alike; `gate` and `dmean` have a row per item.
    unsafe {
        cuda.over_items(launch.arg(shape.positions() as u32).arg(dy.channels), variant, shape.batch, dy.channels, 0)
    }
}

pub(super) fn moments(cuda: &Cuda, x: View<Cuda>, stats: ViewMut<Cuda>) -> Result<()> {
    let (shape, x, stats) = (x.shape, cuda.rows(x), cuda.rows_mut(&stats));
    let variant = x.variant();
    let launch = cuda
        .device
        .variant("moments", variant)
        .arg(x.pointer)
        .arg(x.stride)
        .arg(shape.width as u32)
        .arg(shape.height as u32);
    let launch = launch.arg(stats.pointer).arg(stats.stride).arg(x.channels);
    // SAFETY: `stats` has 2 · channels · height values per item.
    unsafe { cuda.over_items(launch, variant, shape.batch * shape.height, x.channels, 1) }
}

pub(super) fn moments_backward(
    cuda: &Cuda,
    x: View<Cuda>,
    stats: View<Cuda>,
    dstats: View<Cuda>,
    add: bool,
    dx: ViewMut<Cuda>,
) -> Result<()> {
    let (shape, x, stats, dstats, dx) =
        (x.shape, cuda.rows(x), cuda.rows(stats), cuda.rows(dstats), cuda.rows_mut(&dx));
    let variant = x.variant_with(&[dx]);
    let launch = cuda
        .device
        .variant("moments_backward", variant)
        .arg(x.pointer)
        .arg(x.stride)
        .arg(stats.pointer)
        .arg(stats.stride);
    let launch = launch.arg(dstats.pointer).arg(dstats.stride).arg(i32::from(add)).arg(dx.pointer).arg(dx.stride);
    let launch = launch.arg(shape.width as u32).arg(shape.height as u32).arg(x.channels);
    // SAFETY: the maps are alike; the statistics have 2 · channels · height values per item.
    unsafe { cuda.over_items(launch, variant, shape.batch * shape.height, x.channels, 0) }
}

pub(super) fn context_tanh(cuda: &Cuda, context: Option<View<Cuda>>, h: ViewMut<Cuda>) -> Result<()> {
    let (shape, context, h) = (h.shape, context.map(|c| cuda.rows(c)), cuda.rows_mut(&h));
    let variant = h.variant();
    let launch = cuda.device.variant("context_tanh", variant).arg(context.map_or(0, |c| c.pointer));
    let launch = launch.arg(context.map_or(0, |c| c.stride)).arg(h.pointer).arg(h.stride).arg(shape.positions() as u32);
    // SAFETY: `context` has a row per item or is absent.
    unsafe { cuda.over_items(launch.arg(h.channels), variant, shape.batch, h.channels, 0) }
}

pub(super) fn context_tanh_backward(
    cuda: &Cuda,
    a: View<Cuda>,
    d: ViewMut<Cuda>,
    dcontext: Option<ViewMut<Cuda>>,
) -> Result<()> {
    let (shape, a, d, dcontext) = (a.shape, cuda.rows(a), cuda.rows_mut(&d), dcontext.map(|c| cuda.rows_mut(&c)));
    let variant = a.variant_with(&[d]);
    let launch =
        cuda.device.variant("context_tanh_backward", variant).arg(a.pointer).arg(a.stride).arg(d.pointer).arg(d.stride);
    let launch = launch
        .arg(dcontext.map_or(0, |c| c.pointer))
        .arg(dcontext.map_or(0, |c| c.stride))
        .arg(shape.positions() as u32);
    // SAFETY: the maps are alike; `dcontext` has a row per item or is absent.
    unsafe { cuda.over_items(launch.arg(a.channels), variant, shape.batch, a.channels, 1) }
}

pub(super) fn attentive(cuda: &Cuda, x: View<Cuda>, attention: ViewMut<Cuda>, stats: ViewMut<Cuda>) -> Result<()> {
    let (shape, x, attention, stats) = (x.shape, cuda.rows(x), cuda.rows_mut(&attention), cuda.rows_mut(&stats));
    let variant = x.variant_with(&[attention]);
    let launch = cuda
        .device
        .variant("attentive", variant)
        .arg(x.pointer)
        .arg(x.stride)
        .arg(attention.pointer)
        .arg(attention.stride);
    let launch = launch.arg(stats.pointer).arg(stats.stride).arg(shape.positions() as u32).arg(x.channels);
    // SAFETY: the maps are alike; `stats` has 2 · channels values per item.
    unsafe { cuda.over_items(launch, variant, shape.batch, x.channels, 4) }
}

pub(super) fn attentive_backward(
    cuda: &Cuda,
    x: View<Cuda>,
    attention: View<Cuda>,
    stats: View<Cuda>,
    dstats: View<Cuda>,
    dlogits: ViewMut<Cuda>,
    dx: ViewMut<Cuda>,
) -> Result<()> {
    let (shape, x, attention, stats, dstats) =
        (x.shape, cuda.rows(x), cuda.rows(attention), cuda.rows(stats), cuda.rows(dstats));
    let (dlogits, dx) = (cuda.rows_mut(&dlogits), cuda.rows_mut(&dx));
    let variant = x.variant_with(&[attention, dlogits, dx]);
    let launch = cuda.device.variant("attentive_backward", variant).arg(x.pointer).arg(x.stride).arg(attention.pointer);
    let launch =
        launch.arg(attention.stride).arg(stats.pointer).arg(stats.stride).arg(dstats.pointer).arg(dstats.stride);
    let launch = launch.arg(dlogits.pointer).arg(dlogits.stride).arg(dx.pointer).arg(dx.stride);
    // SAFETY: the maps are alike; the statistics have 2 · channels values per item.
    unsafe {
        cuda.over_items(launch.arg(shape.positions() as u32).arg(x.channels), variant, shape.batch, x.channels, 0)
    }
}
