//! What the loader guarantees, for every source it reads from.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bregman_speaker::*;

fn synth() -> SynthCorpus {
    SynthCorpus::new(SynthConfig {
        speakers: 5,
        utterances: 4,
        held_out: 0,
        seconds: [0.5, 1.4],
        ..SynthConfig::default()
    })
    .unwrap()
}

fn memory() -> MemoryCorpus {
    MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap()
}

/// Half-second cuts, so that a small corpus has many.
fn cuts(source: impl AudioSource + 'static) -> Cuts {
    let speakers = source.manifest().speakers();
    Cuts::new(Arc::new(source), &speakers, CutConfig { seconds: 0.5, ..CutConfig::default() }).unwrap()
}

fn config(workers: usize) -> LoaderConfig {
    LoaderConfig { batch: 4, workers, seed: 11, ..LoaderConfig::default() }
}

fn loader(source: impl CutSource + 'static, config: LoaderConfig) -> Loader {
    Loader::new(Arc::new(source), config).unwrap()
}

fn take(loader: &Loader, from: BatchPosition, count: usize) -> Vec<Batch> {
    loader.batches(from).unwrap().take(count).map(Result::unwrap).collect()
}

#[test]
fn batches_do_not_depend_on_the_number_of_workers() {
    let expected = take(&loader(cuts(memory()), config(1)), BatchPosition::default(), 20);
    assert_eq!(expected[0].shape[0], 4);
    for workers in [2, 3, 8] {
        for ahead in [1, 20] {
            let config = LoaderConfig { ahead: Some(ahead), ..config(workers) };
            assert_eq!(
                take(&loader(cuts(memory()), config), BatchPosition::default(), 20),
                expected,
                "{workers} workers, {ahead} ahead"
            );
        }
    }
}

#[test]
fn a_run_resumes_at_any_batch_with_the_same_numbers() {
    let loader = loader(cuts(memory()), config(2));
    let per_epoch = loader.batches_per_epoch() as usize;
    let unbroken = take(&loader, BatchPosition::default(), 2 * per_epoch + 3);
    assert_eq!(unbroken.iter().filter(|batch| batch.is_last()).count(), 2);
    for stop in 0..unbroken.len() - 1 {
        let saved = serde_json::to_string(&unbroken[stop].next).unwrap();
        let resumed = take(&loader, serde_json::from_str(&saved).unwrap(), 1);
        assert_eq!(resumed[0], unbroken[stop + 1]);
    }
    let beyond = BatchPosition { epoch: 0, batch: per_epoch as u64 };
    assert!(loader.batches(beyond).is_err());
}

#[test]
fn an_epoch_holds_every_cut_once_and_epochs_differ() {
    let loader = loader(cuts(memory()), LoaderConfig { drop_last: false, ..config(2) });
    let numbers = |epoch| loader.epoch(epoch).unwrap().flat_map(|batch| batch.unwrap().cuts).collect::<Vec<u32>>();
    let (first, second) = (numbers(0), numbers(1));
    assert_ne!(first, second);
    for mut epoch in [first, second] {
        epoch.sort_unstable();
        assert_eq!(epoch, (0..loader.source().labels().len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn labels_belong_to_their_features() {
    let loader = loader(cuts(memory()), LoaderConfig { order: Order::Balanced, ..config(2) });
    let source = cuts(memory());
    let mut reader = source.reader();
    let mut alone = vec![0.0; source.shape().iter().product()];
    for batch in take(&loader, BatchPosition::default(), 5) {
        for ((cut, label), features) in batch.cuts.iter().zip(&batch.labels).zip(batch.features.chunks(alone.len())) {
            reader.read(*cut as usize, 0, &mut alone).unwrap();
            assert_eq!((source.labels()[*cut as usize], &alone[..]), (*label, features));
        }
    }
}

#[test]
fn files_shards_memory_and_cache_give_the_same_batches() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = synth().write(&dir.path().join("wav"), false, &()).unwrap();
    let expected = take(&loader(cuts(memory()), config(2)), BatchPosition::default(), 8);
    assert_eq!(take(&loader(cuts(FileCorpus(files.clone())), config(2)), BatchPosition::default(), 8), expected);

    let out = dir.path().join("shards");
    let shards =
        ShardConfig { out: out.clone(), per_shard: 6, format: ShardFormat::Pcm, seed: 1, strict: false, force: false };
    shard(&FileCorpus(files), &shards, &()).unwrap();
    // Shards have an order of their own: compare cut by cut, through names.
    let by_cut = |source: Cuts| {
        let (mut reader, size) = (source.reader(), source.shape().iter().product());
        let mut all: Vec<(u32, Vec<f32>)> = (0..source.labels().len())
            .map(|cut| {
                let mut features = vec![0.0; size];
                reader.read(cut, 0, &mut features).unwrap();
                (source.labels()[cut], features)
            })
            .collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all
    };
    assert_eq!(by_cut(cuts(ShardCorpus::open(&out).unwrap())), by_cut(cuts(memory())));

    let cache = FeatureCache::open(&dir.path().join("cache.f16"), cuts(memory()), &()).unwrap();
    assert!(cache.rebuilt());
    for (cached, exact) in take(&loader(cache, config(2)), BatchPosition::default(), 8).iter().zip(&expected) {
        assert_eq!((&cached.labels, &cached.cuts, cached.next), (&exact.labels, &exact.cuts, exact.next));
        for (a, b) in cached.features.iter().zip(&exact.features) {
            assert!((a - b).abs() <= b.abs() / 2048.0 + 1e-6, "{a} {b}");
        }
    }
}

#[test]
fn a_cache_is_reused_until_front_end_cuts_or_corpus_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let open = |config: CutConfig, source: MemoryCorpus| {
        let speakers = source.manifest().speakers();
        FeatureCache::open(&path, Cuts::new(Arc::new(source), &speakers, config).unwrap(), &()).unwrap().rebuilt()
    };
    let base = CutConfig { seconds: 0.5, ..CutConfig::default() };
    assert!(open(base.clone(), memory()));
    assert!(!open(base.clone(), memory()));
    let mut changed = base.clone();
    changed.features.low_hz = 30.0;
    assert!(open(changed.clone(), memory()));
    assert!(!open(changed, memory()));
    assert!(open(CutConfig { seconds: 0.4, ..base.clone() }, memory()));
    assert!(open(base.clone(), memory()));
    let mut manifest = synth().manifest();
    manifest.utterances[3].id = "other".into();
    assert!(open(base.clone(), MemoryCorpus::new(manifest, synth().render_all()).unwrap()));
    assert!(open(base.clone(), memory()));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(open(base, memory()), "a truncated cache is rebuilt");
}

#[test]
fn augmentation_follows_the_seed_and_each_speed_makes_a_new_speaker() {
    let dir = tempfile::tempdir().unwrap();
    let noise = bregman_audio::Audio { samples: memory().whole(0).unwrap(), rate: 16_000 };
    bregman_audio::write_wav(dir.path().join("n.wav"), &noise).unwrap();
    let augment = bregman_audio::AugmentConfig {
        speeds: vec![0.9, 1.1],
        noise: Some(bregman_audio::NoiseConfig {
            folder: dir.path().to_owned(),
            snr_db: [5.0, 15.0],
            probability: 0.6,
        }),
        mask: Some(bregman_audio::MaskConfig::default()),
        ..Default::default()
    };
    let cuts_with = |augment| {
        let config = CutConfig { seconds: 0.5, augment, ..CutConfig::default() };
        Cuts::new(Arc::new(memory()), &memory().manifest().speakers(), config).unwrap()
    };
    assert_eq!(cuts_with(augment.clone()).classes(), 15);
    let (one, four) = (loader(cuts_with(augment.clone()), config(1)), loader(cuts_with(augment.clone()), config(4)));
    let (batches, plain) = (
        take(&one, BatchPosition::default(), 12),
        take(&loader(cuts(memory()), config(1)), BatchPosition::default(), 12),
    );
    assert_eq!(take(&four, BatchPosition::default(), 12), batches);
    assert_eq!(take(&four, batches[6].next, 1)[0], batches[7]);
    let mut faster = 0;
    for (augmented, plain) in batches.iter().zip(&plain) {
        assert_eq!(augmented.cuts, plain.cuts);
        assert_ne!(augmented.features, plain.features);
        for (label, own) in augmented.labels.iter().zip(&plain.labels) {
            assert_eq!(label % 5, *own);
            faster += usize::from(label / 5 == 2);
        }
    }
    assert!((4..40).contains(&faster), "{faster} of 48 at speed 1.1");
    let refused = FeatureCache::open(&dir.path().join("c"), cuts_with(augment), &()).err().unwrap();
    assert!(refused.to_string().contains("no augmentation with a feature cache"), "{refused}");
}

/// A corpus on disk with two corrupted files, and their names.
fn damaged(folder: &Path) -> (Manifest, Vec<String>) {
    let (files, _) = synth().write(folder, false, &()).unwrap();
    let broken = [2, 9].map(|number| files.utterances[number].path.clone());
    std::fs::write(&broken[0], b"RIFF").unwrap();
    std::fs::remove_file(&broken[1]).unwrap();
    (files, broken.map(|path| path.display().to_string()).to_vec())
}

#[test]
fn unreadable_files_are_replaced_counted_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (manifest, broken) = damaged(dir.path());
    let loader_of =
        |workers| loader(cuts(FileCorpus(manifest.clone())), LoaderConfig { drop_last: false, ..config(workers) });
    let (one, three) = (loader_of(1), loader_of(3));
    let expected: Vec<Batch> = one.epoch(0).unwrap().map(Result::unwrap).collect();
    assert_eq!(three.epoch(0).unwrap().map(Result::unwrap).collect::<Vec<_>>(), expected);
    let cuts: usize = expected.iter().map(|batch| batch.shape[0]).sum();
    assert_eq!(cuts, one.source().labels().len(), "batches keep their size");
    for (skipped, name) in one.skipped().iter().zip(&broken) {
        assert_eq!(&skipped.name, name);
        assert!(skipped.times >= 1 && !skipped.problem.is_empty());
    }
    assert_eq!(one.skipped().len(), 2);

    let cache = FeatureCache::open(&dir.path().join("c"), self::cuts(FileCorpus(manifest.clone())), &()).unwrap();
    let cached = loader(cache, LoaderConfig { drop_last: false, ..config(2) });
    assert_eq!(
        cached.epoch(0).unwrap().map(|b| b.unwrap().cuts).collect::<Vec<_>>(),
        expected.into_iter().map(|b| b.cuts).collect::<Vec<_>>()
    );
    assert_eq!(cached.skipped().len(), 2);

    let strict = loader(self::cuts(FileCorpus(manifest)), LoaderConfig { strict: true, drop_last: false, ..config(2) });
    let results: Vec<Result<Batch>> = strict.batches(BatchPosition::default()).unwrap().collect();
    assert!(matches!(results.last(), Some(Err(Error::Unreadable { .. }))), "the stream ends with the error");
}

#[test]
fn a_corpus_without_a_readable_file_is_an_error_not_a_hang() {
    let mut manifest = synth().manifest();
    manifest.utterances.iter_mut().for_each(|utterance| utterance.path = Path::new("/nowhere").join(&utterance.path));
    let loader = loader(cuts(FileCorpus(manifest)), config(2));
    assert!(matches!(loader.batches(BatchPosition::default()).unwrap().next(), Some(Err(Error::Unreadable { .. }))));
}

/// Counts reads; panics on one cut.
struct Counting {
    labels: Vec<u32>,
    reads: Arc<AtomicUsize>,
    poison: Option<usize>,
}

impl CutSource for Counting {
    fn labels(&self) -> &[u32] {
        &self.labels
    }
    fn classes(&self) -> usize {
        1
    }
    fn shape(&self) -> [usize; 2] {
        [2, 3]
    }
    fn name(&self, cut: usize) -> String {
        cut.to_string()
    }
    fn reader(&self) -> Box<dyn CutReader + '_> {
        struct Reader<'a>(&'a Counting);
        impl CutReader for Reader<'_> {
            fn read(&mut self, cut: usize, _: u64, out: &mut [f32]) -> Result<u32> {
                assert_ne!(Some(cut), self.0.poison, "poisoned cut");
                self.0.reads.fetch_add(1, Ordering::SeqCst);
                out.fill(cut as f32);
                Ok(0)
            }
        }
        Box::new(Reader(self))
    }
}

fn counting(poison: Option<usize>) -> (Counting, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    (Counting { labels: vec![0; 1000], reads: reads.clone(), poison }, reads)
}

#[test]
fn few_batches_are_computed_ahead_of_a_slow_trainer() {
    let (source, reads) = counting(None);
    let loader = loader(source, LoaderConfig { batch: 10, workers: 4, ahead: Some(3), ..LoaderConfig::default() });
    let mut batches = loader.batches(BatchPosition::default()).unwrap();
    for taken in 1..5 {
        batches.next().unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        let reads = reads.load(Ordering::SeqCst);
        assert!(reads <= 10 * (taken + 3), "{reads} cuts read after {taken} batches");
    }
}

#[test]
fn an_epoch_ends_and_nothing_is_computed_beyond_it() {
    let (source, reads) = counting(None);
    let loader = loader(source, LoaderConfig { batch: 300, drop_last: false, workers: 3, ..LoaderConfig::default() });
    let sizes: Vec<usize> = loader.epoch(5).unwrap().map(|batch| batch.unwrap().shape[0]).collect();
    assert_eq!((sizes, reads.load(Ordering::SeqCst)), (vec![300, 300, 300, 100], 1000));
}

#[test]
fn recycled_memory_does_not_leak_into_the_next_batch() {
    let (source, _) = counting(None);
    let loader = loader(source, LoaderConfig { batch: 7, drop_last: false, workers: 2, ..LoaderConfig::default() });
    let mut batches = loader.batches(BatchPosition::default()).unwrap();
    for _ in 0..300 {
        let batch = batches.next().unwrap().unwrap();
        assert_eq!(batch.features.len(), batch.shape.iter().product::<usize>());
        for (cut, features) in batch.cuts.iter().zip(batch.features.chunks(6)) {
            assert!(features.iter().all(|&x| x == *cut as f32));
        }
        batches.recycle(batch);
    }
}

#[test]
fn a_panic_in_a_worker_becomes_an_error() {
    let (source, _) = counting(Some(500));
    let loader = loader(source, LoaderConfig { batch: 10, workers: 2, ..LoaderConfig::default() });
    let results: Vec<Result<Batch>> = loader.batches(BatchPosition::default()).unwrap().take(200).collect();
    assert!(matches!(results.last(), Some(Err(Error::Worker(text))) if text.contains("poisoned cut")));
}

#[test]
fn wrong_settings_are_refused_before_anything_starts() {
    let message = |config: LoaderConfig| Loader::new(Arc::new(counting(None).0), config).err().unwrap().to_string();
    assert_eq!(message(LoaderConfig { batch: 0, ..LoaderConfig::default() }), "batch = 0: expected 1 or more");
    let large = message(LoaderConfig { batch: 2000, ..LoaderConfig::default() });
    assert_eq!(large, "batch = 2000: expected at most the number of cuts in the corpus, or drop_last = false");
    assert_eq!(message(LoaderConfig { workers: 0, ..LoaderConfig::default() }), "workers = 0: expected 1 to 1024");
}
