//! Scores and rates against the reference numbers (`golden/scoring`), and what must hold for any trials.

use bregman_golden::{Tensors, json};
use proptest::prelude::*;

use super::*;

/// What a float32 computation may differ from the reference, from golden's README.
const COSINE: f64 = 1e-6;
const AS_NORM: f64 = 2e-5;

struct Golden {
    tensors: Tensors,
    settings: serde_json::Value,
}

impl Golden {
    fn load() -> Self {
        Self { tensors: Tensors::load("scoring"), settings: json("scoring") }
    }

    fn embeddings(&self, name: &str) -> Embeddings {
        Embeddings::new(self.tensors.shape(name)[1], self.tensors.f32(name)).unwrap()
    }

    fn trials(&self) -> Vec<Trial> {
        let (pairs, labels) = (self.tensors.i64("trials"), self.tensors.i64("trial_labels"));
        let trial = |(pair, &label): (&[i64; 2], &i64)| Trial {
            enroll: pair[0] as u32,
            test: pair[1] as u32,
            target: label == 1,
        };
        pairs.as_chunks().0.iter().zip(&labels).map(trial).collect()
    }

    fn top_n(&self) -> usize {
        self.settings["top_n"].as_u64().unwrap() as usize
    }

    fn metric(&self, case: &str, name: &str) -> f64 {
        self.settings["metrics"][case][name]
            .as_f64()
            .unwrap_or_else(|| panic!("scoring.json has no metrics.{case}.{name}"))
    }

    /// Every detection cost of a case: its P_target and its value.
    fn costs(&self, case: &str) -> Vec<(f64, f64)> {
        let setting = |name: &str| self.settings[name].as_f64().unwrap();
        let (c_miss, c_fa) = (setting("c_miss"), setting("c_fa"));
        let costs =
            self.settings["metrics"][case].as_object().unwrap().iter().filter(|(name, _)| name.starts_with("min_dcf"));
        let cost = |(name, value): (&String, &serde_json::Value)| {
            let p = name.strip_prefix("min_dcf_p").map_or(setting("p_target"), |p| p.parse().unwrap());
            // Costs other than 1 only move the prior.
            (c_miss * p / (c_miss * p + c_fa * (1.0 - p)), value.as_f64().unwrap())
        };
        costs.map(cost).collect()
    }

    fn metric_labels(&self) -> Vec<bool> {
        self.tensors.i64("metric_labels").into_iter().map(|label| label == 1).collect()
    }
}

fn assert_close(what: &str, ours: impl IntoIterator<Item = f64>, reference: &[f64], tolerance: f64) {
    let ours: Vec<f64> = ours.into_iter().collect();
    assert_eq!(ours.len(), reference.len(), "{what}");
    let worst = ours.iter().zip(reference).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst <= tolerance, "{what}: off by {worst:e}");
}

#[test]
fn scores_equal_the_reference_with_and_without_centring() {
    let golden = Golden::load();
    let (embeddings, speakers, trials) =
        (golden.embeddings("embeddings"), golden.embeddings("cohort"), golden.trials());
    for (center, suffix) in [(false, ""), (true, "_centered")] {
        let cohort = Cohort { speakers: &speakers, center, as_norm: Some(golden.top_n()) };
        let scores = score_trials(&embeddings, &embeddings, &trials, Some(cohort)).unwrap();
        let reference = |name: &str| golden.tensors.f64(&format!("{name}{suffix}"));
        assert_close("cosine", scores.cosine.clone(), &reference("cosine"), COSINE);
        assert_close("AS-norm", scores.best().to_vec(), &reference("asnorm"), AS_NORM);

        let mean = speakers.mean();
        let prepare =
            |e: &Embeddings| if center { e.clone().subtract(&mean).normalize() } else { e.clone().normalize() };
        let statistics = CohortScores::of(&prepare(&embeddings), &prepare(&speakers), golden.top_n()).unwrap();
        assert_close("cohort mean", statistics.iter().map(|s| s.mean), &reference("cohort_mean"), COSINE);
        assert_close("cohort std", statistics.iter().map(|s| s.std), &reference("cohort_std"), COSINE);

        let labels: Vec<bool> = trials.iter().map(|trial| trial.target).collect();
        let case = format!("trials_asnorm{suffix}");
        let det = Det::new(scores.best(), &labels).unwrap();
        assert_close(&case, [det.eer()], &[golden.metric(&case, "eer")], 1e-9);
        assert_costs(&det, &golden, &case);
    }
    assert_close("mean", speakers.mean().into_iter().map(f64::from), &golden.tensors.f64("mean_vector"), 1e-6);
}

#[test]
fn enrollment_with_equal_weights_equals_the_reference() {
    let golden = Golden::load();
    let speaker = golden.tensors.i64("speaker");
    let count = *speaker.iter().max().unwrap() + 1;
    let groups: Vec<Vec<usize>> =
        (0..count).map(|s| (0..speaker.len()).filter(|&row| speaker[row] == s).collect()).collect();
    let models = golden.embeddings("embeddings").normalize().averages(&groups, |_| 5.0);
    assert_close(
        "models",
        models.values().iter().map(|&x| f64::from(x)),
        &golden.tensors.f64("authors_enrollment_mean"),
        1e-6,
    );
}

fn assert_costs(det: &Det, golden: &Golden, case: &str) {
    for (p, reference) in golden.costs(case) {
        assert_close(&format!("{case}, minDCF({p})"), [det.min_dcf(p)], &[reference], 1e-9);
    }
}

#[test]
fn rates_equal_the_reference() {
    let golden = Golden::load();
    let labels = golden.metric_labels();
    let scores = golden.tensors.f64("metric_scores");
    let det = Det::new(&scores, &labels).unwrap();
    assert_close("no ties", [det.eer()], &[golden.metric("no_ties", "eer")], 1e-9);
    let threshold = golden.metric("no_ties", "eer_threshold");
    // Where as large a share of both is wrong, the reference's rounding decides between this score and the next one.
    let [targets, others] = det.trials();
    let wrong = |target: bool| {
        let is_wrong = |(score, label): &(&f64, &bool)| **label == target && (**score > det.threshold()) != target;
        scores.iter().zip(&labels).filter(is_wrong).count() as u64
    };
    let next = scores.iter().copied().filter(|&score| score > det.threshold()).fold(f64::INFINITY, f64::min);
    let equal = wrong(true) * others == wrong(false) * targets;
    let ours = if equal && threshold > det.threshold() { next } else { det.threshold() };
    assert_close("the threshold without ties", [ours], &[threshold], 1e-9);
    assert_costs(&det, &golden, "no_ties");

    let separable: Vec<f64> = labels.iter().map(|&target| if target { 0.8 } else { 0.3 }).collect();
    let det = Det::new(&separable, &labels).unwrap();
    assert_close("separable", [det.eer(), det.threshold()], &[golden.metric("separable", "eer"), 0.3], 1e-9);
    assert_costs(&det, &golden, "separable");
}

#[test]
fn ties_lie_between_the_extremes_of_the_reference() {
    let golden = Golden::load();
    let det = Det::new(&golden.tensors.f64("metric_scores_ties"), &golden.metric_labels()).unwrap();
    let [first, last] =
        ["ties_targets_sorted_first", "ties_targets_sorted_last"].map(|case| golden.metric(case, "eer"));
    assert!((last..=first).contains(&det.eer()), "{last} {} {first}", det.eer());
    // No threshold can separate tied trials: the cost is that of the worst order within each tie.
    assert_costs(&det, &golden, "ties_targets_sorted_first");
}

#[test]
fn chance_is_one_half_and_trivial_costs_are_one() {
    let det = Det::new(&[0.5; 10], &[true, false, true, false, false, false, false, false, false, true]).unwrap();
    assert_eq!((det.eer(), det.min_dcf(0.01), det.min_dcf(0.9)), (0.5, 1.0, 1.0));
    let reversed = Det::new(&[0.0, 1.0, 2.0, 3.0], &[true, true, false, false]).unwrap();
    assert_eq!((reversed.eer(), reversed.min_dcf(0.05)), (1.0, 1.0));
}

#[test]
fn one_class_or_a_score_that_is_no_number_is_refused() {
    let error = |scores: &[f64], labels: &[bool]| Det::new(scores, labels).unwrap_err();
    assert!(error(&[0.1, 0.2], &[true, true]).to_string().starts_with("no non-target trials"));
    assert!(error(&[0.1, 0.2], &[false, false]).to_string().starts_with("no target trials"));
    assert!(error(&[], &[]).is_user_mistake());
    assert_eq!(error(&[0.1, f64::NAN], &[true, false]).to_string(), "the score of trial 2 is not a finite number");
}

#[test]
fn trials_and_cohorts_that_do_not_fit_are_refused() {
    let embeddings =
        |rows: usize, dim: usize| Embeddings::new(dim, (0..rows * dim).map(|i| (i as f32).sin()).collect()).unwrap();
    let (three, one, other) = (embeddings(3, 4), embeddings(1, 4), embeddings(3, 5));
    let trial = Trial { enroll: 0, test: 2, target: true };
    let score = |speakers: &Embeddings, top_n| {
        score_trials(&three, &three, &[trial], Some(Cohort { speakers, center: false, as_norm: Some(top_n) }))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(score(&one, 5), "cohort = 1 speakers: expected 2 or more");
    assert_eq!(score(&three, 1), "as-norm = 1: expected 2 or more");
    assert_eq!(score(&other, 5), "cohort = 5 values where the test has 4: expected embeddings of the same network");
    assert!(score_trials(&one, &one, &[trial], None).unwrap_err().to_string().contains("model 0 against test 2"));
}

/// The definition, literally: all thresholds, quadratic.
fn by_definition(scores: &[f64], labels: &[bool]) -> (f64, f64) {
    let mut thresholds: Vec<f64> = scores.iter().copied().chain([f64::NEG_INFINITY]).collect();
    thresholds.sort_by(f64::total_cmp);
    let rate = |class: bool, accepted: &dyn Fn(f64) -> bool| {
        let members: Vec<f64> =
            scores.iter().zip(labels).filter(|(_, label)| **label == class).map(|(s, _)| *s).collect();
        members.iter().filter(|s| accepted(**s)).count() as f64 / members.len() as f64
    };
    let points: Vec<(f64, f64)> =
        thresholds.iter().map(|&t| (rate(true, &|s| s <= t), rate(false, &|s| s > t))).collect();
    let at = points.iter().position(|(miss, fa)| miss >= fa).unwrap();
    let ((m0, f0), (m1, f1)) = (points[at.max(1) - 1], points[at]);
    let share = if at == 0 { 0.0 } else { (m1 - f1) / ((f0 - f1) - (m0 - m1)) };
    let cost = points.iter().map(|(miss, fa)| 0.05 * miss + 0.95 * fa).fold(f64::INFINITY, f64::min) / 0.05;
    (m1 + share * (m0 - m1), cost)
}

proptest! {
    #[test]
    fn rates_equal_their_definition_for_any_trials(
        trials in proptest::collection::vec((0u8..30, any::<bool>()), 2..60),
        shuffle in any::<u64>(),
    ) {
        let mut trials = trials;
        trials[0].1 = true;
        trials[1].1 = false;
        let split = |trials: &[(u8, bool)]| -> (Vec<f64>, Vec<bool>) {
            trials.iter().map(|&(s, t)| (f64::from(s) / 7.0 - 2.0, t)).unzip()
        };
        let (scores, labels) = split(&trials);
        let det = Det::new(&scores, &labels).unwrap();
        let (eer, cost) = by_definition(&scores, &labels);
        prop_assert!((det.eer() - eer).abs() < 1e-12, "{} {eer}", det.eer());
        prop_assert!((det.min_dcf(0.05) - cost).abs() < 1e-12, "{} {cost}", det.min_dcf(0.05));
        prop_assert!(det.points().windows(2).all(|w| w[0].miss <= w[1].miss && w[0].false_alarm >= w[1].false_alarm));

        // The order of the trials does not matter, ties or not.
        crate::Rng::keyed(&[shuffle]).shuffle(&mut trials);
        let (scores, labels) = split(&trials);
        let again = Det::new(&scores, &labels).unwrap();
        let rates = |det: &Det| (det.eer(), det.threshold(), det.min_dcf(0.01));
        prop_assert_eq!(rates(&again), rates(&det));
    }
}

#[test]
fn fast_dot_products_are_those_of_the_definition() {
    for dim in [1, 31, 192, 256, 300] {
        let value = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
        let embeddings = Embeddings::new(dim, (0..5 * dim).map(value).collect()).unwrap().normalize();
        let trials: Vec<Trial> = (0..25).map(|i| Trial { enroll: i / 5, test: i % 5, target: false }).collect();
        let fast = cosines(&embeddings, &embeddings, &trials);
        let slow: Vec<f64> = (0..25).map(|i| cosine(embeddings.row(i / 5), embeddings.row(i % 5))).collect();
        assert_close(&format!("dim {dim}"), fast, &slow, 1e-6);
    }
}
