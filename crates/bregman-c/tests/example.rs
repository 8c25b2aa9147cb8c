//! `examples/verify.c`, compiled and run as a user would.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The static library that Cargo builds for this test, in the same folder.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libbregman_c.a")
}

fn compile(folder: &Path) -> Option<PathBuf> {
    let compiler = bregman_skip::program_or_skip("c-compiler", "CC", &["cc"])?;
    let (root, program) = (Path::new(env!("CARGO_MANIFEST_DIR")), folder.join("verify"));
    let mut command = Command::new(compiler);
    command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(root.join("examples/verify.c"));
    command.arg("-I").arg(root.join("include")).arg(library()).args(["-lpthread", "-ldl", "-lm"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn the_c_example_scores_two_recordings_as_the_runtime_does() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path()) else { return };
    let path = |name: &str| folder.path().join(name);
    let bytes = common::model();
    std::fs::write(path("model.breg"), &bytes).unwrap();
    let model = bregman_runtime::Model::from_bytes(&bytes).unwrap();
    let embeddings = [1.0, 1.3].map(|pitch| {
        let samples: Vec<f32> =
            (0..24_000).map(|i| 0.3 * (i as f32 * 0.02 * pitch).sin() + 0.1 * (i as f32 * 0.3 / pitch).cos()).collect();
        let wav = path(&format!("{pitch}.wav"));
        bregman_audio::write_wav(&wav, &bregman_audio::Audio { samples, rate: 16_000 }).unwrap();
        model.embed(&bregman_audio::load_16k(wav).unwrap()).unwrap()
    });
    let score = bregman_runtime::cosine(&embeddings[0], &embeddings[1]);

    let run =
        |args: [&str; 3]| -> Output { Command::new(&program).current_dir(folder.path()).args(args).output().unwrap() };
    let output = run(["model.breg", "1.wav", "1.3.wav"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let decision = if score > 0.25 { "same" } else { "another" };
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("score {score:.6} threshold 0.250000: {decision} speaker\n")
    );

    for (args, reason) in
        [(["absent.breg", "1.wav", "1.wav"], "absent.breg"), (["model.breg", "1.wav", "model.breg"], "WAV")]
    {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(reason));
    }
}
