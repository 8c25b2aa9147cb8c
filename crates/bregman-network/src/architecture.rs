//! The list of networks, and a network together with the features it reads.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::size::within;
use crate::{CampPlusConfig, EcapaConfig, Graph, LayerSpec, ResNetConfig, SizeError, SpeechBrainEcapaConfig};

/// Weights of the largest network: twenty times those of the usual ones, a gigabyte in single precision.
const MOST_WEIGHTS: u64 = 1 << 28;

/// From the list of networks: the enum, the conversions into it, and the recognition of checkpoints.
macro_rules! networks {
    ($($(#[$about:meta])* $kind:ident($config:ident), called $called:literal;)+) => {
        /// Every network, with its size: the `[model]` table of a recipe.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        pub enum NetworkConfig {
            $($(#[$about])* $kind($config),)+
        }

        impl NetworkConfig {
            /// What checkpoints of each network are called, for messages.
            const CALLED: &[&str] = &[$($called),+];

            fn described(&self) -> &dyn Described {
                match self {
                    $(Self::$kind(config) => config,)+
                }
            }

            fn recognise(tensors: &TensorShapes) -> Recognised {
                None$(.or_else(|| $config::recognise(tensors)))+
            }
        }

        $(impl From<$config> for NetworkConfig {
            fn from(config: $config) -> Self {
                Self::$kind(config)
            }
        })+
    };
}

networks! {
    /// ECAPA-TDNN: speaker embeddings from frames.
    Ecapa(EcapaConfig), called "WeSpeaker's ECAPA_TDNN";
    /// ResNet34 and its like: speaker embeddings from the time-frequency plane.
    ResNet(ResNetConfig), called "WeSpeaker's ResNet";
    /// CAM++: speaker embeddings from densely connected frame layers behind a small ResNet.
    CampPlus(CampPlusConfig), called "3D-Speaker's and WeSpeaker's CAMPPlus";
    /// ECAPA-TDNN as SpeechBrain has it.
    #[serde(rename = "speechbrain-ecapa")]
    SpeechBrainEcapa(SpeechBrainEcapaConfig), called "SpeechBrain's ECAPA_TDNN";
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self::Ecapa(EcapaConfig::default())
    }
}

/// A network, or why a variant of it is not here; none where it is another one.
pub(crate) type Recognised = Option<Result<Architecture, UnknownNetwork>>;

/// What the file of a network states.
pub(crate) trait Described {
    /// Values of an embedding.
    fn embedding(&self) -> usize;
    /// Channels, as a share of the published network's.
    fn width(&self) -> f64;
    /// The bounds of all settings but the embedding's, which is the same for all networks.
    fn check(&self, features: usize) -> Result<(), SizeError>;
    /// All layers in the order of the `state_dict`, which is that of a model file.
    fn layers(&self, features: usize) -> Vec<LayerSpec>;
    /// The same layers in the order of execution.
    fn graph(&self, features: usize) -> Graph;
    /// Name and size in a few words.
    fn summary(&self) -> String;
    /// The settings that tensors of these shapes have; none where they are of another network.
    fn recognise(tensors: &TensorShapes) -> Recognised
    where
        Self: Sized;
}

/// Which network, how large, and how many features it reads: all that decides its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Architecture {
    /// Filterbank bins.
    pub features: usize,
    /// The network and its size.
    #[serde(flatten)]
    pub network: NetworkConfig,
}

impl Architecture {
    /// A network for features of so many bins.
    ///
    /// ```
    /// use bregman_network::{Architecture, EcapaConfig};
    /// let architecture = Architecture::new(80, EcapaConfig { channels: 512, ..EcapaConfig::default() });
    /// assert_eq!(architecture.layers()[0].shape(), [512, 80, 5]);
    /// ```
    pub fn new(features: usize, network: impl Into<NetworkConfig>) -> Self {
        Self { features, network: network.into() }
    }

    /// Values of an embedding.
    pub fn embedding(&self) -> usize {
        self.network.described().embedding()
    }

    /// Channels, as a share of the published network's: 1 for ECAPA-TDNN with 1024.
    pub fn width(&self) -> f64 {
        self.network.described().width()
    }

    /// Refuses sizes that no network has.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), SizeError> {
        within("embedding", self.embedding(), 8192, 1, "1 to 8192")?;
        self.network.described().check(self.features)?;
        let weights: u64 = self.layers().iter().map(|layer| layer.weights() as u64).sum();
        if weights <= MOST_WEIGHTS {
            Ok(())
        } else {
            Err(SizeError { field: "weights", value: weights as usize, expected: "at most 2²⁸" })
        }
    }

    /// The fewest frames it takes: mirroring an input at its ends needs more frames than are mirrored.
    pub fn fewest_frames(&self) -> usize {
        1 + self.layers().iter().map(LayerSpec::mirrored).max().unwrap_or(0)
    }

    /// All layers with weights, in the order of a model file.
    pub fn layers(&self) -> Vec<LayerSpec> {
        self.network.described().layers(self.features)
    }

    /// What reads what.
    pub fn graph(&self) -> Graph {
        self.network.described().graph(self.features)
    }

    /// The network whose tensors have these shapes; the size of a network is written in them.
    ///
    /// # Errors
    /// Tensors of a network, of a variant or of a size that is not here.
    pub fn recognise(tensors: &TensorShapes) -> Result<Self, UnknownNetwork> {
        let found = NetworkConfig::recognise(tensors).unwrap_or_else(|| {
            let known = NetworkConfig::CALLED.join(", ");
            Err(UnknownNetwork(format!("its tensors are those of none of the known networks ({known})")))
        })?;
        found.check().map_err(|size| UnknownNetwork(format!("{size} (as its tensors have it)")))?;
        Ok(found)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (summary, embedding) = (self.network.described().summary(), self.embedding());
        write!(f, "{summary}, {} features, embeddings of {embedding}", self.features)
    }
}

/// The shapes of a checkpoint's tensors, by name.
pub struct TensorShapes<'a>(pub &'a dyn Fn(&str) -> Option<&'a [usize]>);

impl TensorShapes<'_> {
    pub(crate) fn has(&self, tensor: &str) -> bool {
        (self.0)(tensor).is_some()
    }

    /// A tensor of exactly `N` dimensions.
    pub(crate) fn shape<const N: usize>(&self, tensor: &str) -> Result<[usize; N], UnknownNetwork> {
        let shape = (self.0)(tensor).ok_or_else(|| UnknownNetwork(format!("it lacks {tensor}")))?;
        let wrong = |_| UnknownNetwork(format!("{tensor} has shape {shape:?}, expected {N} dimensions"));
        shape.try_into().map_err(wrong)
    }
}

/// Why tensors are of no network here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownNetwork(pub String);
