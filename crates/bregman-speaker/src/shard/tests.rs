//! What is packed into shards is read back: with and without the index, in parts, after a killed run.

use std::path::Path;

use super::index::INDEX;
use super::{ShardConfig, ShardCorpus, ShardFormat, shard};
use crate::{AudioSource, Error, FileCorpus, MemoryCorpus, SynthConfig, SynthCorpus};

fn config(out: &Path, format: ShardFormat) -> ShardConfig {
    ShardConfig { out: out.to_owned(), per_shard: 3, format, seed: 4, strict: false, force: false }
}

fn synth() -> SynthCorpus {
    SynthCorpus::new(SynthConfig {
        speakers: 4,
        utterances: 2,
        held_out: 0,
        seconds: [0.3, 0.6],
        ..SynthConfig::default()
    })
    .unwrap()
}

/// Every utterance of `corpus` by id: speaker and samples.
fn content(corpus: &dyn AudioSource) -> Vec<(String, String, Vec<f32>)> {
    let utterances = corpus.manifest().utterances.iter().enumerate();
    let mut all: Vec<_> = utterances
        .map(|(number, utterance)| {
            (
                utterance.id.trim_end_matches(".wav").replace('.', "_"),
                utterance.speaker.to_string(),
                corpus.whole(number).unwrap(),
            )
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn shards_hold_the_same_audio_with_and_without_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let (train, _) = synth().write(&dir.path().join("wav"), false, &()).unwrap();
    let files = FileCorpus(train);
    for format in [ShardFormat::Pcm, ShardFormat::Original] {
        let out = dir.path().join(format!("{format:?}"));
        let made = shard(&files, &config(&out, format), &()).unwrap();
        assert_eq!((made.shards, made.utterances, made.unreadable.len()), (3, 8, 0));
        let indexed = ShardCorpus::open(&out).unwrap();
        assert_eq!(content(&indexed), content(&files));
        for (utterance, (_, _, samples)) in
            indexed.manifest().utterances.iter().zip(0..8).map(|(u, n)| (u, (0, 0, indexed.whole(n).unwrap())))
        {
            assert!((utterance.seconds.unwrap() - samples.len() as f64 / 16e3).abs() < 1e-4);
        }
        std::fs::remove_file(out.join(INDEX)).unwrap();
        let walked = ShardCorpus::open(&out).unwrap();
        assert_eq!(content(&walked), content(&files));
        let lengths =
            |corpus: &ShardCorpus| corpus.manifest().utterances.iter().map(|u| u.seconds.unwrap()).sum::<f64>();
        assert!((lengths(&walked) - lengths(&indexed)).abs() < 1e-3);
    }
}

#[test]
fn a_range_of_a_shard_equals_the_range_of_the_whole_utterance() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap();
    shard(&memory, &config(dir.path(), ShardFormat::Pcm), &()).unwrap();
    let shards = ShardCorpus::open(dir.path()).unwrap();
    let whole = shards.whole(5).unwrap();
    for range in [100..300, 4000..usize::MAX, 99_999..100_000] {
        let mut part = Vec::new();
        shards.append(5, range.clone(), &mut part).unwrap();
        assert_eq!(part, &whole[range.start.min(whole.len())..range.end.min(whole.len())]);
    }
}

#[test]
fn long_and_dotted_names_survive_packing() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = synth().manifest();
    manifest.utterances[0].id = format!("{}/v1.5/clip.wav", "very-long-speaker-name".repeat(6));
    let memory = MemoryCorpus::new(manifest, synth().render_all()).unwrap();
    shard(&memory, &config(dir.path(), ShardFormat::Pcm), &()).unwrap();
    let shards = ShardCorpus::open(dir.path()).unwrap();
    let at = shards.manifest().utterances.iter().position(|u| u.id == memory.manifest().utterances[0].id).unwrap();
    assert_eq!(shards.whole(at).unwrap(), memory.whole(0).unwrap());
}

#[test]
fn a_killed_run_keeps_its_complete_shards_and_repairs_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap();
    let config = config(dir.path(), ShardFormat::Pcm);
    shard(&memory, &config, &()).unwrap();
    let index = std::fs::read(dir.path().join(INDEX)).unwrap();
    assert!(matches!(shard(&memory, &config, &()), Err(Error::Exists(_))));
    // What a killed run leaves: no index but its mark, one shard missing, one incomplete, a temporary file.
    kill_at_the_end(&memory, &config);
    std::fs::remove_file(dir.path().join("shard-000002.tar")).unwrap();
    let truncated = dir.path().join("shard-000001.tar");
    let bytes = std::fs::read(&truncated).unwrap();
    std::fs::write(&truncated, &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(dir.path().join("shard-000002.tar.12-3.tmp"), b"half").unwrap();
    let message = ShardCorpus::open(dir.path()).unwrap_err().to_string();
    assert!(message.contains("give its command again"), "{message}");
    let again = shard(&memory, &config, &()).unwrap();
    assert_eq!((again.resumed, again.shards), (1, 3));
    assert_eq!(std::fs::read(dir.path().join(INDEX)).unwrap(), index);
    assert_eq!(std::fs::read(&truncated).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "three shards and their index");
}

/// What a run leaves that is killed when all shards are there, but not their index.
fn kill_at_the_end(corpus: &MemoryCorpus, config: &ShardConfig) {
    let folder = tempfile::tempdir().unwrap();
    let stop = Stop(0.into());
    let other = ShardConfig { out: folder.path().to_owned(), ..config.clone() };
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shard(corpus, &other, &stop)));
    assert!(stopped.is_err());
    std::fs::copy(folder.path().join(INDEX), config.out.join(INDEX)).unwrap();
}

#[test]
fn shards_of_a_killed_run_that_packed_something_else_are_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let quiet = |samples: &Vec<i16>| samples.iter().map(|sample| sample / 2).collect();
    let renamed = |folder: &str| {
        let mut manifest = synth().manifest();
        manifest.utterances.iter_mut().for_each(|utterance| utterance.path = Path::new(folder).join(&utterance.path));
        manifest
    };
    let loud = MemoryCorpus::new(renamed("loud"), synth().render_all()).unwrap();
    let quiet = MemoryCorpus::new(renamed("quiet"), synth().render_all().iter().map(quiet).collect()).unwrap();
    let first = config(dir.path(), ShardFormat::Pcm);
    shard(&loud, &first, &()).unwrap();
    kill_at_the_end(&loud, &first);
    assert_eq!(shard(&quiet, &first, &()).unwrap().resumed, 0, "names and lengths are those of the first corpus");
    assert_eq!(content(&ShardCorpus::open(dir.path()).unwrap()), content(&quiet));

    // what is killed as soon as it begins leaves nothing of the first corpus that could be taken for its own
    kill_at_the_end(&quiet, &first);
    let stopped = |stop: Stop| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shard(&loud, &first, &stop)));
    assert!(stopped(Stop(0.into())).is_err());
    shard(&loud, &first, &()).unwrap();
    assert_eq!(content(&ShardCorpus::open(dir.path()).unwrap()), content(&loud));
    for other in [ShardConfig { seed: 5, ..first.clone() }, ShardConfig { per_shard: 4, ..first.clone() }] {
        kill_at_the_end(&loud, &first);
        assert_eq!(shard(&loud, &other, &()).unwrap().resumed, 0);
    }
    std::fs::write(dir.path().join(INDEX), "unfinished\n").unwrap(); // of an earlier version
    assert_eq!(shard(&loud, &first, &()).unwrap().resumed, 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "three shards and their index");
}

#[test]
#[cfg(unix)]
fn a_shard_an_index_or_a_recording_that_never_ends_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = |path: &Path| {
        let _ = std::fs::remove_file(path);
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let (train, _) = synth().write(&dir.path().join("wav"), false, &()).unwrap();
    fifo(&train.utterances[2].path);
    let out = dir.path().join("out");
    let original = config(&out, ShardFormat::Original);
    let made = shard(&FileCorpus(train.clone()), &original, &()).unwrap();
    assert_eq!((made.utterances, made.unreadable.len()), (7, 1));
    assert!(made.unreadable[0].problem.contains("is a FIFO"), "{}", made.unreadable[0].problem);

    fifo(&out.join("shard-000001.tar"));
    for index in [true, false] {
        let message = ShardCorpus::open(&out).unwrap_err().to_string();
        assert!(message.contains("shard-000001.tar: is a FIFO"), "{message}");
        if index {
            std::fs::remove_file(out.join(INDEX)).unwrap();
        }
    }
    fifo(&out.join(INDEX));
    let message = ShardCorpus::open(&out).unwrap_err().to_string();
    assert!(message.contains("index.csv: is a FIFO"), "{message}");
}

/// Stops a packing after some utterances.
struct Stop(std::sync::atomic::AtomicUsize);

impl crate::Progress for Stop {
    fn begin(&self, _: usize) {}

    fn step(&self) {
        let before = self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        assert!(before > 0, "stopped");
    }
}

#[test]
fn a_forced_packing_that_is_stopped_leaves_the_old_corpus_valid() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap();
    let first = config(dir.path(), ShardFormat::Pcm);
    shard(&memory, &first, &()).unwrap();
    let old = content(&ShardCorpus::open(dir.path()).unwrap());
    let other = ShardConfig { seed: 5, force: true, ..first };
    for utterances in 1..8 {
        let stop = Stop(utterances.into());
        let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shard(&memory, &other, &stop)));
        assert!(stopped.is_err());
        assert_eq!(content(&ShardCorpus::open(dir.path()).unwrap()), old, "stopped after {utterances}");
    }
    for _ in 0..3 {
        shard(&memory, &other, &()).unwrap();
        assert_eq!(content(&ShardCorpus::open(dir.path()).unwrap()), old, "the same utterances in another order");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "three shards and their index");
    }
}

#[test]
fn shards_of_another_program_are_replaced_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap();
    let first = config(dir.path(), ShardFormat::Pcm);
    shard(&memory, &first, &()).unwrap();
    std::fs::remove_file(dir.path().join(INDEX)).unwrap();
    let other = ShardConfig { seed: 5, ..first };
    for _ in 0..2 {
        let refused = shard(&memory, &other, &());
        assert!(matches!(refused, Err(Error::Exists(path)) if path.extension().unwrap() == "tar"));
    }
}

#[test]
fn a_shard_that_is_cut_off_while_it_is_read_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap();
    shard(&memory, &config(dir.path(), ShardFormat::Pcm), &()).unwrap();
    let corpus = ShardCorpus::open(dir.path()).unwrap();
    let path = corpus.manifest().utterances[0].path.clone();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2000).unwrap();
    match corpus.whole(0).unwrap_err() {
        Error::Io { path: named, source } => {
            assert_eq!((named, source.kind()), (path, std::io::ErrorKind::UnexpectedEof));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn unreadable_files_are_left_out_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (train, _) = synth().write(&dir.path().join("wav"), false, &()).unwrap();
    let broken = train.utterances[3].path.clone();
    std::fs::write(&broken, b"not audio").unwrap();
    let out = dir.path().join("out");
    let made = shard(&FileCorpus(train.clone()), &config(&out, ShardFormat::Pcm), &()).unwrap();
    assert_eq!((made.utterances, made.unreadable.len()), (7, 1));
    assert_eq!(made.unreadable[0].path, broken.display().to_string());
    let strict = ShardConfig { strict: true, force: true, ..config(&out, ShardFormat::Pcm) };
    assert!(matches!(shard(&FileCorpus(train), &strict, &()), Err(Error::Unreadable { .. })));
}
