//! A network of one's own, trained to 90 % zeros: `cargo run --release -p own-network`.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `mixing.rs` | a layer written against the [`Backend`](bregman_tensor::Backend): its parameter, forward, backward |
//! | `network.rs` | a [`Network`](bregman_nn::Network) of that layer and of ours |
//! | `main.rs` | the training loop: gradients, the adaptive optimizer, λ steered to the target |

mod data;
mod mixing;
mod network;

use bregman::{
    AdaBreg, AdaptiveOptimizer, ControllerConfig, Groups, InitialMask, MaskUnit, Rule, Survivors, sparse_init,
};
use bregman_nn::{CrossEntropy, Input, Rng, TrainableModel};
use bregman_tensor::{Cpu, Margin};

use data::{CLASSES, FEATURES, FRAMES};
use network::SweepNetwork;

const CHANNELS: usize = 48;
const BATCH: usize = 32;
/// [`CrossEntropy`] has no margin.
const PLAIN: Margin = Margin { scale: 1.0, margin: 0.0, easy: false };

/// How a run ended.
struct Ending {
    sparsity: f64,
    /// Share of recordings, none of them seen in training, that were recognised.
    accuracy: f64,
}

fn train(target: f64, steps: usize) -> Result<Ending, Box<dyn std::error::Error>> {
    let mut model = TrainableModel::with_network(Cpu::new(), 1, |builder| {
        let network = SweepNetwork::new(builder, FEATURES, CHANNELS, CLASSES)?;
        Ok((Box::new(network), Some(Box::new(CrossEntropy::new(builder, CLASSES)?))))
    })?;

    // ℓ1 on every weight; biases and norms stay dense, as their roles say
    let groups = Groups::resolve(model.params().described(), vec![])?;
    let (mut weights, _) = model.params_mut().values_and_gradients();
    sparse_init(&groups, &mut weights, InitialMask { unit: MaskUnit::Element, survivors: Survivors::Rescale }, 1)?;
    let control = ControllerConfig { period: 5, lambda: Some(0.1), ..ControllerConfig::new(target) };
    let mut optimizer = AdaptiveOptimizer::new(Rule::AdaBreg(AdaBreg::default()), groups, control, &weights)?;
    model.refresh()?;

    let mut rng = Rng::new(2);
    let mut sparsity = 0.0;
    for step in 0..steps {
        let batch = data::batch(&mut rng, BATCH);
        let input = Input { values: &batch.values, batch: BATCH, frames: FRAMES };
        let outcome = model.gradients(input, &batch.labels, PLAIN)?;
        let (mut weights, gradients) = model.params_mut().values_and_gradients();
        let report = optimizer.step(&mut weights, &gradients, 0.01)?;
        model.refresh()?;
        sparsity = report.sparsity;
        if step % 100 == 99 {
            let (lambda, zeros, right) = (report.lambda, 100.0 * sparsity, 100 * outcome.correct / BATCH);
            println!(
                "step {:4}  loss {:.3}  {right:3} % right  λ {lambda:.4}  {zeros:.1} % zeros",
                step + 1,
                outcome.loss
            );
        }
    }
    let unseen = data::batch(&mut Rng::new(3), 500);
    let input = Input { values: &unseen.values, batch: 500, frames: FRAMES };
    let outcome = model.evaluate(input, &unseen.labels, PLAIN)?;
    Ok(Ending { sparsity, accuracy: outcome.correct as f64 / 500.0 })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Ending { sparsity, accuracy } = train(0.9, 1000)?;
    println!("{:.1} % zeros, {:.1} % of 500 new recordings recognised", 100.0 * sparsity, 100.0 * accuracy);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ones_own_is_trained_to_the_target_and_recognises_new_recordings() {
        let Ending { sparsity, accuracy } = train(0.9, 1000).unwrap();
        assert!((sparsity - 0.9).abs() < 0.01, "{sparsity}");
        assert!(accuracy > 0.95, "{accuracy}");
    }
}
