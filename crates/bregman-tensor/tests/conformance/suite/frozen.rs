//! A weight whose zeros stay zero for some steps, or are those of a mask, and then wake up.

use bregman_tensor::{Backend, Block, Conv, OutputStart, Tensor, View, Weight};

use super::cases::Cases;
use crate::harness::exact;

impl<B: Backend> Cases<'_, B> {
    /// The products after each of two changes in which every zero stays zero and some weights become zero, and after
    /// one in which some zeros wake up; without a mask, and under one that the third change moves. The buffer of the
    /// gradient is used again, whatever it holds.
    pub(super) fn frozen_steps(
        &mut self,
        conv: &Conv,
        x: View<B>,
        dy: &Tensor<B>,
        block: Block,
        weight: Vec<f32>,
        name: &dyn Fn(&str) -> String,
    ) {
        let (backend, count) = (self.backend, weight.len());
        for masked in [false, true] {
            let mut weight = weight.clone();
            let kept = |step: usize, i: usize| i % 3 != step / 2;
            let mask_at = |step: usize| -> Vec<f32> { (0..count).map(|i| f32::from(kept(step, i))).collect() };
            let (mut value, mut mask) = (exact(backend, &weight), exact(backend, &mask_at(0)));
            let mut copies = B::Copies::default();
            backend.refresh(&value, masked.then_some(&mask), block, &mut copies).unwrap();
            let mut dw = exact(backend, &vec![7.0; count]);
            for step in 0..3 {
                let change = |(i, w): (usize, &mut f32)| {
                    *w = match step {
                        _ if masked && !kept(step, i) => 0.0,
                        2 if i % 4 == 1 => 1.0,
                        _ if i % 7 == step => 0.0,
                        _ => -*w,
                    }
                };
                weight.iter_mut().enumerate().for_each(change);
                backend.upload(&weight, &mut value).unwrap();
                backend.upload(&mask_at(step), &mut mask).unwrap();
                let mask = masked.then_some(&mask);
                if step < 2 {
                    backend.refresh_support(&value, mask, block, &mut copies).unwrap();
                } else {
                    backend.refresh(&value, mask, block, &mut copies).unwrap();
                }
                let w = Weight { value: &value, mask, block, copies: &copies };
                let (mut y, mut dx) = (self.poisoned(dy.shape()), self.poisoned(x.shape));
                backend.conv_forward(conv, x, w, OutputStart::Zero, y.view_mut()).unwrap();
                backend.conv_backward_input(conv, w, dy.view(), false, dx.view_mut()).unwrap();
                backend.conv_backward_support(conv, x, dy.view(), w, &mut dw).unwrap();
                let name = |what: &str| name(&format!("{what} after step {step}, masked {masked}"));
                self.keep(&name("forward"), &y);
                self.keep(&name("input gradient"), &dx);
                self.keep_exact(&name("support's gradient"), &dw, count);
            }
        }
    }
}
