//! `bench/run scoring`: a trial list of the size of CN-Celeb-E (196 models × 17 777 tests = 3.48 M trials) with AS-norm
//! against a cohort of 2793 speakers, then EER and minDCF, against the same procedure in vectorised numpy.

use std::path::Path;
use std::time::Instant;

use bregman_bench::{peer, ratio, table};
use bregman_speaker::score::{Bootstrap, Cohort, Det, Embeddings, score_trials, speakers_of_trials};
use bregman_speaker::{Rng, Trial};

const MODELS: usize = 196;
const TESTS: usize = 17_777;
const COHORT: usize = 2793;
const DIM: usize = 192;
const TOP_N: usize = 600;
const ROUNDS: usize = 5;

/// Speakers as random directions, utterances as noise around them: an EER of some percent.
fn embeddings(rng: &mut Rng, centres: &[Vec<f32>], speakers: &[i32]) -> Embeddings {
    let values = speakers.iter().flat_map(|&speaker| {
        centres[speaker as usize].iter().map(|&x| x + 2.2 * rng.normal() as f32).collect::<Vec<_>>()
    });
    Embeddings::new(DIM, values.collect()).expect("finite rows")
}

/// The best of some rounds, in milliseconds, and the last result.
fn best<T>(mut call: impl FnMut() -> T) -> (f64, T) {
    let mut round = || {
        let start = Instant::now();
        let result = call();
        (start.elapsed().as_secs_f64() * 1e3, result)
    };
    (1..ROUNDS).fold(round(), |(best, _), _| {
        let (ms, result) = round();
        (best.min(ms), result)
    })
}

fn main() {
    let mut rng = Rng::keyed(&[1]);
    let mut directions = |count: usize| -> Vec<Vec<f32>> {
        (0..count).map(|_| (0..DIM).map(|_| rng.normal() as f32).collect()).collect()
    };
    let (centres, others) = (directions(MODELS), directions(COHORT));
    let model_speakers: Vec<i32> = (0..MODELS as i32).collect();
    let test_speakers: Vec<i32> = (0..TESTS).map(|test| (test % MODELS) as i32).collect();
    let models = embeddings(&mut rng, &centres, &model_speakers);
    let tests = embeddings(&mut rng, &centres, &test_speakers);
    let cohort = Embeddings::new(DIM, others.concat()).expect("finite rows");
    let trial = |at: usize| {
        let (enroll, test) = (at / TESTS, at % TESTS);
        Trial { enroll: enroll as u32, test: test as u32, target: model_speakers[enroll] == test_speakers[test] }
    };
    let trials: Vec<Trial> = (0..MODELS * TESTS).map(trial).collect();
    let labels: Vec<bool> = trials.iter().map(|trial| trial.target).collect();

    let settings = Cohort { speakers: &cohort, center: false, as_norm: Some(TOP_N) };
    let (as_norm_ms, scores) = best(|| score_trials(&models, &tests, &trials, Some(settings)).expect("scores"));
    let (rates_ms, rates) = best(|| {
        let det = Det::new(scores.best(), &labels).expect("both classes");
        [det.eer(), det.min_dcf(0.01), det.min_dcf(0.05)]
    });
    // As in any trial list, the enrollment utterances are not among the tests.
    let members: Vec<Vec<usize>> = (0..MODELS).map(|model| vec![TESTS + model]).collect();
    let det = Det::new(scores.best(), &labels).expect("both classes");
    let start = Instant::now();
    let speakers = speakers_of_trials(&members, &trials);
    let intervals =
        Bootstrap { replicates: 1000, seed: 1 }.intervals(&det, scores.best(), &trials, &speakers, &[0.01, 0.05]);
    let (bootstrap_ms, intervals) = (start.elapsed().as_secs_f64() * 1e3, intervals.expect("many speakers"));

    let folder = std::env::temp_dir().join(format!("bregman-bench-scoring-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    write(&folder.join("models.f32"), models.values().iter().flat_map(|x| x.to_le_bytes()));
    write(&folder.join("tests.f32"), tests.values().iter().flat_map(|x| x.to_le_bytes()));
    write(&folder.join("cohort.f32"), cohort.values().iter().flat_map(|x| x.to_le_bytes()));
    write(&folder.join("speakers.i32"), model_speakers.iter().chain(&test_speakers).flat_map(|x| x.to_le_bytes()));
    let numbers =
        [rayon::current_num_threads(), MODELS, TESTS, COHORT, DIM, TOP_N, ROUNDS].map(|number| number.to_string());
    let path = folder.to_string_lossy();
    let theirs = peer("scoring", &[&[&*path], &numbers.each_ref().map(String::as_str)[..]].concat());
    std::fs::remove_dir_all(&folder).expect("the temporary folder is ours");
    let their = |key: &str| theirs[key].as_f64().expect("a number per key");

    println!(
        "{} trials, {COHORT} cohort speakers, top {TOP_N}, {} threads, best of {ROUNDS}\n",
        trials.len(),
        numbers[0]
    );
    let row = |name: &str, ours: f64, theirs: f64| {
        vec![name.into(), format!("{ours:.0}"), format!("{theirs:.0}"), format!("{:.3}", ours / theirs)]
    };
    table(
        &["ms", "ours", "numpy", "ours/theirs"],
        &[
            row("AS-norm scores", as_norm_ms, their("as_norm")),
            row("EER, minDCF", rates_ms, their("rates")),
            row("both", as_norm_ms + rates_ms, their("as_norm") + their("rates")),
        ],
    );
    println!("\n1000 bootstrap replicates over {MODELS} speakers, ours only: {bootstrap_ms:.0} ms");
    println!(
        "EER {:.6} (numpy {:.6}), 95 % interval {:.4} – {:.4}",
        rates[0],
        their("eer"),
        intervals.eer[0],
        intervals.eer[1]
    );
    for (ours, key) in rates.iter().zip(["eer", "min_dcf", "min_dcf_0.05"]) {
        assert!((ours - their(key)).abs() < 1e-4, "{key}: {ours} here, {} in numpy", their(key));
    }
    println!();
    ratio("scoring/as-norm", as_norm_ms, their("as_norm"));
    ratio("scoring/rates", rates_ms, their("rates"));
    ratio("scoring/total", as_norm_ms + rates_ms, their("as_norm") + their("rates"));
}

fn write(path: &Path, bytes: impl Iterator<Item = u8>) {
    std::fs::write(path, bytes.collect::<Vec<u8>>()).expect("the temporary folder is writable");
}
