//! A full disk and a failing one, at each call of every command: what was there stays, or is replaced as a whole.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{errors, success};
use crate::run::Place;
use crate::trace::{Injection, calls, is_here, traced};

/// A call, the error that it gets, and whether all later ones get it, too: a disk that stays full.
pub(crate) type Fault = (&'static str, &'static str, bool);

const FAULTS: [Fault; 13] = [
    ("write", "ENOSPC", false),
    ("write", "ENOSPC", true),
    ("write", "EIO", false),
    ("openat", "ENOSPC", false),
    ("rename", "EIO", false),
    ("fsync", "EIO", false),
    ("fdatasync", "EIO", false),
    ("ftruncate", "EIO", false),
    ("mkdir", "ENOSPC", false),
    ("linkat", "EIO", false),
    ("unlink", "EIO", false),
    ("unlinkat", "EIO", false),
    ("copy_file_range", "ENOSPC", false),
];

/// Folders that are replaced as a whole, and the file by which they are valid.
const GROUPS: [(&str, &str); 3] =
    [("shards", "shards/index.csv"), ("synthetic", "synthetic/train.csv"), ("around/noises", "around/noises/00.wav")];

/// Every file of a folder by its path inside it, without what depends on the clock.
pub(crate) type Tree = BTreeMap<PathBuf, Vec<u8>>;

pub(crate) fn read(root: &Path) -> Tree {
    let (mut tree, mut folders) = (Tree::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                tree.insert(path.strip_prefix(root).unwrap().into(), timeless(&path));
            }
        }
    }
    tree
}

/// The bytes of a file; a report says when it was written.
fn timeless(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let written = b"\"written\":";
    let Some(at) = bytes.windows(written.len()).position(|part| part == written) else { return bytes };
    let (before, time) = bytes.split_at(at + written.len());
    let digits = time.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [before, &time[digits..]].concat()
}

pub(crate) fn restore(folder: &Path, tree: &Tree) {
    let _ = std::fs::remove_dir_all(folder); // there is none at first
    for (path, bytes) in tree {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// The part of a tree below a folder.
fn below<'a>(tree: &'a Tree, folder: &'a str) -> impl Iterator<Item = (&'a PathBuf, &'a Vec<u8>)> {
    tree.iter().filter(move |(path, _)| path.starts_with(folder))
}

/// How many faults were tried, and how many of them did harm. Each is shown, so that one run finds all.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) tried: usize,
    pub(crate) harmful: usize,
}

impl Tally {
    pub(crate) fn attempt(&mut self, check: impl FnOnce()) {
        self.tried += 1;
        self.harmful += usize::from(catch_unwind(AssertUnwindSafe(check)).is_err());
    }

    pub(crate) fn add(&mut self, name: &str, other: &Self) {
        println!("{name}: {} faults, {} did harm", other.tried, other.harmful);
        self.tried += other.tried;
        self.harmful += other.harmful;
    }
}

/// Where the commands work: a corpus, a run, and what all of them have written there before.
pub(crate) struct World {
    pub(crate) place: Place,
    work: PathBuf,
    before: Tree,
}

impl World {
    pub(crate) fn new() -> Self {
        let place = Place::new(2, 1);
        let work = place.dir.path().join("work");
        restore(&work.join("run"), &read(&place.whole));
        let world = Self { place, work, before: Tree::new() };
        for command in world.commands(1) {
            success(&world.place.bregman(&command.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        let mut before = read(&world.work);
        for same in ["report.html", "pattern.svg", "m.onnx", "m.safetensors", "m.pt", "around/noises/00.wav"] {
            *before.get_mut(Path::new(same)).unwrap() = b"an older file".to_vec();
        }
        Self { before, ..world }
    }

    /// Every command that writes files and does not train; most write something else with another number, from 1 to 9.
    fn commands(&self, number: u32) -> Vec<Vec<String>> {
        let (voices, at) = (self.place.dir.path().join("voices"), |name: &str| self.work.join(name));
        let voice = |name: &str| voices.join(name).display().to_string();
        let list = std::fs::read_to_string(voices.join("trials.txt")).unwrap();
        let wav = voice(list.split_whitespace().nth(1).unwrap());
        let at = |name: &str| at(name).display().to_string();
        let (run, voices, trials) = (at("run"), voices.display(), voice("trials.txt"));
        let values = if number == 1 { "f32" } else { "f16" };
        [
            format!("prepare folder {voices} --out {} --validation 0.{number} --force", at("list.csv")),
            format!("synth --out {} --speakers 3 --utterances 4 --seed {number} --force", at("synthetic")),
            format!("surroundings --out {} --force", at("around")),
            format!("shard {} --out {} --per-shard 9 --seed {number} --force", voice("train.csv"), at("shards")),
            format!("export {run} -o {} --values {values} --force", at("m.breg")),
            format!(
                "export {run} --onnx {} --safetensors {} --pt {} --force",
                at("m.onnx"),
                at("m.safetensors"),
                at("m.pt")
            ),
            format!("embed {run} {wav} --out {} --max-seconds 0.6{number} --force", at("e.csv")),
            format!("embed {} {wav} --window 0.4 --hop 0.1{number} --out {} --force", at("m.breg"), at("windows.csv")),
            format!(
                "diarize {wav} --model {} --window 0.4 --hop 0.1{number} --speakers {number} -o {} --plot {} --force",
                at("m.breg"),
                at("turns.rttm"),
                at("turns.svg")
            ),
            format!("enroll speaker-{number} {wav} --model {run} --speakers {}", at("known.json")),
            format!(
                "evaluate {run} --trials {trials} --root {voices} --scores {} --max-seconds 0.6{number} --bootstrap 9 \
                 --force",
                at("scores.txt")
            ),
            format!("report {run} -o {} --force", at("report.html")),
            format!("plot {run} --what sparsity -o {} --width {number}50 --force", at("figure.svg")),
            format!("inspect {run} --plot {} --force", at("pattern.svg")),
        ]
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .into()
    }

    /// Fails the command at each of its calls.
    fn torture(&self, command: &[String], faults: &[Fault]) -> Tally {
        let args = command.iter().map(String::as_str).collect::<Vec<_>>();
        restore(&self.work, &self.before);
        let numbers = calls(&self.place, &args);
        let after = read(&self.work);
        let mut tally = Tally::default();
        for (call, error, lasting) in faults {
            for number in numbers.get(call).into_iter().flatten() {
                restore(&self.work, &self.before);
                let injection = Injection::Error(call, error, *number, *lasting);
                let output = traced(&self.place, &injection, &args);
                let what = format!("{}: {injection:?}: {}", args.join(" "), errors(&output));
                tally.attempt(|| self.check_end(&output, &after, &what));
            }
        }
        tally
    }

    /// Fails unless the command ended as it may, and left what it may.
    fn check_end(&self, output: &Output, after: &Tree, what: &str) {
        let code = output.status.code().unwrap_or_else(|| panic!("killed: {what}"));
        assert_ne!(code, 101, "panicked: {what}");
        let found = read(&self.work);
        self.check(&found, after, what);
        // an evaluation is printed also where it cannot be kept
        if code == 0 && !what.starts_with("evaluate ") {
            let lasting = |tree: &Tree| -> Tree {
                tree.iter()
                    .filter(|(path, _)| !is_helper(path))
                    .map(|(path, bytes)| (path.clone(), bytes.clone()))
                    .collect()
            };
            assert!(lasting(after) == lasting(&found), "done, but not all is written: {what}");
        }
    }

    /// Fails unless everything is as before or as after.
    fn check(&self, found: &Tree, after: &Tree, what: &str) {
        for (folder, key) in GROUPS {
            let Some(valid) = found.get(Path::new(key)) else {
                assert_eq!(folder, "synthetic", "{key} is gone: {what}");
                continue;
            };
            let tree = if valid == &self.before[Path::new(key)] { &self.before } else { after };
            assert_eq!(valid, &tree[Path::new(key)], "{key} is neither old nor new: {what}");
            for (path, bytes) in below(tree, folder) {
                assert!(found.get(path) == Some(bytes), "{} is not that of {key}: {what}", path.display());
            }
        }
        let grouped = |path: &Path| GROUPS.iter().any(|(folder, _)| path.starts_with(folder));
        for (path, bytes) in self.before.iter().filter(|(path, _)| !grouped(path) && !is_helper(path)) {
            let now = found.get(path);
            let whole = now == Some(bytes) || now == after.get(path);
            assert!(whole, "{} is neither old nor new: {what}", path.display());
        }
        for path in found.keys().filter(|path| !self.before.contains_key(*path) && !after.contains_key(*path)) {
            let left_by_failing_removal = what.contains("\"unlink") || is_helper(path) || grouped(path);
            assert!(left_by_failing_removal, "{} is left: {what}", path.display());
        }
    }
}

/// Stores and journals that grow record by record, and locks.
pub(crate) fn is_helper(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "embeddings")
        || path.extension().is_some_and(|kind| kind == "partial" || kind == "lock")
}

#[test]
fn a_full_disk_damages_neither_shards_nor_speakers() {
    if !is_here() {
        return;
    }
    let world = World::new();
    for command in world.commands(2).iter().filter(|command| ["shard", "enroll"].contains(&&*command[0])) {
        let tally = world.torture(command, &[("rename", "ENOSPC", false), ("fsync", "ENOSPC", false)]);
        assert!(tally.tried > 2 && tally.harmful == 0, "{} of {} did harm", tally.harmful, tally.tried);
    }
}

#[test]
#[ignore = "takes minutes: tools/torture"]
fn every_call_of_every_command_fails_once() {
    if !is_here() {
        return;
    }
    let world = World::new();
    let mut all = Tally::default();
    for command in world.commands(2) {
        all.add(&command[0], &world.torture(&command, &FAULTS));
    }
    let (place, run) = (&world.place, world.place.dir.path().join("faulted"));
    let numbers = calls(place, &place.train(&run));
    let mut tally = Tally::default();
    for (call, error, lasting) in FAULTS {
        for number in numbers.get(call).into_iter().flatten() {
            let _ = std::fs::remove_dir_all(&run); // there is none where the fault came early
            let injection = Injection::Error(call, error, *number, lasting);
            let output = traced(place, &injection, &place.train(&run));
            let what = format!("train: {injection:?}: {}", errors(&output));
            tally.attempt(|| {
                assert!(output.status.code().is_some_and(|code| code != 101), "{what}");
                place.finish(&run, &what);
            });
        }
    }
    all.add("train", &tally);
    assert_eq!(all.harmful, 0, "of {} faults", all.tried);
    println!("all: {} faults, none did harm", all.tried);
}
