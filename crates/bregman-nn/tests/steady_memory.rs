//! Once warm, a training step takes no memory of its own: buffers are reused, and only `gemm` packs its operands on the
//! way.

use bregman_nn::{Architecture, EcapaConfig, Input, ResNetConfig, TrainableModel};
use bregman_tensor::{Cpu, Margin, Precision};

/// What each thread may take for packing; the activations of each case here are ten times larger.
const SCRATCH: isize = 1 << 20;

#[global_allocator]
static ALLOCATOR: bregman_memory::Counting = bregman_memory::Counting;

#[test]
fn a_warm_training_step_reuses_its_buffers() {
    let (batch, frames, features) = (4, 50, 80);
    let values: Vec<f32> = (0..batch * frames * features).map(|i| (i % 13) as f32 * 0.1).collect();
    let labels: Vec<usize> = (0..batch).collect();
    let scratch = SCRATCH * std::thread::available_parallelism().unwrap().get() as isize;
    for architecture in [
        Architecture::new(80, EcapaConfig { channels: 64, ..EcapaConfig::default() }),
        Architecture::new(80, ResNetConfig { channels: 8, ..ResNetConfig::default() }),
    ] {
        for (precision, zeros) in [(Precision::F32, 0), (Precision::F32, 19), (Precision::Bf16, 0)] {
            let mut model = TrainableModel::new(Cpu::with_precision(precision), &architecture, Some(2000), 0).unwrap();
            for parameter in model.params_mut().all_mut().iter_mut().filter(|parameter| parameter.param.shape.len() > 1)
            {
                parameter
                    .value
                    .iter_mut()
                    .enumerate()
                    .filter(|(i, _)| i % 20 < zeros)
                    .for_each(|(_, weight)| *weight = 0.0);
            }
            let mut step = || {
                model.refresh().unwrap();
                let input = Input { values: &values, batch, frames };
                model.gradients(input, &labels, Margin { scale: 32.0, margin: 0.2, easy: false }).unwrap()
            };
            // thread-local scratch of every thread has grown after a few steps
            for _ in 0..6 {
                step();
            }
            let (_, taken) = bregman_memory::of_process(step);
            let case = format!("{architecture:?}, {precision:?}, {zeros} of 20 zero");
            assert!(taken.kept < scratch && taken.peak < scratch, "{case}: {taken:?}");
        }
    }
}
