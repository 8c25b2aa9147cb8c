//! The published corpora in miniature, with synthetic voices: every command of `docs/corpora.md`, as it stands there.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bregman_speaker::{Manifest, SynthConfig, SynthCorpus};
use common::{bregman, errors, json, success, text};
use serde_json::Value;

/// Clips of one speaker.
const CLIPS: usize = 4;

/// A folder with corpora laid out as published, and the recipes of the page with networks that train in a second.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        let mut voices = Voices::new(&place.path("voices"));
        for (speaker, folder) in [("id00012", "a"), ("id00013", "b"), ("id00014", "c"), ("id00015", "d")] {
            for clip in 1..=CLIPS {
                voices
                    .say(speaker, &place.path(&format!("corpora/voxceleb2/dev/aac/{speaker}/{folder}/{clip:05}.m4a")));
            }
        }
        for (part, speakers) in [("test", ["id10270", "id10271"]), ("dev", ["id10001", "id10002"])] {
            for speaker in speakers {
                for clip in 1..=CLIPS {
                    let path = format!("corpora/voxceleb1/{part}/wav/{speaker}/v/{clip:05}.wav");
                    voices.say(speaker, &place.path(&path));
                }
            }
        }
        let trials = |speakers: &[&str]| {
            let mut list = String::new();
            for (at, speaker) in speakers.iter().enumerate() {
                let other = speakers[(at + 1) % speakers.len()];
                list += &format!("1 {speaker}/v/00001.wav {speaker}/v/00002.wav\n");
                list += &format!("0 {speaker}/v/00001.wav {other}/v/00003.wav\n");
            }
            list
        };
        let all = trials(&["id10270", "id10271", "id10001", "id10002"]);
        for (name, list) in
            [("veri_test2", trials(&["id10270", "id10271"])), ("list_test_all2", all.clone()), ("list_test_hard2", all)]
        {
            place.write(&format!("corpora/voxceleb1/{name}.txt"), &list);
        }
        place.write_cnceleb(&mut voices);
        place
    }

    fn write_cnceleb(&self, voices: &mut Voices) {
        let (one, two) = ("corpora/cnceleb/CN-Celeb_flac", "corpora/cnceleb/CN-Celeb2_flac");
        for (corpus, speaker) in
            [(one, "id00000"), (one, "id00001"), (one, "id00800"), (one, "id00801"), (two, "id10000"), (two, "id10001")]
        {
            for clip in 1..=CLIPS {
                voices.say(speaker, &self.path(&format!("{corpus}/data/{speaker}/singing-01-{clip:03}.flac")));
            }
        }
        self.write(&format!("{one}/dev/dev.lst"), "id00000\nid00001\n");
        self.write(&format!("{two}/spk.lst"), "id10000\nid10001\n");
        let [mut map, mut enroll, mut tests, mut trials] = [const { String::new() }; 4];
        for (speaker, other) in [("id00800", "id00801"), ("id00801", "id00800")] {
            voices.say(speaker, &self.path(&format!("{one}/eval/enroll/{speaker}-enroll.flac")));
            voices.say(speaker, &self.path(&format!("{one}/eval/test/{speaker}-vlog-02-001.flac")));
            map += &format!("{speaker}-enroll {speaker}/singing-01-001.wav {speaker}/singing-01-002.wav\n");
            enroll += &format!("{speaker}-enroll enroll/{speaker}-enroll.wav\n");
            tests += &format!("test/{speaker}-vlog-02-001.wav\n");
            trials += &format!("{speaker}-enroll test/{speaker}-vlog-02-001.wav 1\n");
            trials += &format!("{speaker}-enroll test/{other}-vlog-02-001.wav 0\n");
        }
        for (name, content) in
            [("enroll.map", map), ("enroll.lst", enroll), ("test.lst", tests), ("trials.lst", trials)]
        {
            self.write(&format!("{one}/eval/lists/{name}"), &content);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A recipe of the page with a tiny network, in a file of the same name: files win over the program's recipes.
    fn shrink(&self, recipe: &str) {
        let settings = format!(
            "base = \"{recipe}\"\n[model]\nchannels = 16\nembedding = 16\n[data]\nseconds = 0.5\n\
             [train]\nepochs = 1\nbatch = 4\n"
        );
        self.write(recipe, &settings);
    }

    /// Runs the block of the page that has `command`, as it stands but for two of the four targets.
    fn run_block(&self, page: &str, command: &str) -> String {
        let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let block = blocks.into_iter().find(|block| block.contains(command)).expect(command);
        let script = block.replace("0.75,0.9,0.95,0.99", "0.75,0.95");
        let words = block.split([' ', ';', '\n']);
        for recipe in words.filter(|word| word.starts_with("voxceleb/ecapa") || word.starts_with("cnceleb/ecapa")) {
            self.shrink(recipe);
        }
        let program = Path::new(env!("CARGO_BIN_EXE_bregman"));
        let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-euc", &script]).current_dir(self.dir.path()).env("PATH", path).env("RAYON_NUM_THREADS", "2");
        let output: Output = shell.output().unwrap();
        let printed = success(&output);
        format!("{printed}{}", errors(&output))
    }

    /// The evaluations of a run, by name of the test set.
    fn evaluation(&self, run: &str, test: &str) -> Value {
        let folder = std::fs::read_dir(self.path(run).join("evaluations")).unwrap();
        let records = folder.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
        let mut records = records.map(|record| serde_json::from_str::<Value>(&record).unwrap());
        records.find(|record| record["test"] == test).unwrap_or_else(|| panic!("no evaluation on {test} in {run}"))
    }
}

/// Synthetic voices, handed out clip by clip.
struct Voices {
    clips: Manifest,
    used: std::collections::BTreeMap<String, usize>,
}

impl Voices {
    fn new(folder: &Path) -> Self {
        let config = SynthConfig {
            speakers: 14,
            utterances: CLIPS + 2,
            held_out: 0,
            seconds: [0.8, 1.0],
            ..SynthConfig::default()
        };
        let (clips, _) = SynthCorpus::new(config).unwrap().write(folder, false, &()).unwrap();
        Self { clips, used: Default::default() }
    }

    /// The next clip of a speaker. It is WAV whatever its name says: formats are told by content.
    fn say(&mut self, speaker: &str, path: &Path) {
        let voice = self.used.len();
        let entry = self.used.entry(speaker.to_owned()).or_insert(100 * voice);
        let (voice, clip) = (*entry / 100, *entry % 100);
        *entry += 1;
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(&self.clips.utterances[voice * (CLIPS + 2) + clip].path, path).unwrap();
    }
}

fn page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/corpora.md")).unwrap()
}

#[test]
fn voxceleb_goes_from_the_published_tree_to_the_table_by_the_commands_of_the_page() {
    let (place, page) = (Place::new(), page());
    let prepared = place.run_block(&page, "prepare voxceleb");
    assert!(prepared.contains("speakers    4") && !prepared.contains("test speakers"), "{prepared}");
    place.run_block(&page, "sweep voxceleb");
    let evaluated = place.run_block(&page, "--name VoxCeleb1-O");
    assert!(evaluated.contains("names end in .wav, their files in .flac"), "{evaluated}");
    assert!(place.path("voxceleb.html").is_file());
    for run in
        ["ecapa-linbreg-paper/method.target=0.75", "ecapa-adabreg-paper/method.target=0.95", "ecapa-dense-sgd/run"]
    {
        let run = format!("sweeps/voxceleb/{run}");
        for (test, trials, utterances, domain) in [
            ("VoxCeleb1-O", 4, 6, "in"),
            ("VoxCeleb1-E", 8, 12, "in"),
            ("VoxCeleb1-H", 8, 12, "in"),
            ("CN-Celeb-E", 4, 6, "out"),
        ] {
            let found = place.evaluation(&run, test);
            assert_eq!((found["trials"].as_u64(), found["utterances"].as_u64()), (Some(trials), Some(utterances)));
            assert_eq!((found["domain"].as_str(), found["scoring"].as_str()), (Some(domain), Some("as-norm")));
            assert_eq!((found["left_out"].as_u64(), found["cohort_speakers"].as_u64()), (Some(0), Some(4)));
        }
    }
}

#[test]
fn cnceleb_goes_from_the_published_tree_to_the_table_by_the_commands_of_the_page() {
    let (place, page) = (Place::new(), page());
    let printed = place.run_block(&page, "prepare cnceleb");
    let told = "left out 2 test speakers (8 utterances), so that CN-Celeb-E stays unseen; --part all keeps them";
    assert!(printed.contains("speakers    4") && printed.contains(told), "{printed}");
    assert!(place.path("cnceleb.html").is_file());
    let run = "sweeps/cnceleb/ecapa-adabreg-paper/method.target=0.95";
    let found = place.evaluation(run, "CN-Celeb-E");
    // Two sessions enroll each of the two speakers, and each has one test file.
    assert_eq!((found["utterances"].as_u64(), found["speakers"].as_u64()), (Some(6), Some(2)));
    assert_eq!((found["domain"].as_str(), found["scoring"].as_str()), (Some("in"), Some("as-norm")));

    let eval = place.path("corpora/cnceleb/CN-Celeb_flac/eval");
    let list = |name: &str| eval.join("lists").join(name);
    let evaluate = |more: &[&str]| {
        let (run, trials) = (place.path(run), list("trials.lst"));
        bregman(&[&["evaluate", text(&run), "--trials", text(&trials), "--json"], more].concat())
    };
    // The joined files enroll, with the published list of them or without any.
    let single = json(&evaluate(&["--root", text(&eval)]));
    let listed = json(&evaluate(&["--root", text(&eval), "--enroll", text(&list("enroll.lst"))]));
    assert_eq!(single["utterances"], 4);
    assert_eq!((&single["eer"], &single["threshold"]), (&listed["eer"], &listed["threshold"]));
    // A manifest of the test part in the place of the folders.
    let (manifest, map) = (place.path("test.csv"), list("enroll.map"));
    let corpus = place.path("corpora/cnceleb");
    success(&bregman(&["prepare", "cnceleb", text(&corpus), "--part", "test", "--out", text(&manifest)]));
    let multi = json(&evaluate(&["--root", text(&manifest), "--enroll", text(&map)]));
    assert_eq!((&multi["utterances"], &multi["threshold"]), (&found["utterances"], &found["cosine"]["threshold"]));
    // One root is not enough for the map.
    let missing = evaluate(&["--root", text(&eval), "--enroll", text(&map)]);
    let message = common::mistake(&missing);
    assert!(message.contains("4 names have no audio") && message.contains("--root more than once"), "{message}");
}

#[test]
fn speakers_of_the_test_lists_get_into_training_only_by_request_and_never_silently() {
    let place = Place::new();
    let prepare = |corpus: &str, folder: &str, more: &[&str]| {
        let (root, out) = (place.path(folder), place.path("m.csv"));
        let args = ["prepare", corpus, text(&root), "--out", text(&out), "--force", "--json"];
        let prepared = json(&bregman(&[&args, more].concat()));
        let notes: Vec<String> =
            prepared["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect();
        (prepared["summary"]["speakers"].as_u64().unwrap(), notes.join("\n"))
    };
    let (speakers, notes) = prepare("voxceleb", "corpora", &[]);
    assert_eq!(speakers, 4 + 2, "VoxCeleb2 dev and VoxCeleb1 dev");
    assert!(notes.contains("left out 2 test speakers (8 utterances), so that VoxCeleb1-O stays unseen"), "{notes}");
    assert!(notes.contains("2 speakers are of VoxCeleb1, whom VoxCeleb1-E and -H test"), "{notes}");
    let (speakers, notes) = prepare("voxceleb", "corpora", &["--part", "all"]);
    assert_eq!(speakers, 4 + 4);
    assert!(notes.contains("2 test speakers are in this manifest") && notes.contains("VoxCeleb1-O"), "{notes}");
    assert_eq!(prepare("voxceleb", "corpora/voxceleb2", &[]), (4, String::new()));
    assert_eq!(prepare("voxceleb", "corpora/voxceleb1", &["--part", "test"]), (2, String::new()));

    let (speakers, notes) = prepare("cnceleb", "corpora/cnceleb", &["--part", "all"]);
    assert_eq!(speakers, 6);
    assert!(notes.contains("2 test speakers are in this manifest"), "{notes}");
    // Lists that are lost, or that name a test speaker, change nothing.
    for lists in ["", "id00000\nid00001\nid00800\n"] {
        let list = place.path("corpora/cnceleb/CN-Celeb_flac/dev/dev.lst");
        if lists.is_empty() {
            std::fs::remove_file(&list).unwrap()
        } else {
            std::fs::write(&list, lists).unwrap()
        }
        let (speakers, notes) = prepare("cnceleb", "corpora/cnceleb", &[]);
        assert_eq!(speakers, 4, "{notes}");
        assert!(notes.contains("left out 2 test speakers"), "{notes}");
    }
}
