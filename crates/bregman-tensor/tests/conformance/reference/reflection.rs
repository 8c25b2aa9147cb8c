//! Mirrored signals.

use bregman_tensor::{Reflection, Result, View, ViewMut};

use super::{Read, Reference, Write};

/// The frame of a signal of `n` frames that frame `t` of the mirrored one shows.
fn shown(t: usize, edge: usize, n: usize) -> usize {
    let (t, last) = (t as isize - edge as isize, n as isize - 1);
    (if t < 0 { -t } else { t.min(2 * last - t) }) as usize
}

impl Reflection for Reference {
    fn reflect(&self, x: View<Self>, mut y: ViewMut<Self>) -> Result<()> {
        let (n, wide) = (x.shape.width, y.shape.width);
        y.fill(|b, c, t, _| x.get(b, c, shown(t, (wide - n) / 2, n)));
        self.store(&mut y)
    }

    fn reflect_backward(&self, dy: View<Self>, add: bool, mut dx: ViewMut<Self>) -> Result<()> {
        let (n, wide) = (dx.shape.width, dy.shape.width);
        dx.fill(|b, c, t, before| {
            let shows = |&at: &usize| shown(at, (wide - n) / 2, n) == t;
            let gradient: f64 = (0..wide).filter(shows).map(|at| dy.get(b, c, at)).sum();
            if add { before + gradient } else { gradient }
        });
        self.store(&mut dx)
    }
}
