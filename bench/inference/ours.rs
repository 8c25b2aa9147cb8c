//! One 3 s utterance through ECAPA-TDNN C1024 and ResNet34 at 0 to 99 % zeros (random masks), against ONNX Runtime and
//! PyTorch, which are dense.
//!
//! `bench/run inference` runs everything; `bench/run inference ecapa 1` one network on one thread; `--model FILE` adds
//! a trained network, with the zeros it has: to the table of the same shape, or by itself beside ONNX Runtime. Every
//! measurement runs in its own process, so that its peak memory can be measured; both sides get the same weights and
//! features, and the embeddings are compared.
//!
//! `bench/run inference write ecapa 95 FILE [f32]` writes one of the random networks, for measurements elsewhere.
//! `bench/run inference rivals --model FILE` measures trained networks only, against DeepSparse, OpenVINO and MNN; one
//! that everybody has is `crates/bregman-wasm/web/voices.breg`.

mod rivals;

use std::path::{Path, PathBuf};
use std::process::Command;

use bregman_audio::{FbankConfig, RATE};
use bregman_bench::{median_ms, peer, ratio, table};
use bregman_nn::{Checkpoint, EcapaConfig, ResNetConfig, Rng, TrainableModel, Values};
use bregman_runtime::{Architecture, FrontEnd, Instructions, Model, ModelFile, Options, ValueFormat, cosine};
use bregman_tensor::Cpu;
use serde_json::{Value, json};

const FRAMES: usize = 300;
const BINS: usize = 80;
const REPEATS: usize = 21;
const NETWORKS: [&str; 2] = ["ecapa", "resnet34"];
const THREADS: [&str; 2] = ["1", "2"];
const SPARSITIES: [u32; 5] = [0, 75, 90, 95, 99];
/// The sparsity of the peers' weights; their time does not depend on it.
const COMPARED: u32 = 95;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["measure", file, threads, instructions, input] = args.as_slice() {
        println!("{}", measure(Path::new(file), threads.parse().expect("a number"), instructions, Path::new(input)));
        return;
    }
    if let ["measure-batch", file, threads, batch, input] = args.as_slice() {
        let [threads, batch] = [threads, batch].map(|number| number.parse().expect("a number"));
        println!("{}", rivals::measure(Path::new(file), threads, batch, Path::new(input)));
        return;
    }
    if let ["write", network, percent, path, format @ ..] = args.as_slice() {
        assert!(NETWORKS.contains(network), "the network is one of {NETWORKS:?}");
        let (architecture, state) = weights(network, percent.parse::<f32>().expect("a percentage") / 100.0);
        let format = if *format == ["f32"] { ValueFormat::F32 } else { ValueFormat::F16 };
        model_file(architecture, &state).write(Path::new(path), format).expect("the model is written");
        return;
    }
    let (args, models) = match args.iter().position(|&arg| arg == "--model") {
        Some(at) => (&args[..at], &args[at + 1..]),
        None => (&args[..], &[][..]),
    };
    let models: Vec<Trained> = models.iter().filter(|arg| **arg != "--model").map(Trained::open).collect();
    let wanted = |name: &str, all: &[&str]| args.contains(&name) || !args.iter().any(|arg| all.contains(arg));
    let folder = std::env::temp_dir().join(format!("bregman-bench-inference-{}", std::process::id()));
    if args.contains(&"rivals") {
        assert!(!models.is_empty(), "which network? --model FILE, such as crates/bregman-wasm/web/voices.breg");
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let threads: Vec<&str> = THREADS.into_iter().filter(|name| wanted(name, &THREADS)).collect();
        models.iter().for_each(|model| rivals::compare(&model.path, &threads, &folder, rivals::ALL));
        std::fs::remove_dir_all(&folder).expect("the temporary folder can be removed");
        return;
    }
    for network in NETWORKS.into_iter().filter(|name| wanted(name, &NETWORKS)) {
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let sizes = prepare(network, &folder);
        for threads in THREADS.into_iter().filter(|name| wanted(name, &THREADS)) {
            let trained: Vec<&Trained> = models.iter().filter(|model| model.network == Some(network)).collect();
            compare(network, threads, &folder, &sizes, &trained);
        }
        std::fs::remove_dir_all(&folder).expect("the temporary folder can be removed");
    }
    for model in models.iter().filter(|model| model.network.is_none()) {
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let threads: Vec<&str> = THREADS.into_iter().filter(|name| wanted(name, &THREADS)).collect();
        rivals::compare(&model.path, &threads, &folder, rivals::ONNX_RUNTIME);
        std::fs::remove_dir_all(&folder).expect("the temporary folder can be removed");
    }
}

/// A trained network that is measured beside the random ones.
struct Trained {
    path: PathBuf,
    /// That of the random ones which has its shape.
    network: Option<&'static str>,
    zeros: f64,
}

impl Trained {
    fn open(path: &&str) -> Self {
        let model = Model::open(path).unwrap_or_else(|error| panic!("{error}"));
        let same = |network: &&str| architecture(network) == *model.architecture();
        Self { path: path.into(), network: NETWORKS.into_iter().find(same), zeros: model.zeros_in_file() }
    }
}

/// Writes our models, the peers' and the input; returns the sizes of our files in f32 and f16.
fn prepare(network: &str, folder: &Path) -> Vec<[usize; 2]> {
    let mut rng = Rng::new(7);
    let input: Vec<u8> = (0..FRAMES * BINS).flat_map(|_| rng.symmetric(3.0).to_le_bytes()).collect();
    std::fs::write(folder.join("input.f32"), input).expect("the input is written");
    let sizes = SPARSITIES.map(|percent| {
        let (architecture, state) = weights(network, percent as f32 / 100.0);
        let file = model_file(architecture, &state);
        if percent == COMPARED {
            state.write(&folder.join("state.safetensors")).expect("the state is written");
        }
        [ValueFormat::F32, ValueFormat::F16].map(|format| {
            let path = folder.join(format!("{percent}-{format:?}.breg"));
            file.write(&path, format).expect("the model is written");
            std::fs::metadata(&path).expect("it is there").len() as usize
        })
    });
    peer("inference", &["export", &folder.display().to_string()]);
    let model = Model::open(folder.join(format!("{COMPARED}-F32.breg"))).expect("a model");
    let floats = |name: &str| -> Vec<f32> {
        let bytes = std::fs::read(folder.join(name)).expect("the peer wrote it");
        bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    };
    let ours = model.embed_features(&floats("input.f32")).expect("an embedding");
    let distance = 1.0 - cosine(&ours, &floats("embedding.f32"));
    assert!(distance < 1e-4, "our embedding is {distance:e} away from PyTorch's");
    println!("\n{network}: cosine distance to PyTorch's embedding at {COMPARED} % {distance:.1e}");
    sizes.to_vec()
}

/// The network as published.
fn architecture(network: &str) -> Architecture {
    match network {
        "ecapa" => Architecture::new(80, EcapaConfig::default()),
        _ => Architecture::new(80, ResNetConfig::default()),
    }
}

/// Random weights, a random subset of them zero, as a checkpoint.
fn weights(network: &str, sparsity: f32) -> (Architecture, Checkpoint) {
    let architecture = architecture(network);
    let mut state =
        TrainableModel::new(Cpu::new(), &architecture, None, 1).expect("a network").state().expect("its state");
    let mut rng = Rng::new(2);
    // non-zero weights are scaled up, so that activations neither vanish nor explode
    let scale = (1.0 - sparsity).max(1e-3).sqrt().recip();
    for array in state.tensors.values_mut().filter(|array| array.shape.len() > 1) {
        let Values::F32(values) = &mut array.values else { continue };
        values
            .iter_mut()
            .for_each(|value| *value = if 0.5 * (1.0 + rng.symmetric(1.0)) < sparsity { 0.0 } else { *value * scale });
    }
    (architecture, state)
}

fn model_file(architecture: Architecture, state: &Checkpoint) -> ModelFile {
    let tensor = |name: &str| match state.tensors.get(name).map(|array| (&array.shape, &array.values)) {
        Some((shape, Values::F32(values))) => Some((shape.as_slice(), values.as_slice())),
        _ => None,
    };
    ModelFile::from_state(architecture, FrontEnd::from(&FbankConfig::speechbrain()), tensor).expect("a model")
}

/// All sides on this many threads.
fn compare(network: &str, threads: &str, folder: &Path, sizes: &[[usize; 2]], trained: &[&Trained]) {
    let repeats = REPEATS.to_string();
    let theirs = |kind: &str| peer("inference", &["time", kind, &folder.display().to_string(), threads, &repeats]);
    let ms = |result: &Value| result["ms"].as_f64().expect("a measurement");
    let number =
        |result: &Value, key: &str| result[key].as_f64().map_or_else(String::new, |value| format!("{value:.1}"));
    let row = |ours: &Value, size: String| {
        let [ms, samples, open, peak] = ["ms", "samples_ms", "open_ms", "peak_mb"].map(|key| number(ours, key));
        [ms, samples, open, peak, size]
    };
    let before = theirs("ort");
    let mut rows = Vec::new();
    let mut measured = Vec::new();
    for (percent, [f32_bytes, f16_bytes]) in SPARSITIES.into_iter().zip(sizes) {
        for instructions in ["best", "avx2"] {
            let ours =
                alone(&folder.join(format!("{percent}-F32.breg")), threads, instructions, &folder.join("input.f32"));
            let name = format!("bregman, {percent} % zeros{}", if instructions == "avx2" { ", AVX2" } else { "" });
            let sizes = [f32_bytes, f16_bytes].map(|bytes| format!("{:.2}", *bytes as f64 / 1e6)).join(" / ");
            let sizes = if instructions == "best" { sizes } else { String::new() };
            let suffix = if instructions == "avx2" { "-avx2" } else { "" };
            measured.push((format!("{network}-{threads}-{percent}{suffix}"), ms(&ours)));
            rows.push((name, ms(&ours), row(&ours, sizes)));
        }
    }
    for Trained { path, zeros, .. } in trained {
        let ours = alone(path, threads, "best", &folder.join("input.f32"));
        let bytes = std::fs::metadata(path).expect("it was opened").len();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        measured.push((format!("{network}-{threads}-{name}"), ms(&ours)));
        let label = format!("{name}, {:.1} % zeros", 100.0 * zeros);
        rows.push((label, ms(&ours), row(&ours, format!("{:.2}", bytes as f64 / 1e6))));
    }
    // before and after ours, so that a change of the machine's speed favours neither side
    let after = theirs("ort");
    let reference = (ms(&before) + ms(&after)) / 2.0;
    let peers = [
        ("ONNX Runtime f32", after),
        ("ONNX Runtime int8", theirs("ort-int8")),
        ("PyTorch f32", theirs("torch")),
        ("PyTorch bf16", theirs("torch-bf16")),
    ];
    let all = peers.iter().map(|(name, result)| {
        let time = if *name == "ONNX Runtime f32" { reference } else { ms(result) };
        (
            (*name).to_owned(),
            time,
            [format!("{time:.1}"), String::new(), String::new(), number(result, "peak_mb"), String::new()],
        )
    });
    let cells = all.chain(rows).map(|(name, time, [ms, samples, open, peak, sizes])| {
        vec![name, ms, format!("{:.3}", time / reference), samples, open, peak, sizes]
    });
    println!(
        "\n{network}, {FRAMES} frames, {threads} thread(s), medians of {REPEATS}; \
         ONNX Runtime twice: {:.1} and {:.1} ms",
        ms(&before),
        ms(&peers[0].1)
    );
    table(&["", "ms", "ratio", "from samples", "open ms", "peak MB", "file MB f32 / f16"], &cells.collect::<Vec<_>>());
    measured.iter().for_each(|(name, ms)| ratio(name, *ms, reference));
    if threads == "1" {
        let dense = sizes[0][0] as f64;
        for (percent, [f32_bytes, f16_bytes]) in SPARSITIES.into_iter().zip(sizes).filter(|(percent, _)| *percent > 90)
        {
            ratio(&format!("{network}-file-f32-{percent}"), *f32_bytes as f64, dense);
            ratio(&format!("{network}-file-f16-{percent}"), *f16_bytes as f64, dense);
        }
    }
}

/// Runs `measure …` in its own process.
fn alone(file: &Path, threads: &str, instructions: &str, input: &Path) -> Value {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .arg("measure")
        .arg(file)
        .args([threads, instructions])
        .arg(input)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a JSON line")
}

fn measure(file: &Path, threads: usize, instructions: &str, input: &Path) -> Value {
    let instructions = if instructions == "avx2" { Instructions::Avx2 } else { Instructions::best() };
    let options = Options { threads, instructions, ..Options::default() };
    let model = Model::open_with(file, &options).expect("a model");
    let bytes = std::fs::read(input).expect("the input");
    let features: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let samples: Vec<f32> =
        (0..3 * RATE).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5).collect();
    let mut embedding = vec![0.0; model.embedding_size()];
    let ms = median_ms(3, REPEATS, || model.embed_features_into(&features, &mut embedding).expect("an embedding"));
    let samples_ms = median_ms(3, REPEATS, || model.embed_into(&samples, &mut embedding).expect("an embedding"));
    // opening again comes last: what the allocator keeps of models that were closed is no part of the peak
    let peak_mb = peak_mb();
    drop(model);
    let open_ms = median_ms(1, 5, || drop(Model::open_with(file, &options).expect("a model")));
    json!({ "ms": ms, "samples_ms": samples_ms, "open_ms": open_ms, "peak_mb": peak_mb })
}

/// Peak resident memory of this process, in millions of bytes as the sizes of files.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok())
        .map_or(f64::NAN, |kb| kb * 1.024 / 1000.0)
}
