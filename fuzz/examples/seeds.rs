//! Writes small valid files for the fuzzer to start from, into `seeds/TARGET/`:
//!
//! ```text
//! fuzz/build seeds && fuzz/target/fuzz/seeds
//! ```

use std::path::{Path, PathBuf};

use bregman_audio::{Audio, wav_bytes};
use bregman_fuzz::{BETWEEN, archive, identify, notes, resume, stopped};
use bregman_network::ResNetConfig;
use bregman_nn::{Array, Checkpoint, Values};
use bregman_runtime::{Architecture, FrontEnd, Layer, LayerSpec, ModelFile, ValueFormat};
use bregman_speaker::{ShardConfig, ShardFormat, SynthConfig, SynthCorpus, shard};
use bregman_train::Experiment;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    models()?;
    safetensors()?;
    pt()?;
    audio()?;
    lists()?;
    shards()?;
    recipes()?;
    runs()?;
    known()?;
    checkpoints()
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Writes `seeds/TARGET/NAME`.
fn seed(target: &str, name: &str, bytes: impl AsRef<[u8]>) -> Outcome {
    let folder = here().join("seeds").join(target);
    std::fs::create_dir_all(&folder)?;
    Ok(std::fs::write(folder.join(name), bytes)?)
}

/// Several files in one input.
fn joined(files: &[&[u8]]) -> Vec<u8> {
    files.join(BETWEEN)
}

fn models() -> Outcome {
    let resnet = Architecture::new(8, ResNetConfig { blocks: [1, 1, 1, 1], channels: 1, embedding: 3 });
    let front_end: FrontEnd = serde_json::from_str(
        r#"{"rate":16000,"bins":8,"window_ms":25.0,"hop_ms":10.0,"low_hz":20.0,
            "front_end":{"kind":"kaldi","window":"hamming","preemphasis":0.97,"dither":0.0}}"#,
    )?;
    let formats = [("f32", ValueFormat::F32), ("f16", ValueFormat::F16), ("int8", ValueFormat::Int8)];
    // an ECAPA-TDNN is never small: its last frame layer has 1536 channels
    for (name, keep) in [("resnet", 1), ("resnet-sparse", 9)] {
        let layer = |spec: &LayerSpec| {
            let (count, rows) = (spec.weights(), spec.outputs);
            let weight = (0..count).map(|i| if i * i % keep == 0 { 0.1 } else { 0.0 }).collect();
            let after_relu = spec.norm_after_relu().map(|_| [vec![1.0; rows], vec![0.5; rows]]);
            let inputs: usize = spec.inputs.iter().sum();
            let before = spec.norm_before_relu().map(|_| [vec![1.0; inputs], vec![0.5; inputs]]);
            Layer { weight, bias: vec![0.25; rows], after_relu, before, input_mean: None, input_range: None }
        };
        let layers = resnet.layers().iter().map(layer).collect();
        let file = ModelFile { architecture: resnet, front_end: front_end.clone(), threshold: None, layers };
        for (suffix, format) in formats {
            seed("model", &format!("{name}-{suffix}"), file.to_bytes(format)?)?;
        }
    }
    Ok(())
}

fn safetensors() -> Outcome {
    let array = |shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|i: usize| i as f32 / 8.0).collect();
        Array { shape: shape.to_vec(), values: Values::F32(values) }
    };
    let mut checkpoint = Checkpoint::default();
    checkpoint.tensors.insert("layer1.0.conv1.weight".to_owned(), array(&[2, 1, 3, 3]));
    checkpoint.tensors.insert("empty".to_owned(), array(&[0, 5]));
    checkpoint.tensors.insert("steps".to_owned(), Array { shape: vec![], values: Values::I64(vec![7]) });
    let path = here().join("seeds/safetensors/plain");
    std::fs::create_dir_all(path.parent().expect("a folder"))?;
    checkpoint.write(&path)?;
    checkpoint.write_with(&path.with_file_name("metadata"), [("format".to_owned(), "pt".to_owned())].into())?;
    for (format, width) in [("F16", 2), ("BF16", 2), ("F64", 8), ("I32", 4), ("BOOL", 1)] {
        let header = format!(r#"{{"a":{{"dtype":"{format}","shape":[1,2],"data_offsets":[0,{}]}}}}"#, 2 * width);
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; 2 * width]].concat();
        seed("safetensors", &format.to_lowercase(), bytes)?;
    }
    Ok(())
}

/// The pickle that `torch.save(state_dict)` writes for one tensor, and one of each other instruction.
fn pt() -> Outcome {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let rebuild = |storage: &str, numbers: &[u8]| {
        [
            &b"ctorch._utils\n_rebuild_tensor_v2\n(("[..],
            &text("storage"),
            format!("ctorch\n{storage}\n").as_bytes(),
            &text("0"),
            &text("cpu"),
            b"K\x10tQ",
            numbers,
            b"\x89ccollections\nOrderedDict\n)RtR",
        ]
        .concat()
    };
    let tensor = rebuild("FloatStorage", b"K\x00K\x02K\x03\x86K\x03K\x01\x86");
    let state = [
        &b"\x80\x02ccollections\nOrderedDict\n)Rq\x00("[..],
        &text("layer.weight"),
        b"q\x01",
        &tensor,
        b"q\x02",
        &text("layer.bias"),
        b"ctorch._utils\n_rebuild_parameter\n",
        b"h\x02\x89ccollections\nOrderedDict\n)R\x87R",
        b"u}",
        &text("_metadata"),
        b"}sb.",
    ]
    .concat();
    let numbers = [
        &b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}("[..],
        b"\x8c\x01a",
        &rebuild("HalfStorage", b"\x8a\x01\x00\x85\x85)"),
        b"\x94\x8c\x01b",
        &rebuild("LongStorage", b"J\x01\x00\x00\x00M\x02\x00\x85M\x01\x00\x85"),
        b"u.",
    ]
    .concat();
    for (name, pickle) in [("state", &state), ("numbers", &numbers)] {
        seed("pt", &format!("{name}.pkl"), pickle)?;
        let members = [("model/data.pkl", &pickle[..]), ("model/byteorder", b"little"), ("model/data/0", &[62; 64])];
        seed("pt", &format!("{name}.pt"), archive(&members))?;
    }
    let read = Checkpoint::read(&here().join("seeds/pt/state.pt"))?;
    assert_eq!(read.tensors["layer.bias"].shape, [2, 3], "what torch writes is read");
    Ok(())
}

/// The fixtures of the audio tests, and the kinds of WAV.
fn audio() -> Outcome {
    for file in std::fs::read_dir(here().join("../crates/bregman-audio/tests/fixtures"))? {
        let file = file?;
        let name = file.file_name().into_string().expect("a plain name");
        if name != "make.sh" {
            let bytes = std::fs::read(file.path())?;
            seed("audio", &name, &bytes[..bytes.len().min(6000)])?;
        }
    }
    let samples: Vec<f32> = (0..400).map(|i| (i as f32 * 0.1).sin()).collect();
    let wav = wav_bytes(&Audio { samples, rate: 16_000 });
    seed("audio", "16bit.wav", &wav)?;
    for (name, kind, bits) in [("8bit.wav", 1, 8), ("24bit.wav", 1, 24), ("float.wav", 3, 32), ("alaw.wav", 6, 8)] {
        let mut wav = wav.clone();
        (wav[20], wav[34]) = (kind, bits);
        let block = u32::from(bits) / 8;
        wav[28..32].copy_from_slice(&(16_000 * block).to_le_bytes());
        wav[32] = block as u8;
        wav[44..].iter_mut().for_each(|byte| *byte &= 0x3f); // finite as floats
        seed("audio", name, wav)?;
    }
    Ok(())
}

fn lists() -> Outcome {
    let manifest = concat!(
        "utterance,speaker,path,seconds,session,genre\n",
        "u1,ann,a/1.wav,2.5,s1,drama\n\"u,\"\"2\",bob,b/2.flac,,,\n"
    );
    seed("manifest", "all-columns", manifest)?;
    seed("manifest", "two-columns", "\u{feff}path,speaker\na/1.wav,ann\n/b/2.ogg,bob\n")?;
    seed("manifest", "kaldi", joined(&[b"u1 a/1.wav\nu2 /b/2.wav\n", b"u1 ann\nu2 bob\n"]))?;
    let map = b"m a/1 a/2.wav\nn b/1.flac\n";
    seed("trials", "voxceleb", joined(&[b"1 a/1.wav a/2.wav\n0 a/1.wav b/1.wav\n", map]))?;
    seed("trials", "cnceleb", joined(&[b"m a/2.wav 1\nn a/1 0\n", map]))?;
    seed("trials", "kaldi", joined(&[b"a/1 a/2 target\r\na/1 b/1 nontarget\r\n", map]))?;
    seed("trials", "turns", "SPEAKER a 1 0.5 2.25 <NA> <NA> ann <NA> <NA>\nSPEAKER a 1 2 3 <NA> <NA> bob <NA> <NA>\n")?;
    seed("trials", "scores", "a/1 a/2 0.75 target\na/1 b/1 -1e-3 nontarget\n")
}

fn shards() -> Outcome {
    let config = SynthConfig { speakers: 2, utterances: 1, held_out: 0, seconds: [0.1, 0.1], ..SynthConfig::default() };
    let (voices, _) = SynthCorpus::new(config)?.in_memory();
    let out = bregman_fuzz::folder().join("shards");
    let config =
        ShardConfig { out: out.clone(), per_shard: 2, format: ShardFormat::Pcm, seed: 1, strict: true, force: true };
    shard(&voices, &config, &())?;
    let is_shard = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tar");
    let tar = std::fs::read_dir(&out)?.flatten().map(|file| file.path()).find(is_shard).expect("a shard");
    let (index, name) = (std::fs::read_to_string(out.join("index.csv"))?, tar.file_name().expect("a file's name"));
    let index = index.replace(&*name.to_string_lossy(), "00000.tar");
    let tar = std::fs::read(tar)?;
    std::fs::remove_dir_all(&out)?;
    seed("shard", "index", joined(&[index.as_bytes(), &tar]))?;
    seed("shard", "no-index", joined(&[b"", &tar]))
}

fn recipes() -> Outcome {
    let folder = here().join("../recipes");
    let read = |name: &str| std::fs::read(folder.join(name));
    let settings = b"data.root=/corpus\nmethod.target=0.95\ntrain.epochs=3";
    let base = b"seed = 3\n[data]\nroot = \"x\"\n[train]\nlr = 0.1\n";
    seed("recipe", "demo", joined(&[&read("demo.toml")?, base, settings]))?;
    for (name, networks) in
        [("linbreg", "resnet"), ("dense-adamw", "ecapa"), ("pruned-gradual", "ecapa"), ("static", "resnet")]
    {
        let method = String::from_utf8(read(&format!("methods/{name}.toml"))?)?;
        let recipe = format!("base = \"base.toml\"\n{method}\n[model]\nkind = \"{networks}\"\n");
        seed("recipe", name, joined(&[recipe.as_bytes(), base, settings]))?;
    }
    let when = concat!(
        "base = [\"base.toml\", \"voxceleb/ecapa\"]\n[method]\nkind = \"dense\"\n",
        "[[when]]\nnetwork = [\"ecapa\"]\nset.seed = 2\n"
    );
    seed("recipe", "when", joined(&[when.as_bytes(), b"[train]\nepochs = 3\n", b"data.root=x"]))
}

fn runs() -> Outcome {
    let recipe = "[data]\nroot = \"x\"\n[method]\nkind = \"adaptive\"\ntarget = 0.9\n";
    let config = Experiment::parse(recipe, "seed", &[] as &[&str])?.to_toml();
    let metrics = concat!(
        r#"{"kind":"run","format":1}"#,
        "\n",
        r#"{"kind":"step","step":1,"epoch":1,"loss":2.5,"accuracy":0.1,"lambda":0.5,"sparsity":0.9,"target":0.9,"#,
        r#""epsilon":0.0,"lr":0.1,"margin":0.2,"gradient_norm":3.0,"utterances_per_second":70.0}"#,
        "\n",
        r#"{"kind":"step","step":2,"epoch":1,"loss":null,"lambda":0.6,"sparsity":0.91,"lr":0.1}"#,
        "\n",
        r#"{"kind":"epoch","step":2,"epoch":1,"train_loss":2.0,"train_accuracy":0.5,"validation_loss":1.5,"#,
        r#""validation_accuracy":0.6,"lambda":0.6,"sparsity":0.91,"target":0.9,"admitted":true,"lr":0.1,"#,
        r#""seconds":3.5,"groups":[["layer1",0.8]],"layers":[{"name":"layer1.conv","shape":[2,3],"sparsity":1.0,"#,
        r#""nonzero":0,"norm":0.5}],"all_zero":["layer1.conv"]}"#,
        "\n",
    );
    let state = concat!(
        r#"{"format":1,"step":2,"position":{"epoch":1,"batch":0},"classes":4,"lambda":[0.6],"loops":[],"#,
        r#""lr":{"schedule":{"kind":"constant"},"base":0.1,"scale":1.0,"best":null,"waited":0},"#,
        r#""selection":{"best":{"epoch":1,"loss":1.5,"accuracy":0.6,"sparsity":0.91},"waited":0,"top":[]},"#,
        r#""sums":{"loss":0.0,"correct":0,"cuts":0},"sparsity":0.91,"logged":[10,10],"finished":true,"seconds":3.5}"#,
    );
    let evaluation = concat!(
        r#"{"format":1,"test":"test","domain":"in","checkpoint":"last","step":2,"sparsity":0.91,"eer":0.1,"#,
        r#""min_dcf":0.5,"min_dcf_p05":0.4,"threshold":0.2,"intervals":{"eer":[0.05,0.15],"min_dcf":[[0.4,0.6],"#,
        r#"[0.3,0.5]]},"det":[{"miss":0.0,"false_alarm":1.0},{"miss":0.1,"false_alarm":0.1},{"miss":1.0,"#,
        r#""false_alarm":0.0}],"histogram":{"low":-1.0,"high":1.0,"targets":[0,3,9],"others":[8,2,0]},"#,
        r#""scoring":"cosine","cosine":null,"trials":22,"targets":12,"left_out":0,"speakers":3,"utterances":9,"#,
        r#""computed":9,"cohort_speakers":null,"top_n":null,"unreadable":[{"path":"a","problem":"b"}]}"#,
    );
    let command = r#"{"format":1,"command":["bregman","train","a b"],"folder":"/tmp","threads":2,"version":"0.1.0"}"#;
    let finished = joined(&[metrics, &config, state, evaluation, command].map(str::as_bytes));
    assert_eq!(notes(&finished), ["the loss is not a number at step 2"], "everything else is understood");
    let cut = joined(&[&metrics[..300], recipe, "", evaluation, ""].map(str::as_bytes));
    for target in ["run", "figure"] {
        seed(target, "finished", &finished)?;
        seed(target, "cut-off", &cut)?;
    }
    Ok(())
}

fn known() -> Outcome {
    let speaker = r#"{"recordings":2,"seconds":3.5,"embedding":[0.25,-1e-3,3.0]}"#;
    let two = format!(r#"{{"format":1,"network":"network","speakers":{{"ann":{speaker},"bob":{speaker}}}}}"#);
    assert_eq!(identify(two.as_bytes()), Some(2));
    seed("known", "two", &two)?;
    seed("known", "unnumbered", two.replace(r#""format":1,"#, ""))?;
    seed("known", "nobody", r#"{"format":1,"network":"network","speakers":{}}"#)
}

fn checkpoints() -> Outcome {
    let stopped = stopped();
    assert!(resume(&stopped), "the training goes on");
    seed("checkpoint", "first-step", stopped)
}
