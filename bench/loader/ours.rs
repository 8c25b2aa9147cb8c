//! The loader on one core: 3 s cuts in random order as batches of features, from FLAC, from shards and from the cache,
//! against a PyTorch DataLoader, and the cores that an H200 step needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bregman_bench::{peer, ratio, table};
use bregman_speaker::*;

/// Utterances per second that ECAPA training on an H200 consumes.
const NEEDED: f64 = 4000.0;
/// Both sides report the best of three windows of this length: other work on the machine can only slow them down.
const SECONDS: u64 = 2;

fn main() {
    let folder = Folder(std::env::temp_dir().join(format!("bregman-bench-loader-{}", std::process::id())));
    // Utterances of 8 s, VoxCeleb's average.
    let config =
        SynthConfig { speakers: 32, utterances: 16, held_out: 0, seconds: [7.0, 9.0], ..SynthConfig::default() };
    let (wav, _) = SynthCorpus::new(config)
        .and_then(|corpus| corpus.write(&folder.0, true, &()))
        .expect("the temporary folder is writable");
    let path = folder.0.to_string_lossy();
    peer("loader", &["encode", &path]);
    let flac = Manifest {
        utterances: wav
            .utterances
            .iter()
            .map(|u| Utterance { path: u.path.with_extension("flac"), ..u.clone() })
            .collect(),
    };
    let shards = |name: &str, format, manifest: &Manifest| {
        let out = folder.0.join(name);
        let config = ShardConfig { out: out.clone(), per_shard: 128, format, seed: 1, strict: true, force: true };
        shard(&FileCorpus(manifest.clone()), &config, &()).expect("the corpus is readable");
        ShardCorpus::open(&out).expect("the shards were just written")
    };
    let pcm_shards = shards("pcm", ShardFormat::Pcm, &wav);
    let flac_shards = shards("original", ShardFormat::Original, &flac);
    let cache = FeatureCache::open(&folder.0.join("cache.f16"), cuts(FileCorpus(wav.clone())), &())
        .expect("the cache can be built");

    let mut rates = vec![
        ("FLAC files", rate(cuts(FileCorpus(flac))), "flac"),
        ("FLAC in shards", rate(cuts(flac_shards)), "flac"),
        ("WAV files", rate(cuts(FileCorpus(wav))), "pcm"),
        ("16-bit shards", rate(cuts(pcm_shards)), "pcm"),
        ("feature cache", rate(cache), "cache"),
    ];
    let theirs = peer("loader", &["measure", &path, &SECONDS.to_string()]);
    let theirs = |kind: &str| theirs[kind].as_f64().expect("a rate per kind");

    let row = |(name, ours, kind): &(&str, f64, &str)| {
        let numbers = [*ours, theirs(kind), NEEDED / ours, NEEDED / theirs(kind)];
        std::iter::once(name.to_string())
            .chain(numbers.map(|x| if x < 100.0 { format!("{x:.2}") } else { format!("{x:.0}") }))
            .collect()
    };
    let header = ["utterances (3 s) per second and core", "bregman", "PyTorch", "cores for 4000/s", "PyTorch's"];
    table(&header, &rates.iter().map(row).collect::<Vec<_>>());
    let (files, cached) = (rates[0].1, rates[4].1);
    println!("the cache is {:.1} times as fast as FLAC files, for 48 kB of disk per cut", cached / files);
    rates.retain(|(name, _, _)| ["FLAC files", "16-bit shards", "feature cache"].contains(name));
    for (name, ours, kind) in rates {
        ratio(&format!("loader/{}", name.to_lowercase().replace(' ', "-")), 1.0 / ours, 1.0 / theirs(kind));
    }
}

fn cuts(source: impl AudioSource + 'static) -> Cuts {
    let speakers = source.manifest().speakers();
    Cuts::new(Arc::new(source), &speakers, CutConfig::default()).expect("defaults are valid")
}

/// Utterances per second of a loader with one worker whose batches are recycled at once.
fn rate(source: impl CutSource + 'static) -> f64 {
    let config = LoaderConfig { workers: 1, ..LoaderConfig::default() };
    let loader = Loader::new(Arc::new(source), config).expect("the corpus fills a batch");
    let mut batches = loader.batches(BatchPosition::default()).expect("the start is a position");
    let mut take = || {
        let batch = batches.next().expect("the stream has no end").expect("the corpus is readable");
        let size = batch.shape[0];
        batches.recycle(batch);
        size
    };
    for _ in 0..4 {
        take(); // batches computed ahead do not count
    }
    let mut window = || {
        let (start, mut utterances) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(SECONDS) {
            utterances += take();
        }
        utterances as f64 / start.elapsed().as_secs_f64()
    };
    (0..3).map(|_| window()).fold(0.0, f64::max)
}

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.0));
    }
}
