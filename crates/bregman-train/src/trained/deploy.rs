//! A network on its way out of training: a run of ours, or a dense checkpoint of WeSpeaker, 3D-Speaker or SpeechBrain,
//! with the front end it needs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bregman_audio::{FbankConfig, FilterbankKind, RATE, Waveform};
use bregman_base::files::read_bytes;
use bregman_network::Architecture;
use bregman_nn::{Checkpoint, TrainableModel, Values};
use bregman_runtime::{FrontEnd, ModelFile};
use bregman_tensor::Cpu;
use safetensors::SafeTensors;

use super::front_end;
use crate::config::FrontEndChoice;
use crate::run::checkpoint::MOST_BYTES;
use crate::{CheckpointFolder, Error, Result, Trained};

/// What the classifier's tensors are called; nobody deploys it.
pub(super) const CLASSIFIER: &str = "projection.";

/// What pyannote puts before the names of a WeSpeaker network.
pub(super) const PYANNOTE: &str = "resnet.";

/// What others put before every name: PyTorch where it trains on several GPUs, and pyannote.
const WRAPPERS: [&str; 2] = ["module.", PYANNOTE];

/// A checkpoint with the names of its network, and the prefix that they had, if all of them had one.
fn unwrapped(Checkpoint { tensors }: Checkpoint) -> (Option<&'static str>, Checkpoint) {
    let wrapper = WRAPPERS.into_iter().find(|prefix| tensors.keys().all(|name| name.starts_with(prefix)));
    let prefix = wrapper.unwrap_or("");
    let plain = |(name, array): (String, _)| (name.strip_prefix(prefix).map(str::to_owned).unwrap_or(name), array);
    (wrapper, Checkpoint { tensors: tensors.into_iter().map(plain).collect() })
}

/// The front end in the header of the safetensors files that we export.
const FEATURES: &str = "features";

/// A network without its classifier, and the filterbank it was trained on.
pub struct Deployable {
    model: TrainableModel<Cpu>,
    architecture: Architecture,
    features: FbankConfig,
    found: Option<String>,
    source: PathBuf,
}

impl Deployable {
    /// Opens a run (its best checkpoint, or else its last), a checkpoint of one, or a `.pt` or `.safetensors` file of
    /// WeSpeaker, 3D-Speaker, pyannote (`pytorch_model.bin`) or SpeechBrain (`embedding_model.ckpt`), whose
    /// architecture is read off the shapes of its tensors.
    ///
    /// # Errors
    /// A path that is none of these, a network that is not here, or a file that does not tell its front end.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, None)
    }

    /// As [`Deployable::open`], with a front end for a file of others instead of the one that it shows.
    ///
    /// # Errors
    /// As [`Deployable::open`], a front end for other features than the network reads, or one for a run, which knows
    /// its own.
    pub fn open_with(path: &Path, front_end: Option<FrontEndChoice>) -> Result<Self> {
        let run = if path.is_file() { checkpoint_around(path) } else { Some(path) };
        match (run, front_end) {
            (None, _) => Self::foreign(path, front_end),
            (Some(run), None) => Self::run(run),
            (Some(run), Some(front_end)) => Err(Error::Setting {
                field: "front_end",
                value: front_end.to_string(),
                expected: format!("nothing: the run {} knows its own", run.display()),
            }),
        }
    }

    fn run(path: &Path) -> Result<Self> {
        let trained = Trained::load(path)?;
        let state = trained.model().state()?.without(CLASSIFIER);
        let (architecture, features) =
            (trained.experiment().architecture(), trained.experiment().data.features.fbank());
        Ok(Self {
            model: built(&architecture, &state)?,
            architecture,
            features,
            found: None,
            source: trained.checkpoint().path().to_owned(),
        })
    }

    fn foreign(path: &Path, asked: Option<FrontEndChoice>) -> Result<Self> {
        let bytes = read_bytes(path, MOST_BYTES)?;
        let (wrapper, whole) = unwrapped(Checkpoint::from_bytes(&bytes, path)?);
        let named = |error: bregman_nn::Error| Error::checkpoint(path, error.to_string());
        let architecture = whole.architecture().map_err(named)?;
        let bins = architecture.features;
        let (features, found) = match (asked, noted(&bytes).map_err(|problem| Error::checkpoint(path, problem))?) {
            (Some(front_end), _) => (front_end.fbank(bins)?, None),
            (None, Some(features)) => (features, None),
            (None, None) => {
                let (front_end, because) = front_end::find(&architecture.network, &whole, wrapper)
                    .ok_or_else(|| Error::FrontEndUnknown(path.to_owned()))?;
                (front_end.fbank(bins)?, Some(format!("{front_end}: {because}")))
            }
        };
        let model = built(&architecture, &whole.without(CLASSIFIER)).map_err(named)?;
        Ok(Self { model, architecture, features, found, source: path.to_owned() })
    }

    /// The network.
    pub fn model(&self) -> &TrainableModel<Cpu> {
        &self.model
    }

    /// What kind of network, and how large.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Its front end.
    pub fn features(&self) -> &FbankConfig {
        &self.features
    }

    /// Which front end a foreign checkpoint was taken to have, and why; none where a run, its own header or the caller
    /// said so.
    pub fn front_end_found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// The file or checkpoint it was read from.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The model file to be, without a threshold: batch norms folded, in single precision.
    ///
    /// # Errors
    /// Weights that are not finite.
    pub fn to_model(&self) -> Result<ModelFile> {
        model_file(self.architecture, &self.features, &self.model.state()?)
            .map_err(|error| Error::checkpoint(&self.source, error.to_string()))
    }

    /// The bytes of an ONNX file; its properties hold the front end's settings as JSON, and what sherpa-onnx asks for
    /// where it can compute such features.
    ///
    /// # Errors
    /// None but the device's.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        let features = self.features_json()?;
        let outputs = self.model.outputs().to_string();
        let mut properties = vec![(FEATURES, features.as_str())];
        properties.extend(sherpa_properties(&self.features, &outputs));
        Ok(self.model.to_onnx(&properties)?)
    }

    /// Writes the weights under their names, as the `state_dict` in a `.pt` file that `torch.load` and the network's
    /// toolkit read.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_pt(&self, path: &Path) -> Result<()> {
        Ok(self.model.state()?.write_pt(path)?)
    }

    /// Writes the weights under their names, as safetensors with the front end in the header.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_safetensors(&self, path: &Path) -> Result<()> {
        let header = HashMap::from([(FEATURES.to_owned(), self.features_json()?)]);
        Ok(self.model.state()?.write_with(path, header)?)
    }

    fn features_json(&self) -> Result<String> {
        serde_json::to_string(&self.features).map_err(|error| Error::checkpoint(&self.source, error.to_string()))
    }
}

/// The model file of a network's weights, without a threshold.
///
/// # Errors
/// Weights that are not finite.
pub(crate) fn model_file(
    architecture: Architecture,
    features: &FbankConfig,
    state: &Checkpoint,
) -> bregman_runtime::Result<ModelFile> {
    let tensor = |name: &str| match state.tensors.get(name)? {
        bregman_nn::Array { shape, values: Values::F32(values) } => Some((shape.as_slice(), values.as_slice())),
        _ => None,
    };
    ModelFile::from_state(architecture, FrontEnd::from(features), tensor)
}

/// What sherpa-onnx reads of a speaker network; nothing where it cannot compute the features, which are Kaldi's there.
/// Its filterbank ends at 7600 Hz and has Povey's window, whatever a network was trained on.
fn sherpa_properties<'a>(features: &FbankConfig, outputs: &'a str) -> Vec<(&'static str, &'a str)> {
    if !matches!(features.front_end, FilterbankKind::Kaldi { .. }) || features.rate != RATE {
        return Vec::new();
    }
    // samples in ±1 or as 16-bit numbers
    let (framework, in_one) = match features.waveform {
        Waveform::Decoded => ("3d-speaker", "1"),
        Waveform::Leveled | Waveform::Sixteen => ("wespeaker", "0"),
    };
    vec![
        ("framework", framework),
        ("language", "any"),
        ("url", ""),
        ("comment", "written by bregman"),
        ("sample_rate", "16000"),
        ("output_dim", outputs),
        ("normalize_samples", in_one),
        ("feature_normalize_type", "global-mean"),
    ]
}

/// The checkpoint of a run whose weights a file holds.
fn checkpoint_around(file: &Path) -> Option<&Path> {
    let folder = file.parent()?;
    let checkpoint = CheckpointFolder::new(folder);
    (checkpoint.is_present() && checkpoint.model() == file).then_some(folder)
}

/// The front end that [`Deployable::write_safetensors`] put into the header of a file.
fn noted(bytes: &[u8]) -> std::result::Result<Option<FbankConfig>, String> {
    let header = SafeTensors::read_metadata(bytes).ok().and_then(|(_, header)| header.metadata().clone());
    let json = header.and_then(|mut header| header.remove(FEATURES));
    json.map(|json| serde_json::from_str(&json).map_err(|error| format!("{FEATURES} in its header: {error}")))
        .transpose()
}

fn built(architecture: &Architecture, state: &Checkpoint) -> bregman_nn::Result<TrainableModel<Cpu>> {
    let mut model = TrainableModel::new(Cpu::new(), architecture, None, 0)?;
    model.load(state)?;
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_network::{CampPlusConfig, EcapaConfig, ResNetConfig, SpeechBrainEcapaConfig};
    use bregman_nn::Input;

    fn architectures() -> [Architecture; 4] {
        let ecapa = EcapaConfig { channels: 8, embedding: 12, global_context: false };
        let resnet = ResNetConfig { blocks: [1, 2, 1, 1], channels: 2, embedding: 9 };
        let campplus = CampPlusConfig { head: 2, channels: 4, growth: 2, bottleneck: 2, embedding: 6 };
        let speechbrain = SpeechBrainEcapaConfig { channels: 8, pooled: 16, embedding: 5, global_context: true };
        [
            Architecture::new(40, ecapa),
            Architecture::new(80, resnet),
            Architecture::new(16, campplus),
            Architecture::new(24, speechbrain),
        ]
    }

    #[test]
    fn a_wespeaker_checkpoint_loses_its_classifier_and_keeps_its_embeddings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("avg_model.safetensors");
        for architecture in architectures() {
            let mut model = TrainableModel::new(Cpu::new(), &architecture, Some(5), 7).unwrap();
            let tensors = model
                .state()
                .unwrap()
                .tensors
                .into_iter()
                .map(|(name, array)| (format!("module.{name}"), array))
                .collect();
            Checkpoint { tensors }.write(&path).unwrap();
            let mut imported = Deployable::open(&path).unwrap();
            assert_eq!(imported.architecture, architecture);
            assert_eq!((imported.features().bins, imported.source()), (model.features(), &*path));
            assert!(imported.model().state().unwrap().tensors.keys().all(|name| !name.starts_with(CLASSIFIER)));
            let values: Vec<f32> = (0..16 * model.features()).map(|i| (i as f32).sin()).collect();
            let input = Input { values: &values, batch: 1, frames: 16 };
            assert_eq!(imported.model.embed(input).unwrap(), model.embed(input).unwrap());

            let runtime = imported.to_model().unwrap().to_bytes(bregman_runtime::ValueFormat::F32).unwrap();
            let runtime = bregman_runtime::Model::from_bytes(&runtime).unwrap();
            let cosine =
                bregman_runtime::cosine(&runtime.embed_features(&values).unwrap(), &model.embed(input).unwrap());
            assert!(1.0 - cosine <= 1e-6, "{architecture:?}: cosine {cosine}");

            // what is written as plain weights is a checkpoint again
            let again = folder.path().join("again.safetensors");
            imported.write_safetensors(&again).unwrap();
            assert_eq!(Checkpoint::read(&again).unwrap(), imported.model().state().unwrap());
            let back = Deployable::open(&again).unwrap();
            assert_eq!((back.features(), back.front_end_found()), (imported.features(), None), "its header says it");
            let pt = folder.path().join("again.pt");
            imported.write_pt(&pt).unwrap();
            let back = Deployable::open_with(&pt, Some(FrontEndChoice::WeSpeaker)).unwrap();
            assert_eq!(back.model().state().unwrap(), imported.model().state().unwrap());
            assert_eq!(back.architecture(), imported.architecture());
        }
    }

    #[test]
    fn an_imported_network_computes_what_wespeaker_does() {
        let imported = Deployable::open(&bregman_golden::file("model.pt")).unwrap();
        let golden = |name: &str| Checkpoint::read(&bregman_golden::file(&format!("{name}.safetensors"))).unwrap();
        let floats = |checkpoint: &Checkpoint, name: &str| match &checkpoint.tensors[name].values {
            Values::F32(values) => values.clone(),
            Values::I64(_) => panic!("{name} is not floating point"),
        };
        let (x, expected) = (golden("model_input"), golden("model_pt_expected"));
        let shape = &x.tensors["x"].shape;
        let mut imported = imported;
        let got = imported.model.embed(Input { values: &floats(&x, "x"), batch: shape[0], frames: shape[1] }).unwrap();
        let expected = floats(&expected, "eval_embedding");
        let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        assert!(got.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 2e-5 * largest));
    }

    /// A file as `torch.save` wrote it, and what SpeechBrain's filterbank, normalisation and network make of samples.
    #[test]
    fn a_checkpoint_of_speechbrain_computes_what_it_does_from_samples_to_the_embedding() {
        let mut imported = Deployable::open(&bregman_golden::file("embedding_model.ckpt")).unwrap();
        let network = SpeechBrainEcapaConfig { channels: 16, pooled: 32, embedding: 12, global_context: true };
        assert_eq!(*imported.architecture(), Architecture::new(80, network));
        let golden = bregman_golden::Tensors::load("embedding_model_expected");
        let [samples, features, expected] = ["samples", "features", "embedding"].map(|name| golden.f32(name));
        let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0f32, |apart, (a, b)| apart.max((a - b).abs()));
        let largest = apart(&expected, &vec![0.0; expected.len()]);

        let frames = golden.shape("features")[0];
        let got = imported.model.embed(Input { values: &features, batch: 1, frames }).unwrap();
        assert!(apart(&got, &expected) <= 2e-5 * largest, "from features: {:e}", apart(&got, &expected) / largest);

        let mut ours = bregman_audio::Fbank::new(imported.features().clone()).unwrap().compute(&samples);
        ours.subtract_mean();
        // What rounding the loudest bin of a frame is, in dB, to one at the floor, 80 dB below it. Most are far above.
        let rounding = 20.0 / std::f32::consts::LN_10 * f32::EPSILON / 2.0 * 1e4;
        let worst = apart(&ours.data, &features);
        assert!(worst <= rounding, "in dB: {worst:e}, {rounding:e} allowed");
        let mean = ours.data.iter().zip(&features).map(|(a, b)| (a - b).abs()).sum::<f32>() / features.len() as f32;
        assert!(mean <= 5e-5, "in dB, in the mean: {mean:e}");
        let model = imported.to_model().unwrap().to_bytes(bregman_runtime::ValueFormat::F32).unwrap();
        let model = bregman_runtime::Model::from_bytes(&model).unwrap();
        let got = model.embed(&samples).unwrap();
        assert!(apart(&got, &expected) <= 1e-4 * largest, "from samples: {:e}", apart(&got, &expected) / largest);
        // four frames are mirrored at each end, so five are needed: four hops of 160 samples
        assert_eq!(model.shortest(), 640);
        assert!(model.embed(&samples[..640]).unwrap().iter().all(|value| value.is_finite()));
    }

    /// A file as `torch.save` wrote it, by `tools/golden/pyannote.py`.
    #[test]
    fn a_checkpoint_of_pyannote_is_unwrapped_and_keeps_its_front_end() {
        let imported = Deployable::open(&bregman_golden::file("pyannote.bin")).unwrap();
        let network = ResNetConfig { blocks: [1; 4], channels: 1, embedding: 3 };
        assert_eq!(*imported.architecture(), Architecture::new(8, network));
        assert_eq!(*imported.features(), FbankConfig { bins: 8, ..FbankConfig::wespeaker() });
        let state = imported.model().state().unwrap();
        let array = &state.tensors["layer2.0.conv1.weight"];
        let expected: Vec<f32> = (0..18).map(|at| at as f32 / 64.0).collect();
        assert_eq!((&*array.shape, &array.values), (&[2, 1, 3, 3][..], &Values::F32(expected)));
    }

    #[test]
    fn sherpa_onnx_is_told_how_samples_are_scaled_and_nothing_of_features_that_it_has_not() {
        let decoded = sherpa_properties(&FbankConfig::three_d_speaker(), "192");
        let sixteen = sherpa_properties(&FbankConfig::wespeaker(), "256");
        for (properties, expected) in [(decoded, ["3d-speaker", "1", "192"]), (sixteen, ["wespeaker", "0", "256"])] {
            let value = |key: &str| properties.iter().find(|(name, _)| *name == key).unwrap().1;
            assert_eq!(["framework", "normalize_samples", "output_dim"].map(value), expected);
        }
        assert_eq!(sherpa_properties(&FbankConfig::speechbrain(), "192"), []);
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.safetensors");
        let fail = || Deployable::open(&path).map(|_| ()).unwrap_err();
        assert!(fail().to_string().contains("does not exist"));
        std::fs::write(&path, "rubbish").unwrap();
        assert!(fail().to_string().contains("other.safetensors"));
        let [ecapa, ..] = architectures();
        let mut state = TrainableModel::new(Cpu::new(), &ecapa, None, 7).unwrap().state().unwrap();
        state.tensors.remove("conv.bias");
        state.write(&path).unwrap();
        let error = fail();
        assert!(error.to_string().contains("conv.bias") && error.is_user_mistake(), "{error}");
        state.without("layer").write(&path).unwrap();
        assert!(fail().to_string().contains("none of the known networks"));
    }
}
