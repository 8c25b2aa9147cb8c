//! Published corpus layouts in miniature: folders of synthetic audio are found, measured and listed.

use std::path::{Path, PathBuf};

use bregman_audio::{Audio, write_wav};
use bregman_speaker::*;

/// A fifth of a second of a synthetic voice.
fn voice(path: &Path, seed: u64) {
    let config =
        SynthConfig { speakers: 2, utterances: 1, held_out: 0, seconds: [0.2, 0.2], seed, ..SynthConfig::default() };
    let samples = SynthCorpus::new(config).unwrap().render(0, 0).into_iter().map(|x| f32::from(x) / 32768.0).collect();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_wav(path, &Audio { samples, rate: 16_000 }).unwrap();
}

fn tree(root: &Path, files: &[&str]) {
    files.iter().zip(1..).for_each(|(file, seed)| voice(&root.join(file), seed));
}

fn text(path: PathBuf, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// `(id, speaker, session, genre)` of every utterance.
fn facts(manifest: &Manifest) -> Vec<(&str, &str, &str, &str)> {
    let utterances = manifest.utterances.iter();
    utterances
        .map(|u| (u.id.as_str(), &*u.speaker, u.session.as_deref().unwrap_or("-"), u.genre.as_deref().unwrap_or("-")))
        .collect()
}

const VOXCELEB: [&str; 5] = [
    "vox1_dev_wav/wav/id10001/1zcIwhmdeo4/00001.wav",
    "vox1_dev_wav/wav/id10001/7gWzIy6yIIk/00002.wav",
    "vox1_test_wav/wav/id10270/5r0dWxy17C8/00001.wav",
    "latest/dev/aac/id00012/21Uxsk56VDQ/00001.wav",
    "vox2/vox2_test_aac/aac/id00017/01dfn2spqyE/00001.wav",
];

#[test]
fn voxceleb_trees_are_found_with_their_sessions_and_test_speakers() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path(), &VOXCELEB);
    voice(&dir.path().join("musan/noise/a.wav"), 9); // not speech
    let all = Corpus::VoxCeleb.find(dir.path(), CorpusPart::All).unwrap();
    assert_eq!(
        facts(&all),
        [
            ("id00012/21Uxsk56VDQ/00001", "id00012", "21Uxsk56VDQ", "-"),
            ("id00017/01dfn2spqyE/00001", "id00017", "01dfn2spqyE", "-"),
            ("id10001/1zcIwhmdeo4/00001", "id10001", "1zcIwhmdeo4", "-"),
            ("id10001/7gWzIy6yIIk/00002", "id10001", "7gWzIy6yIIk", "-"),
            ("id10270/5r0dWxy17C8/00001", "id10270", "5r0dWxy17C8", "-"),
        ]
    );
    let speakers = |part| Corpus::VoxCeleb.find(dir.path(), part).unwrap().speakers().names().join(" ");
    assert_eq!(
        (speakers(CorpusPart::Train).as_str(), speakers(CorpusPart::Test).as_str()),
        ("id00012 id10001", "id00017 id10270")
    );
    // The published lists name .wav files relative to the speaker's folder.
    text(
        dir.path().join("veri_test2.txt"),
        "1 id10001/1zcIwhmdeo4/00001.wav id10001/7gWzIy6yIIk/00002.wav\n\
         0 id10001/1zcIwhmdeo4/00001.wav id10270/5r0dWxy17C8/00001.wav\n",
    );
    let trials = Trials::read(&dir.path().join("veri_test2.txt")).unwrap().resolve(&all, None).unwrap();
    assert_eq!((trials.models, trials.trials[1].test), (vec![vec![2]], 4));
}

#[test]
fn cnceleb_trees_give_training_and_multi_session_enrollment() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("CN-Celeb_flac"), dir.path().join("CN-Celeb2_flac"));
    tree(
        &one,
        &["data/id00000/singing-01-001.wav", "data/id00800/movie-02-003.wav", "data/id00800/singing-01-001.wav"],
    );
    tree(
        &one,
        &[
            "eval/enroll/id00800-enroll.wav",
            "eval/test/id00800-singing-03-001.wav",
            "eval/test/id00801-drama-01-002.wav",
        ],
    );
    tree(&two, &["data/id10000/vlog-01-001.wav"]);
    text(one.join("dev/dev.lst"), "id00000\n");
    text(two.join("spk.lst"), "id10000\n");
    text(one.join("eval/lists/enroll.map"), "id00800-enroll id00800/movie-02-003.wav id00800/singing-01-001.wav\n");
    let trials = "id00800-enroll test/id00800-singing-03-001.wav 1\nid00800-enroll test/id00801-drama-01-002.wav 0\n";
    text(one.join("eval/lists/trials.lst"), trials);

    let train = Corpus::CnCeleb.find(dir.path(), CorpusPart::Train).unwrap();
    assert_eq!(
        facts(&train),
        [
            ("id00000/singing-01-001", "id00000", "singing-01", "singing"),
            ("id10000/vlog-01-001", "id10000", "vlog-01", "vlog")
        ]
    );
    let test = Corpus::CnCeleb.find(&one, CorpusPart::Test).unwrap();
    assert_eq!(
        facts(&test),
        [
            ("enroll/id00800-enroll", "id00800", "-", "-"),
            ("id00800/movie-02-003", "id00800", "movie-02", "movie"),
            ("id00800/singing-01-001", "id00800", "singing-01", "singing"),
            ("test/id00800-singing-03-001", "id00800", "singing-03", "singing"),
            ("test/id00801-drama-01-002", "id00801", "drama-01", "drama"),
        ]
    );
    let trials = Trials::read(&one.join("eval/lists/trials.lst")).unwrap();
    let map = Enrollments::read(&one.join("eval/lists/enroll.map")).unwrap();
    let multi = trials.resolve(&test, Some(&map)).unwrap();
    assert_eq!((&multi.models, multi.trials[0].test, multi.trials[1].test), (&vec![vec![1, 2]], 3, 4));
    let single = trials.resolve(&test, None).unwrap();
    assert_eq!(single.models, [[0]], "without a map, the joined enrollment file");
    assert_eq!(Corpus::CnCeleb.find(dir.path(), CorpusPart::All).unwrap().utterances.len(), 7);
}

#[test]
fn kaldi_folders_follow_their_lists_and_refuse_pipes() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path(), &["wav/a.wav", "wav/b.wav"]);
    let absolute = dir.path().join("wav/b.wav");
    text(dir.path().join("wav.scp"), &format!("utt-a wav/a.wav\nutt-b {}\n", absolute.display()));
    text(dir.path().join("utt2spk"), "utt-a ann\nutt-b bob\n");
    let found = Corpus::Kaldi.find(dir.path(), CorpusPart::All).unwrap();
    assert_eq!(facts(&found), [("utt-a", "ann", "-", "-"), ("utt-b", "bob", "-", "-")]);
    assert!(found.utterances.iter().all(|utterance| utterance.path.exists()));

    text(dir.path().join("utt2spk"), "utt-a ann\n");
    let message = Corpus::Kaldi.find(dir.path(), CorpusPart::All).unwrap_err().to_string();
    assert!(message.contains("wav.scp, line 2: utterance 'utt-b' is not in"), "{message}");
    text(dir.path().join("segments"), "utt-a rec 0 1\n");
    let message = Corpus::Kaldi.find(dir.path(), CorpusPart::All).unwrap_err().to_string();
    assert!(message.contains("parts of recordings"), "{message}");
    std::fs::remove_file(dir.path().join("segments")).unwrap();
    text(dir.path().join("wav.scp"), "utt-a sph2pipe -f wav a.sph |\n");
    let message = Corpus::Kaldi.find(dir.path(), CorpusPart::All).unwrap_err().to_string();
    assert!(message.contains("wav.scp, line 1: shell pipes are not supported"), "{message}");
}

#[test]
fn folders_of_speakers_are_found_at_any_depth() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path(), &["ann/1.wav", "ann/monday/2.wav", "bob/1.wav", "loose.wav", ".hidden/x.wav"]);
    text(dir.path().join("ann/notes.txt"), "x");
    let found = Corpus::Folder.find(dir.path(), CorpusPart::All).unwrap();
    assert_eq!(
        facts(&found),
        [("ann/1.wav", "ann", "-", "-"), ("ann/monday/2.wav", "ann", "monday", "-"), ("bob/1.wav", "bob", "-", "-")]
    );
    let speech = Corpus::Speech.find(dir.path(), CorpusPart::All).unwrap();
    assert_eq!(facts(&speech)[..3], facts(&found)[..]);
    assert_eq!(facts(&speech)[3..], [("loose.wav", "unknown", "-", "-")]);
    let message = Corpus::Folder.find(dir.path(), CorpusPart::Test).unwrap_err().to_string();
    assert_eq!(message, "part = test: expected all: only VoxCeleb and CN-Celeb have a fixed test set");
    let empty = tempfile::tempdir().unwrap();
    let message = Corpus::Folder.find(empty.path(), CorpusPart::All).unwrap_err().to_string();
    assert!(message.contains("no audio found; expected one folder per speaker"), "{message}");
}

#[test]
fn prepare_measures_lists_the_unreadable_and_writes_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    tree(&root, &["ann/1.wav", "ann/2.wav", "bob/1.wav"]);
    text(root.join("bob/2.wav"), "");
    text(root.join("bob/3.mp3"), "not an MP3");
    let out = dir.path().join("m.csv");
    let prepared = prepare(&PrepareConfig::new(Corpus::Folder, &root, out.clone()), &()).unwrap();
    assert_eq!((prepared.summary.speakers, prepared.summary.utterances, prepared.resumed), (2, 3, 0));
    let broken: Vec<&str> = prepared.unreadable.iter().map(|file| file.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(broken, ["2.wav", "3.mp3"]);
    let manifest = Manifest::read(&out, None).unwrap();
    assert!(manifest.utterances.iter().all(|utterance| utterance.seconds == Some(0.2) && utterance.path.exists()));
    assert!(dir.path().join("m.summary.json").exists() && !dir.path().join("m.csv.partial").exists());

    assert!(matches!(prepare(&PrepareConfig::new(Corpus::Folder, &root, out.clone()), &()), Err(Error::Exists(_))));
    let strict = PrepareConfig { strict: true, force: true, ..PrepareConfig::new(Corpus::Folder, &root, out.clone()) };
    assert!(matches!(prepare(&strict, &()), Err(Error::Unreadable { .. })));
    assert_eq!(Manifest::read(&out, None).unwrap(), manifest, "a failed run leaves the old manifest");
}

#[test]
fn verify_finds_damage_behind_an_intact_header() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    tree(&root, &["ann/1.wav", "ann/2.wav"]);
    let whole = std::fs::read(root.join("ann/2.wav")).unwrap();
    std::fs::write(root.join("ann/2.wav"), &whole[..whole.len() / 3]).unwrap();
    let quick = prepare(&PrepareConfig::new(Corpus::Folder, &root, dir.path().join("quick.csv")), &()).unwrap();
    assert_eq!((quick.summary.utterances, quick.unreadable.len()), (2, 0));
    let thorough =
        PrepareConfig { verify: true, ..PrepareConfig::new(Corpus::Folder, &root, dir.path().join("thorough.csv")) };
    let thorough = prepare(&thorough, &()).unwrap();
    assert_eq!((thorough.summary.utterances, thorough.unreadable.len()), (1, 1));
    assert!(thorough.unreadable[0].problem.contains("of the 0.20 s"), "{}", thorough.unreadable[0].problem);
}

#[test]
fn prepare_splits_and_excludes_test_speakers() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let files: Vec<String> =
        ["ann", "bob", "eve"].iter().flat_map(|name| (0..10).map(move |n| format!("{name}/{n}.wav"))).collect();
    tree(&root, &files.iter().map(String::as_str).collect::<Vec<_>>());
    let trials = dir.path().join("t.txt");
    text(trials.clone(), "1 eve/1.wav eve/2.wav\n0 eve/1.wav zoe/1.wav\n");
    let out = dir.path().join("m.csv");
    let config = PrepareConfig {
        validation: 0.2,
        exclude: vec![trials],
        ..PrepareConfig::new(Corpus::Folder, &root, out.clone())
    };
    prepare(&config, &()).unwrap();
    let read = |name: &str| Manifest::read(&dir.path().join(name), None).unwrap();
    let (all, train, valid) = (read("m.csv"), read("m.train.csv"), read("m.valid.csv"));
    assert_eq!(all.speakers().names().join(" "), "ann bob");
    assert_eq!((train.utterances.len(), valid.utterances.len()), (16, 4));
    assert!(valid.utterances.iter().all(|utterance| !train.utterances.contains(utterance)));
}

#[test]
fn prepare_holds_speakers_out_and_makes_a_trial_list_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let files: Vec<String> = ["ann b", "bob", "eve", "joe", "zoe"]
        .iter()
        .flat_map(|name| (0..3).map(move |n| format!("{name}/{n}.wav")))
        .collect();
    tree(&root, &files.iter().map(String::as_str).collect::<Vec<_>>());
    let config = PrepareConfig { held_out: 3, ..PrepareConfig::new(Corpus::Folder, &root, root.join("train.csv")) };
    let prepared = prepare(&config, &()).unwrap();
    assert_eq!(prepared.summary.speakers, 2);
    let read = |name: &str| Manifest::read(&root.join(name), None).unwrap();
    let (train, test) = (read("train.csv"), read("train.test.csv"));
    assert_eq!((train.utterances.len(), test.utterances.len()), (6, 9));
    assert!(test.speakers().names().iter().all(|speaker| train.speakers().label(speaker).is_none()));
    let trials = Trials::read(&root.join("train.trials.txt")).unwrap().resolve(&test, None).unwrap();
    assert_eq!(trials.trials.len(), 2 * 3 * 3);

    let too_many = PrepareConfig { held_out: 4, force: true, ..config };
    let message = prepare(&too_many, &()).unwrap_err().to_string();
    assert!(message.starts_with("held_out = 4 of 5 speakers: expected 2 or more"), "{message}");
    assert_eq!(read("train.csv"), train, "what was there stays");
}

/// The real corpora of the development machine, if they are present.
#[test]
fn real_csv_corpora_and_their_trials_resolve() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    for (name, speakers, utterances) in [("audiomnist", 50, 1200), ("fsdd", 6, 300)] {
        let root = shared.join(name);
        if !root.exists() {
            bregman_skip::skip("corpora", format!("{name} is not in ../shared/data"));
            continue;
        }
        let test = Manifest::read(&root.join("test.csv"), None).unwrap();
        assert!(test.utterances.iter().all(|utterance| utterance.path.exists() && utterance.seconds.is_some()));
        let trials = Trials::read(&root.join("trials.txt")).unwrap().resolve(&test, None).unwrap();
        for trial in &trials.trials {
            let enroll = &test.utterances[trials.models[trial.enroll as usize][0]];
            assert_eq!(trial.target, enroll.speaker == test.utterances[trial.test as usize].speaker);
        }
        if root.join("enroll.map").exists() {
            let map = Enrollments::read(&root.join("enroll.map")).unwrap();
            let multi = Trials::read(&root.join("trials_multi.txt")).unwrap().resolve(&test, Some(&map)).unwrap();
            assert_eq!((multi.models.len(), multi.models[0].len(), multi.trials.len()), (10, 5, 1900));
        }
        let files = open_corpus(&root.join("test.csv"), None).unwrap();
        let cuts = Cuts::new(files, &test.speakers(), CutConfig::default()).unwrap();
        let config = LoaderConfig { batch: 32, drop_last: false, workers: 2, ..LoaderConfig::default() };
        let loader = Loader::new(std::sync::Arc::new(cuts), config).unwrap();
        let read: usize = loader.epoch(0).unwrap().map(|batch| batch.unwrap().labels.len()).sum();
        assert!(
            read >= test.utterances.len() && loader.skipped().is_empty(),
            "{read} cuts, skipped {:?}",
            loader.skipped()
        );

        let dir = tempfile::tempdir().unwrap();
        let folder = prepare(&PrepareConfig::new(Corpus::Folder, &root, dir.path().join("m.csv")), &()).unwrap();
        assert_eq!(
            (folder.summary.speakers, folder.summary.utterances, folder.unreadable.len()),
            (speakers, utterances, 0)
        );
        let csv = dir.path().join("t.csv");
        prepare(&PrepareConfig::new(Corpus::Csv, root.join("test.csv"), csv.clone()), &()).unwrap();
        let measured = Manifest::read(&csv, None).unwrap();
        for utterance in &test.utterances {
            let again = measured.utterances.iter().find(|other| other.id == utterance.id).unwrap();
            assert!((again.seconds.unwrap() - utterance.seconds.unwrap()).abs() < 0.01, "{}", utterance.id);
        }
    }
}
