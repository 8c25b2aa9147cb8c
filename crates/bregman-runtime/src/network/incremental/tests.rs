//! The front of every network against the whole recording at once: to the bit, but for layers that are computed by
//! Winograd's method where there is a whole recording.

use bregman_network::{Architecture, CampPlusConfig, EcapaConfig, ResNetConfig, SpeechBrainEcapaConfig};
use bregman_nn::{Rng, TrainableModel, Values};
use bregman_tensor::Cpu;
use proptest::prelude::*;

use super::super::campplus::MARGIN;
use super::super::ecapa::SLOTS;
use super::*;
use crate::file::{Contents, Source};
use crate::kernels::KernelCosts;
use crate::{FrontEnd, Instructions, ModelFile, ValueFormat};

const BINS: usize = 16;

/// A network with random weights, some of them zero.
fn network(config: impl Into<bregman_network::NetworkConfig>, sparsity: f32) -> Network {
    let architecture = Architecture::new(BINS, config);
    let mut state = TrainableModel::new(Cpu::new(), &architecture, None, 1).unwrap().state().unwrap();
    let mut rng = Rng::new(2);
    for array in state.tensors.values_mut() {
        if let (Values::F32(values), true) = (&mut array.values, array.shape.len() > 1) {
            values.iter_mut().filter(|_| rng.symmetric(1.0) < 2.0 * sparsity - 1.0).for_each(|value| *value = 0.0);
        }
    }
    let tensor = |name: &str| match state.tensors.get(name).map(|array| (&array.shape, &array.values)) {
        Some((shape, Values::F32(values))) => Some((shape.as_slice(), values.as_slice())),
        _ => None,
    };
    let front_end =
        FrontEnd::from(&bregman_audio::FbankConfig { bins: BINS, ..bregman_audio::FbankConfig::speechbrain() });
    let file = ModelFile::from_state(architecture, front_end, tensor).unwrap();
    let bytes = file.to_bytes(ValueFormat::F32).unwrap();
    let source = Source::memory(&bytes).unwrap();
    Network::new(&Contents::parse(&source).unwrap(), None, &KernelCosts::BUILT_IN).unwrap().0
}

fn features(frames: usize) -> Vec<f32> {
    let mut rng = Rng::new(frames as u64);
    (0..frames * BINS).map(|_| rng.symmetric(3.0)).collect()
}

fn execution() -> Execution<'static> {
    Execution { arch: Instructions::best().arch().unwrap(), team: None, times: None }
}

/// `[row][column]` of the local part of `Network::forward`.
fn expected(network: &Network, features: &[f32]) -> Vec<Vec<f32>> {
    let (mut workspace, mut run) = (network.workspace(), execution());
    match (network, &mut workspace) {
        (Network::Ecapa(network), Workspace::Ecapa(work)) => {
            let strips = network.before_the_first_gate(&mut run, work, features);
            let channels = network.channels;
            let row = |row: usize| -> Vec<f32> {
                let strip = |strip| &work.outputs[(SLOTS * channels * strip + row) * STRIP..][..strips.width(strip)];
                (0..strips.count()).flat_map(strip).copied().collect()
            };
            (0..2 * channels).map(row).collect()
        }
        (Network::ResNet(network), Workspace::ResNet(work)) => {
            let last = network.convolutions(&mut run, work, features);
            let (plane, stage) = (work.planes[3], network.stages[3]);
            let values = work.stages[3][last].rows(&run, plane.shape(stage.channels));
            let row = |row| {
                let at = row / stage.height * plane.size + plane.start + row % stage.height * plane.pitch;
                values[at..at + plane.width].to_vec()
            };
            (0..stage.channels * stage.height).map(row).collect()
        }
        (Network::CampPlus(network), Workspace::CampPlus(work)) => {
            network.before_the_first_mask(&mut run, work, features);
            let (signal, rows) = (work.signal, work.signals[0].chunks_exact(work.signal.pitch));
            let row = |row: &[f32]| row[MARGIN..MARGIN + signal.frames].to_vec();
            rows.take(network.first.weights.rows()).map(row).collect()
        }
        _ => unreachable!("{FOREIGN}"),
    }
}

/// The network that mirrors its input.
const MIRRORS: usize = 2;
/// Networks from here on have layers that are computed by Winograd's method.
const WINOGRAD: usize = 7;
const NETWORKS: usize = 9;

fn small(which: usize) -> Network {
    let ecapa = |sparsity| network(EcapaConfig { channels: 16, embedding: 4, global_context: true }, sparsity);
    let resnet = |blocks, channels, sparsity| network(ResNetConfig { blocks, channels, embedding: 4 }, sparsity);
    let campplus = |head, sparsity| {
        network(CampPlusConfig { head, channels: 9, growth: 2, bottleneck: 2, embedding: 4 }, sparsity)
    };
    match which {
        0 => ecapa(0.2),
        1 => ecapa(0.8),
        MIRRORS => {
            network(SpeechBrainEcapaConfig { channels: 16, pooled: 32, embedding: 4, global_context: true }, 0.5)
        }
        3 => resnet([1, 1, 1, 1], 1, 0.5),
        4 => resnet([2, 1, 3, 1], 3, 0.9),
        5 => campplus(1, 0.5),
        6 => campplus(3, 0.9),
        WINOGRAD => resnet([1, 1, 2, 1], 16, 0.5),
        8 => campplus(16, 0.4),
        _ => unreachable!("no network {which}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(36))]

    /// Also where the recording was taken to end in between, again and again.
    #[test]
    fn a_front_in_any_pieces_gives_the_columns_of_the_whole_recording(
        which in 0..NETWORKS,
        frames in 1usize..400,
        pieces in prop::collection::vec(1usize..150, 1..6),
    ) {
        let (network, all, mut run) = (small(which), features(frames), execution());
        let mut incremental = Incremental::new(&network, BINS, frames);
        let (mut heard, mut piece) = (0, pieces.iter().cycle());
        while heard < frames {
            let now = frames.min(heard + piece.next().unwrap());
            incremental.advance(&network, &mut run, &all[heard * BINS..now * BINS]);
            heard = now;
            prop_assert!(heard < incremental.settled() + incremental.context() + incremental.step);
            if which == MIRRORS && heard < 5 {
                continue; // too few to be mirrored
            }
            let expected = expected(&network, &all[..heard * BINS]);
            incremental.at_the_end(&network, &mut run, |incremental, _| {
                prop_assert_eq!(incremental.history.end(), heard.div_ceil(incremental.step));
                let largest = expected.iter().flatten().fold(0f32, |largest, value| largest.max(value.abs()));
                let tolerance = if which >= WINOGRAD { 2e-5 * largest } else { 0.0 };
                for (row, expected) in expected.iter().enumerate() {
                    let ours = &incremental.history.row(row, 0)[..expected.len()];
                    let near = ours.iter().zip(expected).all(|(ours, value)| (ours - value).abs() <= tolerance);
                    prop_assert!(near, "row {row} of {heard} frames: {ours:?} for {expected:?}");
                }
                Ok(())
            })?;
        }
    }
}
