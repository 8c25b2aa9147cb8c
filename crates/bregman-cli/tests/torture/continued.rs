//! A full disk and a failing one under commands that train: given again, they go on with what they find and leave what
//! they leave undisturbed. `train` itself is in `faults.rs` and `kills.rs`.

use std::path::{Path, PathBuf};

use crate::common::{errors, success};
use crate::faults::{Fault, Tally, Tree, World, is_helper, read, restore};
use crate::trace::{Injection, calls, is_here, traced};

/// Few: each costs a training.
const FAULTS: [Fault; 5] = [
    ("write", "ENOSPC", true),
    ("rename", "EIO", false),
    ("fsync", "EIO", false),
    ("mkdir", "ENOSPC", false),
    ("unlinkat", "EIO", false),
];

impl World {
    /// Every other command that trains, which goes on with what it finds in its folder, and how many calls of a kind
    /// are failed. The folder has the command's name.
    fn continued(&self) -> [(Vec<String>, usize); 3] {
        let (place, at) = (&self.place, |name: &str| self.place.dir.path().join(name).display().to_string());
        let (voices, recipe, plain) = (at("voices"), place.recipe.display(), self.plain_folder());
        [
            (
                format!(
                    "sparsify {} --corpus {plain} --target 0.5 -o {} --resume --force --set data.seconds=0.3 \
                     --set train.batch=4 --set train.epochs=2",
                    place.whole.display(),
                    at("sparsify/sparse.breg")
                ),
                12,
            ),
            (
                format!(
                    "sweep {recipe} --set seed=1,2 --trials {voices}/trials.txt --root {voices} --out {}",
                    at("sweep")
                ),
                12,
            ),
            (format!("demo --quick --out {}", at("demo")), 3),
        ]
        .map(|(line, most)| (line.split(' ').map(str::to_owned).collect(), most))
    }

    /// Some of the voices, in a folder without a list of them.
    fn plain_folder(&self) -> String {
        let plain = self.place.dir.path().join("plain");
        let voices = read(&self.place.dir.path().join("voices"));
        let wavs = voices.into_iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "wav"));
        restore(&plain, &wavs.take(12).collect());
        plain.display().to_string()
    }

    /// Fails a command at some of its calls and gives it again: what it leaves then is what it leaves undisturbed.
    fn torture_continued(&self, command: &[String], most: usize) -> Tally {
        let (place, out) = (&self.place, self.place.dir.path().join(&command[0]));
        let args = command.iter().map(String::as_str).collect::<Vec<_>>();
        let (numbers, mut tally) = (calls(place, &args), Tally::default());
        let whole = Left::behind(&out);
        for (call, error, lasting) in FAULTS {
            let numbers: Vec<usize> = numbers.get(call).into_iter().flatten().copied().collect();
            for number in numbers.iter().step_by(numbers.len().div_ceil(most).max(1)) {
                let _ = std::fs::remove_dir_all(&out); // there is none where the attempt before failed
                let injection = Injection::Error(call, error, *number, lasting);
                let output = traced(place, &injection, &args);
                let what = format!("{}: {injection:?}: {}", args.join(" "), errors(&output));
                tally.attempt(|| {
                    assert!(output.status.code().is_some_and(|code| code != 101), "{what}");
                    success(&place.bregman(&args));
                    Left::behind(&out).assert_equals(&whole, &what);
                });
            }
        }
        tally
    }
}

/// What a command that trains leaves in its folder.
struct Left {
    names: Vec<PathBuf>,
    /// What does not depend on the clock.
    networks_and_audio: Tree,
}

impl Left {
    fn behind(folder: &Path) -> Self {
        let mut tree = read(folder);
        // where a run could not be begun at once, its command is not kept
        tree.retain(|path, _| !is_helper(path) && !path.ends_with("command.json"));
        let names = tree.keys().cloned().collect();
        let is_timeless =
            |path: &Path| ["safetensors", "breg", "wav"].iter().any(|kind| path.extension() == Some(kind.as_ref()));
        tree.retain(|path, _| is_timeless(path));
        Self { names, networks_and_audio: tree }
    }

    fn assert_equals(&self, whole: &Self, what: &str) {
        let of_failing_removal = |path: &Path| {
            what.contains("\"unlink") && path.ancestors().any(|part| part.extension() == Some("old".as_ref()))
        };
        let names: Vec<_> = self.names.iter().filter(|path| !of_failing_removal(path)).collect();
        assert!(names.iter().copied().eq(&whole.names), "{names:?} instead of {:?}: {what}", whole.names);
        for (path, bytes) in &whole.networks_and_audio {
            assert!(self.networks_and_audio[path] == *bytes, "{} differs: {what}", path.display());
        }
    }
}

#[test]
#[ignore = "takes minutes: tools/torture"]
fn commands_that_train_go_on_after_a_failed_call() {
    if !is_here() {
        return;
    }
    let world = World::new();
    let mut all = Tally::default();
    for (command, most) in world.continued() {
        all.add(&command[0], &world.torture_continued(&command, most));
    }
    assert_eq!(all.harmful, 0, "of {} faults", all.tried);
    println!("commands that train: {} faults, none did harm", all.tried);
}
