//! The synthetic corpus is neither trivial nor hopeless: feature means do not separate its speakers, a trained
//! classifier does.

use bregman_audio::{Fbank, FbankConfig, level};
use bregman_speaker::*;

const BINS: usize = 80;
const CEPSTRA: usize = 16;

/// Log-mel features of every utterance.
fn features(corpus: &SynthCorpus) -> Vec<Vec<[f64; BINS]>> {
    let mut fbank = Fbank::new(FbankConfig::speechbrain()).unwrap();
    let each = corpus.render_all().into_iter().map(|samples| {
        let mut samples: Vec<f32> = samples.into_iter().map(|x| f32::from(x) / 32768.0).collect();
        level(&mut samples);
        let rows = fbank.compute(&samples);
        rows.data.chunks(BINS).map(|row| std::array::from_fn(|bin| f64::from(row[bin]))).collect()
    });
    each.collect()
}

fn mean(rows: &[[f64; BINS]]) -> Vec<f64> {
    (0..BINS).map(|bin| rows.iter().map(|row| row[bin]).sum::<f64>() / rows.len() as f64).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Rate at which misses and false alarms are equal.
fn equal_error_rate(mut scores: Vec<(f64, bool)>) -> f64 {
    scores.sort_by(|a, b| b.0.total_cmp(&a.0));
    let targets = scores.iter().filter(|(_, target)| *target).count() as f64;
    let others = scores.len() as f64 - targets;
    let (mut hits, mut alarms) = (0.0, 0.0);
    for (_, target) in scores {
        if target {
            hits += 1.0
        } else {
            alarms += 1.0
        }
        if alarms / others >= 1.0 - hits / targets {
            break;
        }
    }
    (alarms / others + 1.0 - hits / targets) / 2.0
}

/// Standardised log-variances and correlations of mean-free cepstra: what a channel cannot change much.
fn statistics(rows: &[[f64; BINS]]) -> Vec<f64> {
    let mean = mean(rows);
    let cepstra: Vec<[f64; CEPSTRA]> = rows
        .iter()
        .map(|row| {
            std::array::from_fn(|k| {
                (0..BINS)
                    .map(|n| {
                        (row[n] - mean[n]) * (std::f64::consts::PI * k as f64 * (n as f64 + 0.5) / BINS as f64).cos()
                    })
                    .sum()
            })
        })
        .collect();
    let product = |a: usize, b: usize| cepstra.iter().map(|c| c[a] * c[b]).sum::<f64>() / cepstra.len() as f64;
    let deviation: Vec<f64> = (0..CEPSTRA).map(|k| product(k, k).sqrt()).collect();
    let pairs = (0..CEPSTRA).flat_map(|a| (0..a).map(move |b| (a, b)));
    let correlations = pairs.map(|(a, b)| product(a, b) / (deviation[a] * deviation[b]));
    deviation.iter().map(|d| d.ln()).chain(correlations).collect()
}

/// Softmax regression by gradient descent on standardised inputs; returns a scorer of (input, class).
fn train(inputs: &[Vec<f64>], labels: &[usize], classes: usize) -> impl Fn(&[f64], usize) -> f64 + use<> {
    let (n, size) = (inputs.len() as f64, inputs[0].len());
    let center: Vec<f64> = (0..size).map(|d| inputs.iter().map(|x| x[d]).sum::<f64>() / n).collect();
    let scale: Vec<f64> =
        (0..size).map(|d| (inputs.iter().map(|x| (x[d] - center[d]).powi(2)).sum::<f64>() / n).sqrt() + 1e-9).collect();
    let standard = move |x: &[f64]| -> Vec<f64> { (0..size).map(|d| (x[d] - center[d]) / scale[d]).collect() };
    let inputs: Vec<Vec<f64>> = inputs.iter().map(|x| standard(x)).collect();
    let mut weights = vec![vec![0.0; size]; classes];
    let logits = |weights: &[Vec<f64>], x: &[f64]| -> Vec<f64> {
        weights.iter().map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()).collect()
    };
    let log_softmax = |logits: &[f64]| -> Vec<f64> {
        let largest = logits.iter().copied().fold(f64::MIN, f64::max);
        let total = logits.iter().map(|z| (z - largest).exp()).sum::<f64>().ln() + largest;
        logits.iter().map(|z| z - total).collect()
    };
    for _ in 0..150 {
        let mut gradient = vec![vec![0.0; size]; classes];
        for (x, &label) in inputs.iter().zip(labels) {
            for (class, log) in log_softmax(&logits(&weights, x)).into_iter().enumerate() {
                let error = log.exp() - f64::from(u8::from(class == label));
                gradient[class].iter_mut().zip(x).for_each(|(g, x)| *g += error * x / n);
            }
        }
        for (row, gradient) in weights.iter_mut().zip(&gradient) {
            row.iter_mut().zip(gradient).for_each(|(w, g)| *w -= 0.5 * g + 0.002 * *w);
        }
    }
    move |x, class| log_softmax(&logits(&weights, &standard(x)))[class]
}

#[test]
fn feature_means_fail_where_a_trained_classifier_succeeds() {
    let (speakers, utterances, per_session) = (24, 16, 2);
    let config = SynthConfig {
        speakers,
        utterances,
        per_session,
        held_out: 0,
        seconds: [3.2, 3.6],
        seed: 21,
        ..SynthConfig::default()
    };
    let features = features(&SynthCorpus::new(config).unwrap());
    let speaker = |at: usize| at / utterances;
    let session = |at: usize| at % utterances / per_session;

    let means: Vec<Vec<f64>> = features.iter().map(|rows| mean(rows)).collect();
    let global: Vec<f64> =
        (0..BINS).map(|bin| means.iter().map(|mean| mean[bin]).sum::<f64>() / means.len() as f64).collect();
    let centred: Vec<Vec<f64>> =
        means.iter().map(|mean| mean.iter().zip(&global).map(|(m, g)| m - g).collect()).collect();
    for (what, vectors) in [("means", &means), ("centred means", &centred)] {
        let mut scores = Vec::new();
        for a in 0..vectors.len() {
            for b in 0..a {
                if speaker(a) != speaker(b) || session(a) != session(b) {
                    scores.push((cosine(&vectors[a], &vectors[b]), speaker(a) == speaker(b)));
                }
            }
        }
        let rate = equal_error_rate(scores);
        println!("{what}: EER {:.1} %", 100.0 * rate);
        assert!(rate > 0.25, "{what} already give an EER of {rate}");
    }

    // Learn from six sessions of everybody, test on two others.
    let learned = |at: &usize| session(*at) < 6;
    let inputs: Vec<Vec<f64>> = features.iter().map(|rows| statistics(rows)).collect();
    let all: Vec<usize> = (0..inputs.len()).collect();
    let (known, new): (Vec<usize>, Vec<usize>) = all.iter().partition(|at| learned(at));
    let score = train(
        &known.iter().map(|&at| inputs[at].clone()).collect::<Vec<_>>(),
        &known.iter().map(|&at| speaker(at)).collect::<Vec<_>>(),
        speakers,
    );
    let scores = new.iter().flat_map(|&at| (0..speakers).map(move |claim| (at, claim)));
    let rate = equal_error_rate(scores.map(|(at, claim)| (score(&inputs[at], claim), speaker(at) == claim)).collect());
    println!("trained on other sessions: EER {:.1} %", 100.0 * rate);
    assert!(rate < 0.12, "a classifier trained on other sessions has an EER of {rate}");
}
