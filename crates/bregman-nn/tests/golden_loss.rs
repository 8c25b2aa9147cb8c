//! AAM-softmax against WeSpeaker's and SpeechBrain's: loss and both gradients.

mod common;

use bregman_nn::{Builder, Context, Head, MarginClassifier, Values};
use bregman_tensor::{Backend, Cpu, Margin, Shape, Tensor};
use common::{Floats, furthest, json, largest, tensors};

#[test]
fn margin_loss_and_its_gradients_match_the_reference() {
    check(Cpu::new, 0.0);
}

/// On a GPU in bf16, embeddings and cosines are f32, and tensor cores read the first 10 bits behind the point of them:
/// a product is within 2 · 2⁻¹⁰ of itself, so the cosine of unit vectors, Σ |xᵢ wᵢ| ≤ 1, within 2⁻⁹.
#[cfg(feature = "cuda")]
#[test]
fn on_a_gpu_too() {
    use bregman_tensor::{Precision, cuda::Cuda};
    for (precision, cosine_error) in [(Precision::F32, 0.0), (Precision::Bf16, 2f32.powi(-9))] {
        if Cuda::open_or_skip(precision, bregman_skip::no_gpu).is_some() {
            check(|| Cuda::open(0, precision).unwrap(), cosine_error);
        }
    }
}

/// With cosines that are off by so much, a logit is off by `scale` times that, and that of the speaker, whose margin
/// steepens it, by less than twice as much; the logarithm of the softmax then by three times. So are the loss and, by
/// their largest value, the gradients.
fn check<B: Backend>(backend: impl Fn() -> B, cosine_error: f32) {
    let (file, settings) = (tensors("aam_loss"), json("aam_loss"));
    let Values::I64(labels) = &file.tensors["labels"].values else { panic!("labels are integers") };
    let labels: Vec<usize> = labels.iter().map(|&label| label as usize).collect();
    let [batch, dim] = file.tensors["embeddings"].shape[..] else { panic!("embeddings are a matrix") };
    let classes = file.tensors["weight"].shape[0];
    let scale = settings["scale"].as_f64().unwrap() as f32;
    let cosines = file.floats("cosine");
    let slack = 3.0 * scale * cosine_error;

    let mut compared = 0;
    for (name, case) in settings["cases"].as_object().unwrap() {
        let margin = Margin {
            scale,
            margin: case["margin"].as_f64().unwrap() as f32,
            easy: case["easy_margin"].as_bool().unwrap(),
        };
        let backend = backend();
        let mut builder = Builder::new(&backend, 0);
        let mut head = MarginClassifier::new(&mut builder, dim, classes).unwrap();
        let mut params = builder.finish().unwrap();
        backend.upload(file.floats("weight"), &mut params.all_mut()[0].value).unwrap();
        params.refresh(&backend).unwrap();
        let mut ctx = Context::new(backend, params);
        let mut x = Tensor::empty(&ctx.backend).unwrap();
        x.resize(&ctx.backend, Shape::vector(dim, batch)).unwrap();
        ctx.backend.write(file.floats("embeddings"), x.view_mut()).unwrap();
        let mut dx = ctx.take(x.shape()).unwrap();
        head.set_labels(&ctx.backend, &labels).unwrap();
        head.backward(&mut ctx, x.view(), margin, &mut dx).unwrap();
        let outcome = head.outcome(&ctx.backend).unwrap();

        let mut gradient = vec![0.0; batch * dim];
        ctx.backend.read(dx.view(), &mut gradient).unwrap();
        let mut weight_gradient = vec![0.0; classes * dim];
        ctx.backend.download(&ctx.params.all()[0].grad, &mut weight_gradient).unwrap();
        for (got, key) in [(&gradient[..], "grad_embeddings"), (&weight_gradient[..], "grad_weight")] {
            let expected = file.floats(&format!("{name}.{key}"));
            let error = furthest(got, expected) / largest(expected);
            println!("{name} {key}: relative error {error:e}");
            assert!(error <= 1e-4 + slack, "{name} {key}: relative error {error:e}");
        }
        let correct = (0..batch).filter(|&b| {
            let row = &cosines[b * classes..][..classes];
            row.iter().all(|&cosine| cosine <= row[labels[b]])
        });
        assert_eq!(outcome.correct, correct.count(), "{name}: accuracy is that of the plain cosines");
        // beyond cos(π − m) SpeechBrain's form has a jump; its loss there differs by a constant (json `differences`)
        if name.starts_with("wespeaker") {
            let expected = file.floats(&format!("{name}.loss"))[0];
            println!("{name}: loss {}, expected {expected}", outcome.loss);
            let tolerance = 1e-5 * expected + slack;
            assert!((outcome.loss - expected).abs() <= tolerance, "{name}: loss {} not {expected}", outcome.loss);
        }
        compared += 1;
    }
    assert!(compared > 0);
}
