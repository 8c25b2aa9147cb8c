//! What a foreign checkpoint tells about the front end it was trained with. Names and shapes of tensors alone do not:
//! a CAM++ of WeSpeaker and one of 3D-Speaker have the same.

use bregman_network::NetworkConfig;
use bregman_nn::{Checkpoint, Values};

use super::deploy::{CLASSIFIER, PYANNOTE};
use crate::config::FrontEndChoice;

/// A front end, and why it is taken to be that of a checkpoint.
pub(super) type Found = (FrontEndChoice, &'static str);

/// The front end of a checkpoint, its classifier still in it; none where nothing tells.
pub(super) fn find(network: &NetworkConfig, state: &Checkpoint, wrapper: Option<&str>) -> Option<Found> {
    use FrontEndChoice::{SpeechBrain, ThreeDSpeaker, WeSpeaker};
    if wrapper == Some(PYANNOTE) {
        return Some((WeSpeaker, "pyannote keeps it for the networks that it wraps"));
    }
    let classified = state.tensors.keys().any(|name| name.starts_with(CLASSIFIER));
    if classified && !matches!(network, NetworkConfig::SpeechBrainEcapa(_)) {
        return Some((WeSpeaker, "the file has a classifier, which WeSpeaker saves with a network"));
    }
    match network {
        NetworkConfig::CampPlus(_) if counted_twice(state) => {
            Some((ThreeDSpeaker, "a norm has counted every batch twice, as in 3D-Speaker's training"))
        }
        NetworkConfig::CampPlus(_) => None,
        NetworkConfig::Ecapa(_) | NetworkConfig::ResNet(_) => {
            Some((WeSpeaker, "assumed from the names of its tensors"))
        }
        NetworkConfig::SpeechBrainEcapa(_) => {
            Some((SpeechBrain, "assumed from its layers, which the ECAPA-TDNN of 3D-Speaker has, too"))
        }
    }
}

/// 3D-Speaker saves memory in training by computing the first half of each dense layer again on the way back, so its
/// norm counts every batch twice. WeSpeaker's copy of the network does not.
fn counted_twice(state: &Checkpoint) -> bool {
    let batches = |norm: &str| {
        let name = format!("xvector.block1.tdnnd1.{norm}.batchnorm.num_batches_tracked");
        match &state.tensors.get(&name)?.values {
            Values::I64(count) => count.first().map(|&count| count as f64),
            Values::F32(count) => count.first().map(|&count| f64::from(count)),
        }
    };
    let (first, second) = (batches("nonlinear1"), batches("nonlinear2"));
    first.zip(second).is_some_and(|(first, second)| second > 0.0 && first == 2.0 * second)
}
