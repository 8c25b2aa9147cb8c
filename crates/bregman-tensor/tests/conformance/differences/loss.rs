//! Cross-entropy and the margin softmax.

use bregman_tensor::{Backend, Block, Conv, Margin, OutputStart, Shape, Weight};

use super::check;
use crate::harness::{Random, exact, poisoned, read_exact, tensor, values};

pub(super) fn losses<B: Backend>(backend: &B) {
    for (dim, classes, batch) in [(1, 2, 1), (7, 5, 3), (33, 19, 8)] {
        let labels: Vec<f32> = (0..batch).map(|item| ((item * 3 + 1) % classes) as f32).collect();
        let mut random = Random(6);
        let inputs = [random.values(batch * classes)];
        let scores = Shape::vector(classes, batch);
        let run = |inputs: &[Vec<f32>]| {
            let mut d = tensor(backend, scores, &inputs[0]);
            let mut outcome = exact(backend, &[f32::NAN; 2]);
            backend.cross_entropy(&exact(backend, &labels), d.view_mut(), &mut outcome).unwrap();
            (read_exact(backend, &outcome, 2)[0], values(backend, &d))
        };
        let name = format!("cross-entropy, {classes} classes, batch {batch}");
        check(
            &name,
            1e-2,
            &inputs,
            |inputs| vec![run(inputs).0],
            |inputs, c| vec![run(inputs).1.iter().map(|d| c[0] * d).collect()],
        );

        let block = Block { rows: classes, stride: dim, first: 0, columns: dim, taps: 1 };
        let inputs = [random.away_from_zero(batch * dim), random.away_from_zero(classes * dim)];
        let margin = Margin { scale: 4.0, margin: 0.2, easy: false };
        let vector = Shape::vector(dim, batch);
        let run = |inputs: &[Vec<f32>]| {
            let (x, w) = (tensor(backend, vector, &inputs[0]), exact(backend, &inputs[1]));
            let (mut unit, mut d, mut dx) =
                (poisoned(backend, vector), poisoned(backend, scores), poisoned(backend, vector));
            let (mut lengths, mut rows, mut radial) = (
                exact(backend, &vec![0.0; batch]),
                exact(backend, &vec![0.0; classes]),
                exact(backend, &vec![0.0; classes]),
            );
            let mut outcome = exact(backend, &[f32::NAN; 2]);
            let copies = B::Copies::default();
            let weight = Weight { value: &w, mask: None, block, copies: &copies };
            backend.unit_forward(x.view(), unit.view_mut(), &mut lengths).unwrap();
            backend.row_lengths(&w, block, &mut rows).unwrap();
            backend.conv_forward(&Conv::POINTWISE, unit.view(), weight, OutputStart::Zero, d.view_mut()).unwrap();
            backend
                .margin_loss(margin, &rows, &exact(backend, &labels), d.view_mut(), &mut radial, &mut outcome)
                .unwrap();
            backend.conv_backward_input(&Conv::POINTWISE, weight, d.view(), false, dx.view_mut()).unwrap();
            backend.unit_backward(unit.view(), &lengths, dx.view_mut()).unwrap();
            let mut dw = exact(backend, &vec![f32::NAN; classes * dim]);
            backend.conv_backward_weight(&Conv::POINTWISE, unit.view(), d.view(), block, &mut dw).unwrap();
            backend.remove_radial(&w, &radial, block, &mut dw).unwrap();
            (read_exact(backend, &outcome, 2)[0], [values(backend, &dx), read_exact(backend, &dw, classes * dim)])
        };
        let times = |c: f32, gradients: [Vec<f32>; 2]| gradients.map(|g| g.iter().map(|g| c * g).collect()).to_vec();
        let name = format!("margin softmax, dim {dim}, {classes} classes, batch {batch}");
        check(&name, 1e-3, &inputs, |inputs| vec![run(inputs).0], |inputs, c| times(c[0], run(inputs).1));
    }
}
