//! Statistics over the positions of an item.

use bregman_tensor::{Pooling, Result, Shape, Spread, View, ViewMut};

use super::{Read, Reference, Write};

/// Items and channels.
fn rows(shape: Shape) -> impl Iterator<Item = (usize, usize)> {
    (0..shape.batch).flat_map(move |b| (0..shape.channels).map(move |c| (b, c)))
}

/// The sum of `f` over positions.
fn sum(positions: usize, f: impl Fn(usize) -> f64) -> f64 {
    (0..positions).map(f).sum()
}

impl Pooling for Reference {
    fn mean_forward(&self, x: View<Self>, mut mean: ViewMut<Self>) -> Result<()> {
        let n = x.shape.positions();
        mean.fill(|b, c, _, _| sum(n, |p| x.get(b, c, p)) / n as f64);
        Ok(())
    }

    fn gate_forward(&self, x: View<Self>, gate: View<Self>, residual: View<Self>, mut y: ViewMut<Self>) -> Result<()> {
        y.fill(|b, c, p, _| residual.get(b, c, p) + gate.get(b, c, 0) * x.get(b, c, p));
        self.store(&mut y)
    }

    fn gate_backward_gate(&self, x: View<Self>, dy: View<Self>, mut dgate: ViewMut<Self>) -> Result<()> {
        dgate.fill(|b, c, _, _| sum(x.shape.positions(), |p| x.get(b, c, p) * dy.get(b, c, p)));
        Ok(())
    }

    fn gate_backward_input(
        &self,
        gate: View<Self>,
        dmean: View<Self>,
        dy: View<Self>,
        mut dx: ViewMut<Self>,
    ) -> Result<()> {
        let n = dy.shape.positions() as f64;
        dx.fill(|b, c, p, _| gate.get(b, c, 0) * dy.get(b, c, p) + dmean.get(b, c, 0) / n);
        self.store(&mut dx)
    }

    fn moments_forward(&self, x: View<Self>, spread: Spread, mut stats: ViewMut<Self>) -> Result<()> {
        let Shape { channels, height, width: n, .. } = x.shape;
        for (b, c) in rows(x.shape) {
            for h in 0..height {
                let x = |t: usize| x.get(b, c, h * n + t);
                let mean = sum(n, x) / n as f64;
                let squares = sum(n, |t| (x(t) - mean).powi(2));
                let variance = match spread {
                    Spread::Raised(epsilon) => squares / (n.max(2) - 1) as f64 + f64::from(epsilon),
                    Spread::Floored(floor) => (squares / n as f64).max(f64::from(floor)),
                };
                stats.set(b, c * height + h, 0, mean);
                stats.set(b, (channels + c) * height + h, 0, variance.sqrt());
            }
        }
        Ok(())
    }

    fn moments_backward(
        &self,
        x: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        spread: Spread,
        add: bool,
        mut dx: ViewMut<Self>,
    ) -> Result<()> {
        let Shape { channels, height, width: n, .. } = x.shape;
        let (least, divisor) = match spread {
            Spread::Raised(_) => (0.0, n.max(2) - 1),
            Spread::Floored(floor) => (f64::from(floor).sqrt(), n),
        };
        dx.fill(|b, c, p, before| {
            let [mean, deviation] = [c * height + p / n, (channels + c) * height + p / n];
            let found = stats.get(b, deviation, 0);
            let along = if found > least { (x.get(b, c, p) - stats.get(b, mean, 0)) / found } else { 0.0 };
            let gradient = dstats.get(b, mean, 0) / n as f64 + dstats.get(b, deviation, 0) * along / divisor as f64;
            if add { before + gradient } else { gradient }
        });
        self.store(&mut dx)
    }

    fn context_add(&self, context: View<Self>, mut h: ViewMut<Self>) -> Result<()> {
        h.fill(|b, c, _, h| h + context.get(b, c, 0));
        self.store(&mut h)
    }

    fn context_add_backward(&self, dh: View<Self>, mut dcontext: ViewMut<Self>) -> Result<()> {
        dcontext.fill(|b, c, _, _| sum(dh.shape.positions(), |p| dh.get(b, c, p)));
        Ok(())
    }

    fn context_tanh(&self, context: Option<View<Self>>, mut h: ViewMut<Self>) -> Result<()> {
        h.fill(|b, c, _, h| (h + context.map_or(0.0, |context| context.get(b, c, 0))).tanh());
        self.store(&mut h)
    }

    fn context_tanh_backward(
        &self,
        a: View<Self>,
        mut d: ViewMut<Self>,
        dcontext: Option<ViewMut<Self>>,
    ) -> Result<()> {
        d.fill(|b, c, p, d| d * (1.0 - a.get(b, c, p).powi(2)));
        if let Some(mut dcontext) = dcontext {
            dcontext.fill(|b, c, _, _| sum(a.shape.positions(), |p| d.get(b, c, p)));
        }
        self.store(&mut d)
    }

    fn attentive_forward(
        &self,
        x: View<Self>,
        mut attention: ViewMut<Self>,
        floor: f32,
        mut stats: ViewMut<Self>,
    ) -> Result<()> {
        let (channels, n) = (x.shape.channels, x.shape.positions());
        for (b, c) in rows(x.shape) {
            let largest = (0..n).map(|p| attention.get(b, c, p)).fold(f64::NEG_INFINITY, f64::max);
            let total = sum(n, |p| (attention.get(b, c, p) - largest).exp());
            (0..n).for_each(|p| attention.set(b, c, p, (attention.get(b, c, p) - largest).exp() / total));
            let mean = sum(n, |p| attention.get(b, c, p) * x.get(b, c, p));
            let variance = sum(n, |p| attention.get(b, c, p) * (x.get(b, c, p) - mean).powi(2));
            stats.set(b, c, 0, mean);
            stats.set(b, channels + c, 0, variance.max(f64::from(floor)).sqrt());
        }
        self.store(&mut attention)
    }

    fn attentive_backward(
        &self,
        x: View<Self>,
        attention: View<Self>,
        stats: View<Self>,
        dstats: View<Self>,
        floor: f32,
        mut dlogits: ViewMut<Self>,
        mut dx: ViewMut<Self>,
    ) -> Result<()> {
        let (channels, n) = (x.shape.channels, x.shape.positions());
        for (b, c) in rows(x.shape) {
            let (mean, deviation) = (stats.get(b, c, 0), stats.get(b, channels + c, 0));
            // at its floor the deviation is a constant
            let moves = deviation > f64::from(floor).sqrt();
            let dvariance = if moves { dstats.get(b, channels + c, 0) / (2.0 * deviation) } else { 0.0 };
            let dmean = dstats.get(b, c, 0) - 2.0 * mean * dvariance;
            let (x, weight) = (|p: usize| x.get(b, c, p), |p: usize| attention.get(b, c, p));
            let dweight = |p: usize| dmean * x(p) + dvariance * x(p) * x(p);
            let centre = sum(n, |p| weight(p) * dweight(p));
            for p in 0..n {
                dlogits.set(b, c, p, weight(p) * (dweight(p) - centre));
                dx.set(b, c, p, weight(p) * (dmean + 2.0 * dvariance * x(p)));
            }
        }
        self.store(&mut dlogits)?;
        self.store(&mut dx)
    }
}
