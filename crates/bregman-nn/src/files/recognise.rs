//! Which network a checkpoint is of: its size is written in the shapes of its tensors, under WeSpeaker's names.

use crate::{Architecture, Checkpoint, EcapaConfig, Error, ResNetConfig, Result};

impl Architecture {
    /// The network that a checkpoint of WeSpeaker or of ours is of. [`crate::Model::load`] then compares every tensor.
    ///
    /// # Errors
    /// Tensors of another network, or of a variant that is not here.
    pub fn of(checkpoint: &Checkpoint) -> Result<Self> {
        let tensors = &checkpoint.tensors;
        if tensors.contains_key("layer1.conv.weight") && tensors.contains_key("linear.weight") {
            return ecapa(checkpoint);
        }
        if tensors.contains_key("layer1.0.conv1.weight") && tensors.contains_key("seg_1.weight") {
            return resnet(checkpoint);
        }
        let some: Vec<&str> = tensors.keys().take(3).map(String::as_str).collect();
        unknown(format!(
            "its tensors ({} …) are neither those of WeSpeaker's ECAPA_TDNN nor of its ResNet",
            some.join(", ")
        ))
    }
}

fn ecapa(checkpoint: &Checkpoint) -> Result<Architecture> {
    let [channels, features, _] = shape(checkpoint, "layer1.conv.weight")?;
    let [embedding, statistics] = shape(checkpoint, "linear.weight")?;
    let [_, inputs, _] = shape(checkpoint, "pool.linear1.weight")?;
    let frames = statistics / 2;
    let global_context = match inputs {
        inputs if inputs == frames => false,
        inputs if inputs == 3 * frames => true,
        _ => {
            return unknown(format!(
                "pool.linear1 has {inputs} inputs for {frames} channels: attentive statistics take {frames} or 3 × \
                 {frames}"
            ));
        }
    };
    Ok(Architecture::Ecapa(EcapaConfig { channels, features, embedding, global_context }))
}

fn resnet(checkpoint: &Checkpoint) -> Result<Architecture> {
    let tensors = &checkpoint.tensors;
    if tensors.contains_key("layer1.0.conv3.weight") {
        return unknown(
            "a ResNet of bottleneck blocks (ResNet50 and deeper); only basic blocks (ResNet18, ResNet34) are known"
                .to_owned(),
        );
    }
    if tensors.contains_key("seg_2.weight") {
        return unknown("a ResNet with two embedding layers (two_emb_layer: true); only one is known".to_owned());
    }
    let [channels, _, _, _] = shape(checkpoint, "conv1.weight")?;
    let [embedding, statistics] = shape(checkpoint, "seg_1.weight")?;
    let blocks = [1, 2, 3, 4]
        .map(|stage| (0..).take_while(|i| tensors.contains_key(&format!("layer{stage}.{i}.conv1.weight"))).count());
    // two statistics of 8 × channels, over an eighth of the frequencies
    let features = statistics / (2 * channels.max(1));
    Ok(Architecture::ResNet(ResNetConfig { blocks, channels, features, embedding }))
}

fn shape<const N: usize>(checkpoint: &Checkpoint, tensor: &str) -> Result<[usize; N]> {
    let array = checkpoint.tensors.get(tensor).ok_or_else(|| Error::Missing { tensor: tensor.to_owned() })?;
    array
        .shape
        .as_slice()
        .try_into()
        .or_else(|_| unknown(format!("{tensor} has shape {:?}, expected {N} dimensions", array.shape)))
}

fn unknown<T>(problem: String) -> Result<T> {
    Err(Error::Unknown { problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, Model, Values};
    use bregman_tensor::Cpu;

    fn state(architecture: &Architecture) -> Checkpoint {
        Model::new(Cpu::new(), architecture, None, 1).unwrap().state().unwrap()
    }

    #[test]
    fn every_size_is_read_off_the_shapes() {
        let ecapa = |channels, features, embedding, global_context| {
            Architecture::Ecapa(EcapaConfig { channels, features, embedding, global_context })
        };
        let resnet = |blocks, channels, features, embedding| {
            Architecture::ResNet(ResNetConfig { blocks, channels, features, embedding })
        };
        for architecture in [
            ecapa(16, 80, 192, true),
            ecapa(8, 40, 64, false),
            resnet([3, 4, 6, 3], 4, 80, 256),
            resnet([2, 2, 2, 2], 2, 40, 32),
        ] {
            assert_eq!(Architecture::of(&state(&architecture)).unwrap(), architecture);
        }
    }

    #[test]
    fn other_networks_are_refused_by_what_they_are() {
        let fail = |checkpoint: &Checkpoint| Architecture::of(checkpoint).unwrap_err().to_string();
        let array =
            |shape: &[usize]| Array { shape: shape.to_vec(), values: Values::F32(vec![0.0; shape.iter().product()]) };
        let mut other = Checkpoint::default();
        assert!(fail(&other).contains("neither"));
        other.tensors.insert("encoder.block.0".to_owned(), array(&[1]));
        assert!(fail(&other).contains("encoder.block.0"));

        let resnet =
            state(&Architecture::ResNet(ResNetConfig { blocks: [1; 4], channels: 1, features: 8, embedding: 2 }));
        for (tensor, named) in [("layer1.0.conv3.weight", "bottleneck"), ("seg_2.weight", "two_emb_layer")] {
            let mut variant = resnet.clone();
            variant.tensors.insert(tensor.to_owned(), array(&[1]));
            assert!(fail(&variant).contains(named));
        }
        let ecapa =
            state(&Architecture::Ecapa(EcapaConfig { channels: 8, features: 8, embedding: 2, global_context: false }));
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
