//! A weight whose zeros stay zero for some steps, and then wake up.

use bregman_tensor::{Backend, Block, Conv, OutputStart, Tensor, View, Weight};

use super::cases::Cases;
use crate::harness::exact;

impl<B: Backend> Cases<'_, B> {
    /// The products after each of two changes in which every zero stays zero and some weights become zero, and after
    /// one in which some zeros wake up. The buffer of the gradient is used again, whatever it holds.
    pub(super) fn frozen_steps(
        &mut self,
        conv: &Conv,
        x: View<B>,
        dy: &Tensor<B>,
        block: Block,
        mut weight: Vec<f32>,
        name: &dyn Fn(&str) -> String,
    ) {
        let (backend, count) = (self.backend, weight.len());
        let mut value = exact(backend, &weight);
        let mut copies = B::Copies::default();
        backend.refresh(&value, block, &mut copies).unwrap();
        let mut dw = exact(backend, &vec![7.0; count]);
        for step in 0..3 {
            let change = |(i, w): (usize, &mut f32)| {
                *w = match step {
                    2 if i % 4 == 1 => 1.0,
                    _ if i % 7 == step => 0.0,
                    _ => -*w,
                }
            };
            weight.iter_mut().enumerate().for_each(change);
            backend.upload(&weight, &mut value).unwrap();
            if step < 2 {
                backend.refresh_support(&value, block, &mut copies).unwrap();
            } else {
                backend.refresh(&value, block, &mut copies).unwrap();
            }
            let w = Weight { value: &value, block, copies: &copies };
            let (mut y, mut dx) = (self.poisoned(dy.shape()), self.poisoned(x.shape));
            backend.conv_forward(conv, x, w, OutputStart::Zero, y.view_mut()).unwrap();
            backend.conv_backward_input(conv, w, dy.view(), false, dx.view_mut()).unwrap();
            backend.conv_backward_support(conv, x, dy.view(), w, &mut dw).unwrap();
            self.keep(&name(&format!("forward after step {step}")), &y);
            self.keep(&name(&format!("input gradient after step {step}")), &dx);
            self.keep_exact(&name(&format!("support's gradient after step {step}")), &dw, count);
        }
    }
}
