//! Every network's statements agree with each other: its list of layers, its graph, its tensors, its settings as text.

use std::collections::{BTreeMap, BTreeSet};

use bregman_network::{
    Architecture, CampPlusConfig, EcapaConfig, LayerKind, Operation, Pointwise, ResNetConfig, SpeechBrainEcapaConfig,
    TensorShapes,
};

fn all() -> Vec<Architecture> {
    vec![
        Architecture::new(80, EcapaConfig::default()),
        Architecture::new(40, EcapaConfig { channels: 8, embedding: 12, global_context: false }),
        Architecture::new(80, ResNetConfig::default()),
        Architecture::new(8, ResNetConfig { blocks: [1, 2, 1, 1], channels: 2, embedding: 9 }),
        Architecture::new(80, CampPlusConfig::default()),
        Architecture::new(16, CampPlusConfig { head: 3, channels: 5, growth: 3, bottleneck: 2, embedding: 7 }),
        Architecture::new(80, SpeechBrainEcapaConfig::default()),
        Architecture::new(40, SpeechBrainEcapaConfig { channels: 8, pooled: 48, embedding: 12, global_context: false }),
    ]
}

#[test]
fn the_graph_has_the_layers_of_the_list_and_feeds_each_what_it_reads() {
    for architecture in all() {
        let graph = architecture.graph();
        let extents = graph.extents();
        let mut listed: BTreeMap<String, _> =
            architecture.layers().into_iter().map(|layer| (layer.name.clone(), layer)).collect();
        let mut names = BTreeSet::new();
        for (number, node) in graph.nodes().iter().enumerate() {
            assert!(names.insert(&node.name), "{architecture}: two nodes {}", node.name);
            assert!(node.inputs.iter().all(|input| input.0 < number), "{architecture}: {} reads ahead", node.name);
            let Operation::Layer(layer) = &node.operation else { continue };
            assert_eq!(listed.remove(&layer.name).as_ref(), Some(layer), "{architecture}");
            let read: Vec<usize> = node.inputs.iter().map(|input| extents[input.0].channels).collect();
            let (weighted, residual) = read.split_at(layer.inputs.len());
            assert_eq!(weighted, layer.inputs, "{architecture}: {}", layer.name);
            let expected = if layer.after.contains(&Pointwise::Residual) { vec![layer.outputs] } else { vec![] };
            assert_eq!(residual, expected, "{architecture}: {}", layer.name);
            let plane = extents[node.inputs[0].0].height.is_some();
            assert_eq!(plane, matches!(layer.kind, LayerKind::Conv2d { .. }), "{architecture}: {}", layer.name);
        }
        assert!(listed.is_empty(), "{architecture}: nobody reads {:?}", listed.keys());
        let last = extents[extents.len() - 1];
        assert_eq!((last.channels, last.step), (architecture.embedding(), None));
    }
}

#[test]
fn a_network_is_recognised_by_its_tensors() {
    for architecture in all() {
        let listed: Vec<_> = architecture.layers().iter().flat_map(|layer| layer.tensors()).collect();
        let tensors: BTreeMap<String, Vec<usize>> = listed.iter().cloned().collect();
        assert_eq!(tensors.len(), listed.len(), "{architecture}: every tensor has a name of its own");
        let shape = |name: &str| tensors.get(name).map(Vec::as_slice);
        assert_eq!(Architecture::recognise(&TensorShapes(&shape)), Ok(architecture));
    }
}

#[test]
fn tensors_of_a_network_that_is_too_large_are_refused_by_its_size() {
    let large = 1usize << 31;
    let shape = |name: &str| match name {
        "layer1.conv.weight" => Some(&[1 << 31, 80, 5][..]),
        "linear.weight" => Some(&[192, 1 << 31][..]),
        "pool.linear1.weight" => Some(&[128, 1 << 30, 1][..]),
        _ => None,
    };
    let refused = Architecture::recognise(&TensorShapes(&shape)).unwrap_err().to_string();
    assert_eq!(refused, format!("channels = {large}: a multiple of 8, at most 4096 (as its tensors have it)"));
}

/// As headers of model files have them since the first version.
const HEADERS: [&str; 4] = [
    r#"{"kind":"ecapa","channels":512,"features":80,"embedding":192,"global_context":false}"#,
    r#"{"kind":"resnet","blocks":[3,4,6,3],"channels":32,"features":80,"embedding":256}"#,
    r#"{"kind":"campplus","head":32,"channels":128,"growth":32,"bottleneck":4,"features":80,"embedding":192}"#,
    r#"{"kind":"speechbrain-ecapa","channels":1024,"pooled":3072,"features":80,"embedding":192,"global_context":true}"#,
];

#[test]
fn settings_are_written_and_read_under_their_names() {
    let ecapa = Architecture::new(80, EcapaConfig { channels: 512, embedding: 192, global_context: false });
    let resnet = Architecture::new(80, ResNetConfig::default());
    let campplus = Architecture::new(80, CampPlusConfig::default());
    let speechbrain = Architecture::new(80, SpeechBrainEcapaConfig::default());
    for (architecture, header) in [ecapa, resnet, campplus, speechbrain].into_iter().zip(HEADERS) {
        assert_eq!(serde_json::from_str::<Architecture>(header).unwrap(), architecture);
        let written = serde_json::to_value(architecture).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(header).unwrap());
        let fail = |text: &str| serde_json::from_str::<Architecture>(text).unwrap_err().to_string();
        assert!(fail(&header.replace("embedding", "size")).contains("size"));
        assert!(fail(&header.replace("features", "bins")).contains("features"));
        assert!(
            fail(&header.replace("\"kind\":\"", "\"kind\":\"x"))
                .contains("expected one of `ecapa`, `resnet`, `campplus`, `speechbrain-ecapa`")
        );
    }
}

#[test]
fn sizes_out_of_range_are_named() {
    all().iter().for_each(|architecture| architecture.check().unwrap());
    let ecapa = EcapaConfig::default();
    let resnet = ResNetConfig::default();
    let campplus = CampPlusConfig::default();
    let speechbrain = SpeechBrainEcapaConfig::default();
    for (architecture, field) in [
        (Architecture::new(80, SpeechBrainEcapaConfig { channels: 12, ..speechbrain }), "channels"),
        (Architecture::new(80, SpeechBrainEcapaConfig { pooled: 24, ..speechbrain }), "pooled"),
        (Architecture::new(84, campplus), "features"),
        (Architecture::new(80, CampPlusConfig { head: 0, ..campplus }), "head"),
        (Architecture::new(80, CampPlusConfig { channels: 1 << 20, ..campplus }), "channels"),
        (Architecture::new(80, CampPlusConfig { growth: 1 << 20, ..campplus }), "growth"),
        (Architecture::new(80, CampPlusConfig { bottleneck: 3, ..campplus }), "bottleneck"),
        (Architecture::new(0, ecapa), "features"),
        (Architecture::new(80, EcapaConfig { channels: 12, ..ecapa }), "channels"),
        (Architecture::new(80, EcapaConfig { channels: 1_000_000_000, ..ecapa }), "channels"),
        (Architecture::new(80, EcapaConfig { embedding: 0, ..ecapa }), "embedding"),
        (Architecture::new(80, ResNetConfig { channels: 1_000_000_000, ..resnet }), "channels"),
        (Architecture::new(80, ResNetConfig { blocks: [1_000_000_000; 4], ..resnet }), "blocks"),
        (Architecture::new(84, resnet), "features"),
        (Architecture::new(80, ResNetConfig { blocks: [3, 0, 6, 3], ..resnet }), "blocks"),
        (Architecture::new(80, ResNetConfig { blocks: [64; 4], channels: 512, ..resnet }), "weights"),
    ] {
        assert_eq!(architecture.check().unwrap_err().field, field, "{architecture}");
    }
}

#[test]
fn mirrored_ends_need_more_frames_than_are_mirrored() {
    let [ecapa, speechbrain] =
        [Architecture::new(80, EcapaConfig::default()), Architecture::new(80, SpeechBrainEcapaConfig::default())];
    assert_eq!([ecapa.fewest_frames(), speechbrain.fewest_frames()], [1, 5]);
}

#[test]
fn variants_of_speechbrains_ecapa_are_refused_by_what_they_are() {
    let config = SpeechBrainEcapaConfig { channels: 8, pooled: 48, embedding: 12, global_context: true };
    let layers = Architecture::new(40, config).layers();
    let tensors: BTreeMap<String, Vec<usize>> = layers.iter().flat_map(|layer| layer.tensors()).collect();
    for (tensor, shape, named) in [
        ("blocks.2.shortcut.conv.weight", [8, 8, 1], "block 2"),
        ("asp.tdnn.conv.conv.weight", [64, 144, 1], "attention_channels = 64"),
        ("blocks.1.se_block.conv1.conv.weight", [32, 8, 1], "se_channels = 32"),
        ("asp.tdnn.conv.conv.weight", [128, 50, 1], "50 inputs for 48 channels"),
    ] {
        let shape_of =
            |name: &str| if name == tensor { Some(&shape[..]) } else { tensors.get(name).map(Vec::as_slice) };
        let refused = Architecture::recognise(&TensorShapes(&shape_of)).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
}
