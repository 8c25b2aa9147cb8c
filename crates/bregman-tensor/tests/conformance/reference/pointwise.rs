//! Values one by one, and all gradients at once.

use bregman_tensor::{Activation, Gradients, PointwiseOps, Result, View, ViewMut};

use super::{Read, Reference, Write, indices};

impl PointwiseOps for Reference {
    fn copy(&self, from: View<Self>, mut to: ViewMut<Self>) -> Result<()> {
        to.fill(|b, c, p, _| from.get(b, c, p));
        self.store(&mut to)
    }

    fn add(&self, a: View<Self>, b: View<Self>, mut sum: ViewMut<Self>) -> Result<()> {
        sum.fill(|item, c, p, _| a.get(item, c, p) + b.get(item, c, p));
        self.store(&mut sum)
    }

    fn accumulate(&self, from: View<Self>, mut to: ViewMut<Self>) -> Result<()> {
        to.fill(|b, c, p, value| value + from.get(b, c, p));
        self.store(&mut to)
    }

    fn activate(&self, f: Activation, mut x: ViewMut<Self>) -> Result<()> {
        if f == Activation::Relu {
            self.note_relu(x.shape, |b, c, p| x.get(b, c, p));
        }
        x.fill(|_, _, _, x| match f {
            Activation::Relu => x.max(0.0),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        });
        self.store(&mut x)
    }

    fn activate_backward(&self, f: Activation, y: View<Self>, mut d: ViewMut<Self>) -> Result<()> {
        d.fill(|b, c, p, d| match (f, y.get(b, c, p)) {
            (Activation::Relu, y) => d * f64::from(u8::from(y > 0.0)),
            (Activation::Sigmoid, y) => d * y * (1.0 - y),
        });
        self.store(&mut d)
    }

    fn all_finite(&self, x: View<Self>) -> Result<bool> {
        Ok(indices(x.shape).all(|(b, c, p)| x.get(b, c, p).is_finite()))
    }
}

impl Gradients for Reference {
    fn clip_later(&self, gradients: &mut [&mut Vec<f64>], limit: f32) -> Result<Vec<f32>> {
        let norm = gradients.iter().flat_map(|gradient| gradient.iter()).map(|g| g * g).sum::<f64>().sqrt();
        let factor = (f64::from(limit) / norm).min(1.0);
        gradients.iter_mut().flat_map(|gradient| gradient.iter_mut()).for_each(|g| *g *= factor);
        Ok(vec![norm as f32])
    }
}
