//! Several ranks train as one process with all their batches does. Ranks are threads here; `bregman-cli` tests those of
//! MPI.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bregman_tensor::{Communicator, Cpu, PendingSum, Ranks, thread_ranks};
use bregman_train::{Ending, Error, Experiment, Observer, Precision, Result, Trainer, TrainingOutcome};
use common::{StopAfter, corpus, metrics, recipe, train};
use serde_json::Value;

const ADABREG: &str = "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
                       optimizer = { kind = \"adabreg\" }";

/// Trains, or continues, with these ranks, each in a thread of its own; what came of each.
fn train_on(
    ranks: Vec<Ranks>,
    experiment: Option<&Experiment>,
    run: &Path,
    stop: &StopAfter,
) -> Vec<Result<TrainingOutcome>> {
    let one = |ranks: Ranks| {
        let leads = ranks.leads();
        let open = move |precision: Option<Precision>| {
            Ok(Cpu::with_precision(precision.unwrap_or(Precision::F32)).with_ranks(ranks.clone()))
        };
        let (observer, stop): (&dyn Observer, _) =
            if leads { (stop, &stop.stop) } else { (&(), &AtomicBool::new(false)) };
        let trainer = match experiment {
            Some(experiment) => Trainer::new_on(open, experiment.clone(), run, observer)?,
            None => Trainer::resume_on(open, run, observer)?,
        };
        trainer.run(stop)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|ranks| scope.spawn(move || one(ranks))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn never() -> StopAfter {
    StopAfter::new(u64::MAX)
}

fn numbers(log: &[Value], name: &str) -> Vec<f64> {
    log.iter().filter_map(|line| line.get(name)?.as_f64()).collect()
}

/// The largest relative difference of the first `steps` losses.
fn apart(a: &Path, b: &Path, steps: usize) -> f64 {
    let (a, b) = (numbers(&metrics(a), "loss"), numbers(&metrics(b), "loss"));
    assert!(a.len() >= steps && a.len() == b.len());
    a.iter().zip(&b).take(steps).map(|(a, b)| (a - b).abs() / a.abs()).fold(0.0, f64::max)
}

#[test]
fn ranks_with_parts_of_a_batch_train_as_one_process_with_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let experiment = |batch: usize, joint: bool| {
        let settings = [format!("train.batch={batch}"), format!("train.joint_norms={joint}")];
        recipe(&dir.path().join("voices"), ADABREG, &settings.each_ref().map(String::as_str))
    };
    let whole = dir.path().join("whole");
    train(experiment(8, false), &whole).unwrap();
    for size in [2, 4] {
        let run = dir.path().join(format!("{size} ranks"));
        let outcomes = train_on(thread_ranks(size), Some(&experiment(8 / size, true)), &run, &never());
        let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        assert!(outcomes.iter().all(|outcome| outcome.ending == Ending::Finished));
        let of_rank = |outcome: &TrainingOutcome| (outcome.state.selection.clone(), outcome.state.sparsity);
        assert!(outcomes.iter().all(|outcome| of_rank(outcome) == of_rank(&outcomes[0])), "the same best epoch");
        // sums in another order: the runs part slowly, as any two that differ by rounding do
        let [first, later] = [1, 6].map(|steps| apart(&whole, &run, steps));
        assert!(first < 1e-5 && later < 1e-2, "{size} ranks: {first} at the first step, {later} in six");
    }
    let by_rank = dir.path().join("by rank");
    train_on(thread_ranks(2), Some(&experiment(4, false)), &by_rank, &never())
        .into_iter()
        .for_each(|r| drop(r.unwrap()));
    assert!(apart(&whole, &by_rank, 1) > 1e-4, "norms by rank see less of the batch");
}

#[test]
fn ranks_of_every_method_stay_equal_for_two_hundred_steps() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let linbreg = "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
                   law = { kind = \"multiplicative\" }";
    let rigl = "kind = \"rigl\"\ntarget = 0.8\nperiod = 3\noptimizer = { kind = \"adamw\" }";
    let snip = "kind = \"snip\"\ntarget = 0.8\nrounds = 3";
    for (number, method) in [ADABREG, linbreg, rigl, snip].into_iter().enumerate() {
        let settings = ["train.batch=4", "train.epochs=52"];
        let experiment = recipe(&dir.path().join("voices"), method, &settings);
        let run = dir.path().join(number.to_string());
        // compared by their hashes at step 200
        for outcome in train_on(thread_ranks(2), Some(&experiment), &run, &never()) {
            assert!(outcome.unwrap().state.step > 200);
        }
    }
}

#[test]
fn ranks_choose_the_mask_of_snip_that_one_process_does() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let snip = "kind = \"snip\"\ntarget = 0.8\nrounds = 3\nbatches = 2";
    let masks = |size: usize| {
        let settings = [format!("train.batch={}", 8 / size), "train.joint_norms=true".to_owned()];
        let experiment = recipe(&dir.path().join("voices"), snip, &settings.each_ref().map(String::as_str));
        let run = dir.path().join(format!("{size} ranks"));
        for outcome in train_on(thread_ranks(size), Some(&experiment), &run, &StopAfter::new(1)) {
            assert_eq!(outcome.unwrap().ending, Ending::Interrupted);
        }
        let file = std::fs::read(run.join("last/optimizer.safetensors")).unwrap();
        let arrays = safetensors::SafeTensors::deserialize(&file).unwrap();
        let masks = arrays.iter().filter(|(name, _)| name.ends_with(".mask"));
        masks.map(|(name, mask)| (name.to_owned(), mask.data().to_vec())).collect::<BTreeMap<_, _>>()
    };
    let alone = masks(1);
    assert!(alone.values().flatten().any(|&kept| kept == 0) && alone == masks(2));
}

#[test]
fn a_run_of_four_ranks_is_continued_by_two_and_by_one_in_the_same_order() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let settings = ["train.batch=2", "train.joint_norms=true"];
    let experiment = recipe(&dir.path().join("voices"), ADABREG, &settings);
    let [whole, broken] = ["whole", "broken"].map(|name| dir.path().join(name));
    for outcome in train_on(thread_ranks(4), Some(&experiment), &whole, &never()) {
        assert_eq!(outcome.unwrap().ending, Ending::Finished);
    }
    let part = |size: usize, steps: u64, experiment: Option<&Experiment>| {
        let outcomes = train_on(thread_ranks(size), experiment, &broken, &StopAfter::new(steps));
        outcomes.into_iter().map(|outcome| outcome.unwrap().state.step).collect::<Vec<_>>()
    };
    assert_eq!(part(4, 2, Some(&experiment)), [3; 4], "all stop at the step after the one at which one was asked to");
    std::fs::rename(broken.join("last"), broken.join("last.old")).unwrap(); // as a kill inside a save leaves it
    assert_eq!(part(2, 1, None), [5; 2]);
    assert_eq!(part(3, 1, None), [7; 3], "parts of 2, 3 and 3 cuts");
    let end = part(1, u64::MAX, None)[0];
    assert_eq!(numbers(&metrics(&whole), "loss").len() as u64, end);
    let difference = apart(&whole, &broken, 7);
    assert!(difference < 1e-2, "{difference}");
}

#[test]
fn duals_and_moments_divided_among_ranks_give_the_same_run_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let groups = "kind = \"adaptive\"\ntarget = 0.6\n\
                  groups = [{ initial_sparsity = 0.5, penalty = \"group_kernel\" }]\n\
                  law = { kind = \"multiplicative\" }\noptimizer = { kind = \"linbreg\", momentum = 0.9 }";
    let rigl = "kind = \"rigl\"\ntarget = 0.8\nperiod = 3\noptimizer = { kind = \"adamw\" }";
    let corrected = "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
                     law = { kind = \"multiplicative\" }\n\
                     optimizer = { kind = \"adabreg\", variant = \"subgradient_correction\" }";
    for (number, method) in [ADABREG, groups, rigl, corrected].into_iter().enumerate() {
        let run = |divided: bool| dir.path().join(format!("{number} {divided}"));
        for divided in [false, true] {
            let divide = format!("train.divide_optimizer={divided}");
            let experiment = recipe(&dir.path().join("voices"), method, &["train.batch=2", &divide]);
            let parts = [(Some(&experiment), 5), (None, u64::MAX)]; // also through a checkpoint
            for (experiment, steps) in parts {
                for outcome in train_on(thread_ranks(3), experiment, &run(divided), &StopAfter::new(steps)) {
                    outcome.unwrap();
                }
            }
        }
        for file in ["last/model.safetensors", "last/optimizer.safetensors", "best/model.safetensors"] {
            let [whole, divided] = [false, true].map(|divided| std::fs::read(run(divided).join(file)).ok());
            assert!(whole == divided, "{method}: {file}");
        }
    }
}

/// How many values each message of rank 0 has.
type Lengths = Arc<Mutex<Vec<usize>>>;

/// A rank whose messages are measured, and whose sums are wrong if asked for.
struct Watched {
    ranks: Ranks,
    lengths: Lengths,
    spoilt: bool,
}

impl Communicator for Watched {
    fn rank(&self) -> usize {
        self.ranks.rank()
    }

    fn size(&self) -> usize {
        self.ranks.size()
    }

    fn start_sum(&self, values: Vec<f32>) -> PendingSum {
        if self.ranks.leads() {
            self.lengths.lock().unwrap().push(values.len());
        }
        let mut sum = self.ranks.start_sum(values).wait().unwrap();
        if self.spoilt {
            sum.iter_mut().for_each(|value| *value = value.next_up());
        }
        let (pending, done) = PendingSum::new();
        done.send(sum).unwrap();
        pending
    }

    fn sum(&self, values: &mut [f64]) -> bregman_tensor::Result<()> {
        self.ranks.sum(values)
    }

    fn gather(&self, own: &[u8]) -> bregman_tensor::Result<Vec<Vec<u8>>> {
        self.ranks.gather(own)
    }

    fn abort(&self, code: i32) -> ! {
        panic!("{code}")
    }
}

fn watched(size: usize, spoilt: Option<usize>) -> (Vec<Ranks>, Lengths) {
    let lengths = Lengths::default();
    let watch = |ranks: Ranks| {
        let spoilt = spoilt == Some(ranks.rank());
        Ranks::new(Watched { ranks, lengths: lengths.clone(), spoilt })
    };
    (thread_ranks(size).into_iter().map(watch).collect(), lengths.clone())
}

#[test]
fn a_rank_that_differs_is_found_and_named_on_every_rank() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let experiment = recipe(&dir.path().join("voices"), ADABREG, &["train.batch=4", "train.epochs=52"]);
    let (ranks, _) = watched(3, Some(2));
    for outcome in train_on(ranks, Some(&experiment), &dir.path().join("run"), &never()) {
        assert!(matches!(outcome, Err(Error::RanksDiffer { step: 200, rank: 2 })), "{outcome:?}");
    }
}

/// Weights of a checkpoint, and its other values that have a gradient: norms and biases.
fn weights_and_others(run: &Path) -> [usize; 2] {
    let bytes = std::fs::read(run.join("last/model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let learned = file.iter().filter(|(name, _)| !name.contains("running_") && !name.contains("batches"));
    let shapes: Vec<Vec<usize>> = learned.map(|(_, tensor)| tensor.shape().to_vec()).collect();
    let count = |are_weights: bool| {
        let those = shapes.iter().filter(|shape| (shape.len() > 1) == are_weights);
        those.map(|shape| shape.iter().product::<usize>()).sum()
    };
    [count(true), count(false)]
}

#[test]
fn between_full_steps_at_95_percent_zeros_at_most_a_fifteenth_of_the_weights_gradients_travel() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let run = dir.path().join("run");
    let method = format!("{ADABREG}\nfreeze = 1000\nfreeze_after = 0.0");
    let zeros = ["method.target=0.95", "method.initial_sparsity=0.95", "method.groups=[]"];
    let settings = [&["train.batch=4", "train.epochs=4"][..], &zeros].concat();
    let experiment = recipe(&dir.path().join("voices"), &method, &settings);
    let (ranks, lengths) = watched(2, None);
    for outcome in train_on(ranks, Some(&experiment), &run, &never()) {
        outcome.unwrap();
    }
    let lengths = lengths.lock().unwrap();
    let [weights, others] = weights_and_others(&run);
    let sparsity = numbers(&metrics(&run), "sparsity");
    assert!(sparsity.iter().all(|share| (0.94..0.97).contains(share)), "{sparsity:?}");
    let (full, on_support): (Vec<usize>, Vec<usize>) = lengths.iter().partition(|&&sent| sent == weights + others);
    assert!(lengths[0] == weights + others, "the first step is full");
    assert!(full.len() == 1 + 4 && on_support.len() > 10, "{} full steps, the last of every epoch", full.len());
    for message in on_support {
        let sent = message - others;
        assert!(sent > 0 && 15 * sent <= weights, "{sent} of {weights}");
    }
}
