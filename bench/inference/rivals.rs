//! A trained network, with the zeros it has, against runtimes that claim speed from zeros or from int8: each gets the
//! ONNX graph that `bregman export --onnx` writes of the same weights, and runs in a process of its own.

use std::path::Path;
use std::process::Command;

use bregman_bench::{median_ms, ratio, table};
use bregman_network::{LayerSpec, NormSpec, Pointwise};
use bregman_nn::{Checkpoint, TrainableModel, Values};
use bregman_runtime::{Model, ModelFile, Options, ValueFormat, cosine};
use bregman_tensor::Cpu;
use serde_json::{Value, json};

use crate::{BINS, FRAMES, REPEATS};

/// Name for people, kind in `rivals.py`, and which of the bench's virtual environments it needs.
type Rival = (&'static str, &'static str, &'static str);

pub(crate) const ALL: &[Rival] = &[
    ("ONNX Runtime", "onnxruntime", ".venv-rivals"),
    ("OpenVINO", "openvino", ".venv-rivals"),
    ("OpenVINO int8", "openvino-int8", ".venv-rivals"),
    ("OpenVINO int8, sparse weights", "openvino-sparse", ".venv-rivals"),
    ("MNN", "mnn", ".venv-rivals"),
    ("DeepSparse", "deepsparse", ".venv-deepsparse"),
    ("DeepSparse int8", "deepsparse-int8", ".venv-deepsparse"),
];
pub(crate) const ONNX_RUNTIME: &[Rival] = ALL.split_at(1).0;
const BATCHES: [usize; 2] = [1, 16];

/// A large batch needs fewer measurements.
fn repeats(batch: usize) -> usize {
    if batch == 1 { REPEATS } else { 5 }
}

/// ε of a batch norm, as in the runtime.
const NORM_EPSILON: f32 = 1e-5;

/// Measures the model in `path`, the same in int8 where that is computed in whole numbers, and every rival on that many
/// threads, and prints a table and ratios.
pub(crate) fn compare(path: &Path, threads: &[&str], folder: &Path, rivals: &[Rival]) {
    let mut file = ModelFile::read_bytes(path).and_then(|bytes| ModelFile::from_bytes(&bytes)).expect("a model file");
    std::fs::write(folder.join("network.onnx"), unfolded(&file).to_onnx(&[]).expect("a graph")).expect("it is written");
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for batch in BATCHES {
        let mut rng = bregman_nn::Rng::new(batch as u64);
        let features: Vec<f32> = (0..batch * FRAMES * BINS).map(|_| rng.symmetric(3.0)).collect();
        let input: Vec<u8> = features.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(folder.join("features.f32"), input).expect("the input is written");
        // calibrated as the int8 graphs are in `rivals.py`
        let loudness = [0.5, 1.0, 1.5].map(|factor| features.iter().map(|x| x * factor).collect::<Vec<f32>>());
        let int8 = folder.join("int8.breg");
        let has_int8 = file.calibrate_features(&loudness).is_ok();
        if has_int8 {
            file.write(&int8, ValueFormat::Int8).expect("the model is written");
        }
        let sizes = [&batch.to_string(), &FRAMES.to_string(), &BINS.to_string()].map(String::clone);
        let prepare = [&["prepare".to_owned(), folder.display().to_string()], &sizes[..]].concat();
        let graphs = python(".venv-rivals", &prepare).map_err(|problem| format!("no graph: {problem}"));
        for threads in threads {
            let ours = ours(path, threads, batch, folder);
            let ms = ours["ms"].as_f64().expect("a measurement");
            println!("\n{name}, batch {batch}, {threads} thread(s), {FRAMES} frames, medians of {}", repeats(batch));
            let mut rows =
                vec![vec!["bregman".to_owned(), format!("{ms:.2}"), String::new(), String::new(), String::new()]];
            let mut ratios = Vec::new();
            let mut row = |label: &str, kind: &str, theirs: Result<Value, String>| match theirs {
                Ok(theirs) => {
                    let time = theirs["ms"].as_f64().expect("a measurement");
                    let cosine = cosine(&numbers(&ours["embedding"]), &numbers(&theirs["embedding"]));
                    let version = theirs["version"].as_str().unwrap_or_default().to_owned();
                    let cells = [format!("{time:.2}"), format!("{:.3}", ms / time), format!("{cosine:.4}"), version];
                    rows.push([&[label.to_owned()], &cells[..]].concat());
                    ratios.push((format!("{name}-{batch}-{threads}-{kind}"), time));
                }
                Err(problem) => rows.push(vec![label.to_owned(), problem, String::new(), String::new(), String::new()]),
            };
            if has_int8 {
                row("bregman int8", "bregman-int8", Ok(self::ours(&int8, threads, batch, folder)));
            }
            for &(label, kind, venv) in rivals {
                let args = [&["time".to_owned(), kind.to_owned(), folder.display().to_string()], &sizes[..]].concat();
                let args = [&args[..], &[(*threads).to_owned(), repeats(batch).to_string()]].concat();
                row(label, kind, graphs.clone().and_then(|_| python(venv, &args)));
            }
            table(&["", "ms", "ours / theirs", "cosine to ours", "version"], &rows);
            ratios.iter().for_each(|(name, theirs)| ratio(name, ms, *theirs));
        }
    }
}

/// `rivals.py ARGS…` in that virtual environment: the JSON of its last line, or why there is none.
fn python(venv: &str, args: &[String]) -> Result<Value, String> {
    let bench = std::env::var("BENCH_DIR").expect("started with bench/run inference");
    let python = Path::new(&bench).join(venv).join("bin/python");
    if !python.exists() {
        return Err(format!("bench/{venv} cannot be installed here"));
    }
    let mut command = Command::new(python);
    command.arg(Path::new(&bench).join("inference/rivals.py")).args(args);
    let mut output = command.output().map_err(|error| error.to_string())?;
    if output.status.code().is_none() {
        // oneDNN uses AMX where the CPU has it, and dies where the virtual machine does not allow it
        command.env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI");
        output = command.output().map_err(|error| error.to_string())?;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let log = String::from_utf8_lossy(&output.stderr);
    let reason = log.lines().rev().find(|line| line.contains("rror") || line.contains("Assertion"));
    let ended = output.status.to_string();
    let reason = reason.unwrap_or(&ended).trim().chars().take(60).collect::<String>();
    last.filter(|_| output.status.success()).ok_or_else(|| format!("failed: {reason}"))
}

/// Runs [`measure`] in a process of its own.
fn ours(path: &Path, threads: &str, batch: usize, folder: &Path) -> Value {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.arg("measure-batch").arg(path).args([threads, &batch.to_string()]).arg(folder.join("features.f32"));
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a JSON line")
}

/// Median time of a batch, and the embedding of its first utterance.
pub(crate) fn measure(path: &Path, threads: usize, batch: usize, input: &Path) -> Value {
    let bytes = std::fs::read(input).expect("the input");
    let features: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    // the threads share one utterance, or each has its own
    let within = if batch == 1 { threads } else { 1 };
    let model = Model::open_with(path, &Options { threads: within, ..Options::default() }).expect("a model");
    let utterances: Vec<&[f32]> = features.chunks_exact(FRAMES * BINS).collect();
    let embed = |utterance: &&[f32]| drop(model.embed_features(utterance).expect("an embedding"));
    let ms = median_ms(3, repeats(batch), || {
        std::thread::scope(|scope| {
            let parts = utterances.chunks(batch.div_ceil(threads.min(batch)));
            let mut parts: Vec<_> = parts.collect();
            let own = parts.pop().unwrap_or_default();
            parts.into_iter().for_each(|part| drop(scope.spawn(move || part.iter().for_each(embed))));
            own.iter().for_each(embed);
        });
    });
    json!({ "ms": ms, "embedding": model.embed_features(utterances[0]).expect("an embedding") })
}

fn numbers(list: &Value) -> Vec<f32> {
    list.as_array().expect("an embedding").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

/// The network of a model file: its norms, which are folded there, become scales and shifts again.
fn unfolded(file: &ModelFile) -> TrainableModel<Cpu> {
    let mut model = TrainableModel::new(Cpu::new(), &file.architecture, None, 1).expect("a network");
    let mut state = model.state().expect("its state");
    for (spec, layer) in file.architecture.layers().iter().zip(&file.layers) {
        set(&mut state, &format!("{}.weight", spec.name), &layer.weight);
        let in_norm = matches!(spec.after.first(), Some(Pointwise::Norm(_))) && !spec.bias;
        if spec.bias {
            set(&mut state, &format!("{}.bias", spec.name), &layer.bias);
        }
        let (ones, zeros) = (vec![1.0; spec.outputs], vec![0.0; spec.outputs]);
        if let Some(norm) = spec.norm_after() {
            let plain = [&ones, if in_norm { &layer.bias } else { &zeros }];
            let [scale, shift] = layer.after_relu.as_ref().map_or(plain, |[scale, shift]| [scale, shift]);
            set_norm(&mut state, norm, scale, shift);
        }
        if let Some(norm) = spec.norm_before() {
            let inputs = inputs(spec);
            let (ones, zeros) = (vec![1.0; inputs], vec![0.0; inputs]);
            let [scale, shift] = layer.before.as_ref().map_or([&ones, &zeros], |[scale, shift]| [scale, shift]);
            set_norm(&mut state, norm, scale, shift);
        }
    }
    model.load(&state).expect("the state of this network");
    model
}

fn inputs(spec: &LayerSpec) -> usize {
    spec.inputs.iter().sum()
}

fn set_norm(state: &mut Checkpoint, norm: &NormSpec, scale: &[f32], shift: &[f32]) {
    // without scale and shift of its own, they are in its statistics
    let statistics = scale.iter().zip(shift).map(|(scale, shift)| match norm.affine {
        true => (0.0, 1.0 - NORM_EPSILON),
        false => (-shift / scale, scale.powi(-2) - NORM_EPSILON),
    });
    let (means, variances): (Vec<f32>, Vec<f32>) = statistics.unzip();
    set(state, &format!("{}.running_mean", norm.name), &means);
    set(state, &format!("{}.running_var", norm.name), &variances);
    if norm.affine {
        set(state, &format!("{}.weight", norm.name), scale);
        set(state, &format!("{}.bias", norm.name), shift);
    }
}

fn set(state: &mut Checkpoint, name: &str, to: &[f32]) {
    let array = state.tensors.get_mut(name).unwrap_or_else(|| panic!("{name} is a tensor of the network"));
    let Values::F32(values) = &mut array.values else { panic!("{name} is of f32") };
    values.copy_from_slice(to);
}
