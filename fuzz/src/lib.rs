//! What the fuzz targets share: several files out of one input, a folder to put them in, and the program's own reading
//! of runs.
#![allow(dead_code, unused_imports, reason = "of the program's modules only a part is used here")]

#[path = "../../crates/bregman-cli/src/exit.rs"]
mod exit;
#[path = "../../crates/bregman-cli/src/failure.rs"]
mod failure;
#[path = "../../crates/bregman-cli/src/known.rs"]
mod known;
#[path = "../../crates/bregman-cli/src/output.rs"]
mod output;
#[path = "../../crates/bregman-cli/src/plot/mod.rs"]
mod plot;
#[path = "../../crates/bregman-cli/src/runs/mod.rs"]
mod runs;

mod resumed;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::ValueEnum;
use known::{Known, Speaker};
use plot::{FigureFormat, What, figure, write};
pub use resumed::{resume, stopped};
use runs::{Found, ReportedRun};

/// What stands between two files of one input.
pub const BETWEEN: &[u8] = b"\n%%\n";

/// The first `N` files of an input; those that are not there are empty.
pub fn files<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut rest = data;
    std::array::from_fn(|file| {
        let end = rest.windows(BETWEEN.len()).position(|bytes| bytes == BETWEEN).filter(|_| file + 1 < N);
        let (this, after) = end.map_or((rest, &[][..]), |end| (&rest[..end], &rest[end + BETWEEN.len()..]));
        rest = after;
        this
    })
}

/// A folder of this process in the folder for temporary files (`TMPDIR`), which `fuzz/run` keeps in memory.
pub fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = std::env::temp_dir().join(format!("bregman-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
        folder
    });
    &FOLDER
}

/// Writes a file below [`folder`].
pub fn put(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the folder is writable");
    std::fs::write(&path, bytes).expect("the folder is writable");
    path
}

/// A panic of symphonia is no finding: the decoder turns it into an error. Every other panic ends the process.
pub fn codecs_may_panic() {
    let aborts = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|place| place.file().contains("symphonia")) {
            aborts(info);
        }
    }));
}

/// The files of a run, in the order in which an input has them.
pub const RUN: [&str; 5] = ["metrics.jsonl", "config.toml", "last/state.json", "evaluations/test.json", "command.json"];

fn read_run(data: &[u8]) -> ReportedRun {
    for (name, bytes) in RUN.iter().zip(files::<5>(data)) {
        put(name, bytes);
    }
    ReportedRun::read(&Found { folder: folder().to_owned(), name: "run".to_owned() }, 20)
}

/// A run as the page of `bregman report` holds it.
pub fn report(data: &[u8]) -> String {
    serde_json::to_string(&read_run(data)).expect("runs are plain data")
}

/// Every figure that `bregman plot` draws of a run.
pub fn figures(data: &[u8]) {
    let run = read_run(data);
    for &what in What::value_variants() {
        if let Ok(figure) = figure(&[&run], &[what]) {
            let path = folder().join("figure.svg");
            let _ = std::fs::remove_file(&path);
            let written = write(&figure, FigureFormat::Svg, 300.0, &path);
            assert!(written.is_ok(), "a figure that can be made can be drawn");
        }
    }
}

/// What is wrong with the files of a run, for the maker of seeds.
pub fn notes(data: &[u8]) -> Vec<String> {
    read_run(data).notes
}

/// Compares a voice with those in a file of known speakers, and again with one more in it. How many were in it, if it
/// could be read.
pub fn identify(data: &[u8]) -> Option<usize> {
    let path = put("known.json", data);
    let read = || Known::read(&path, "network", 3).ok();
    let scores =
        |known: &Known| -> Vec<f64> { known.matches(&[0.5, -1.0, 2.0]).iter().map(|found| found.score).collect() };
    let mut known = read()?;
    let before = scores(&known).len();
    known.insert("somebody new", Speaker { recordings: 1, seconds: 2.5, embedding: vec![1.0, 0.0, -0.5] });
    assert!(known.write(&path).is_ok(), "the folder is writable");
    let (now, again) = (scores(&known), scores(&read().expect("it was written by us")));
    assert!(now == again && now.iter().all(|score| score.abs() <= 1.0 + 1e-9), "{now:?}, {again:?}");
    Some(before)
}

/// A zip archive of uncompressed members, as PyTorch writes its checkpoints.
pub fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let at = bytes.len() as u32;
        // flags, method, time and date are zero
        let [sum, size] = [crc32fast::hash(content), content.len() as u32].map(u32::to_le_bytes);
        let lengths = [&[10, 0][..], &[0; 8], &sum, &size, &size, &(name.len() as u16).to_le_bytes(), &[0; 2]].concat();
        bytes.extend([b"PK\x03\x04", &lengths[..], name.as_bytes(), content].concat());
        directory.extend([b"PK\x01\x02\x0a\x00", &lengths[..], &[0; 10], &at.to_le_bytes(), name.as_bytes()].concat());
    }
    let counts = [(members.len() as u16).to_le_bytes(); 2].concat();
    let place = [directory.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat();
    [bytes, directory, b"PK\x05\x06\0\0\0\0".to_vec(), counts, place, vec![0; 2]].concat()
}
