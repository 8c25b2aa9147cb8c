//! Which network a checkpoint is of.

use bregman_network::{Architecture, TensorShapes};

use crate::{Checkpoint, Error, Result};

impl Checkpoint {
    /// The network that a checkpoint of WeSpeaker, 3D-Speaker, SpeechBrain or of ours is of, its size read off the
    /// shapes of its tensors.
    /// [`crate::TrainableModel::load`] then compares every tensor.
    ///
    /// # Errors
    /// Tensors of another network, or of a variant that is not here.
    pub fn architecture(&self) -> Result<Architecture> {
        let shape = |name: &str| self.tensors.get(name).map(|array| array.shape.as_slice());
        Architecture::recognise(&TensorShapes(&shape)).map_err(|unknown| {
            let first: Vec<&str> = self.tensors.keys().take(3).map(String::as_str).collect();
            Error::Unknown { problem: format!("{unknown} (it has {} …)", first.join(", ")) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, EcapaConfig, ResNetConfig, TrainableModel, Values};
    use bregman_tensor::Cpu;

    fn state(architecture: &Architecture) -> Checkpoint {
        TrainableModel::new(Cpu::new(), architecture, None, 1).unwrap().state().unwrap()
    }

    #[test]
    fn every_size_is_read_off_the_shapes() {
        let ecapa = |channels, features, embedding, global_context| {
            Architecture::new(features, EcapaConfig { channels, embedding, global_context })
        };
        let resnet = |blocks, channels, features, embedding| {
            Architecture::new(features, ResNetConfig { blocks, channels, embedding })
        };
        for architecture in [
            ecapa(16, 80, 192, true),
            ecapa(8, 40, 64, false),
            resnet([3, 4, 6, 3], 4, 80, 256),
            resnet([2, 2, 2, 2], 2, 40, 32),
        ] {
            assert_eq!(state(&architecture).architecture().unwrap(), architecture);
        }
    }

    #[test]
    fn other_networks_are_refused_by_what_they_are() {
        let fail = |checkpoint: &Checkpoint| checkpoint.architecture().unwrap_err().to_string();
        let array =
            |shape: &[usize]| Array { shape: shape.to_vec(), values: Values::F32(vec![0.0; shape.iter().product()]) };
        let mut other = Checkpoint::default();
        assert!(fail(&other).contains("none of the known networks"));
        other.tensors.insert("encoder.block.0".to_owned(), array(&[1]));
        assert!(fail(&other).contains("encoder.block.0"));

        let resnet = state(&Architecture::new(8, ResNetConfig { blocks: [1; 4], channels: 1, embedding: 2 }));
        for (tensor, named) in [("layer1.0.conv3.weight", "bottleneck"), ("seg_2.weight", "two_emb_layer")] {
            let mut variant = resnet.clone();
            variant.tensors.insert(tensor.to_owned(), array(&[1]));
            assert!(fail(&variant).contains(named));
        }
        let ecapa = state(&Architecture::new(8, EcapaConfig { channels: 8, embedding: 2, global_context: false }));
        let mut flat = ecapa.clone();
        flat.tensors.insert("linear.weight".to_owned(), array(&[6144]));
        assert!(fail(&flat).contains("linear.weight has shape [6144]"));
        let mut odd = ecapa.clone();
        odd.tensors.insert("pool.linear1.weight".to_owned(), array(&[128, 7, 1]));
        assert!(fail(&odd).contains("7 inputs"));
        let mut lacking = ecapa;
        lacking.tensors.remove("pool.linear1.weight");
        assert!(fail(&lacking).contains("pool.linear1.weight"));
    }
}
