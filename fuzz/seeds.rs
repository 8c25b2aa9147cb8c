//! Writes small valid files for the fuzzer to start from: `cargo +nightly fuzz run seeds`, in this folder.

use std::path::Path;

use bregman_network::{EcapaConfig, ResNetConfig};
use bregman_runtime::{Architecture, FrontEnd, Layer, LayerSpec, ModelFile, ValueFormat};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus = Path::new("corpus/model");
    std::fs::create_dir_all(corpus)?;
    let resnet = Architecture::new(8, ResNetConfig { blocks: [1, 1, 1, 1], channels: 2, embedding: 3 });
    let ecapa = Architecture::new(8, EcapaConfig { channels: 8, embedding: 2, global_context: true });
    let front_end: FrontEnd = serde_json::from_str(
        r#"{"rate":16000,"bins":8,"window_ms":25.0,"hop_ms":10.0,"low_hz":20.0,
            "front_end":{"kind":"kaldi","window":"hamming","preemphasis":0.97,"dither":0.0}}"#,
    )?;
    for (name, architecture, keep) in
        [("resnet", &resnet, 1), ("resnet-half", &resnet, 2), ("resnet-sparse", &resnet, 9), ("ecapa", &ecapa, 200)]
    {
        let layer = |spec: &LayerSpec| {
            let (count, rows) = (spec.weights(), spec.outputs);
            let weight = (0..count).map(|i| if i * i % keep == 0 { 0.1 } else { 0.0 }).collect();
            let after_relu = spec.norm_after_relu().map(|_| [vec![1.0; rows], vec![0.5; rows]]);
            Layer { weight, bias: vec![0.25; rows], after_relu, input_mean: None }
        };
        let layers = architecture.layers().iter().map(layer).collect();
        let file = ModelFile { architecture: *architecture, front_end: front_end.clone(), threshold: None, layers };
        for (suffix, format) in [("f32", ValueFormat::F32), ("f16", ValueFormat::F16), ("int8", ValueFormat::Int8)] {
            std::fs::write(corpus.join(format!("{name}-{suffix}")), file.to_bytes(format)?)?;
        }
    }
    Ok(())
}
