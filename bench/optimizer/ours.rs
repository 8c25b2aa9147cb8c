//! `bench/run optimizer`: one optimizer step over ECAPA C1024 with a 5994-class head, zeros counted, against the step
//! as published in PyTorch; and the memory bandwidth it reaches against copy and triad on the same machine.

use bregman::select::try_smallest_threshold;
use bregman::{AdaBreg, Duals, Groups, LinBreg, Optimizer, Param, Role, Rule};
use bregman_bench::{median_ms, peer, ratio, table};
use rayon::prelude::*;

const REPEATS: usize = 31;
const ROUNDS: usize = 3;

/// The tensors of ECAPA-TDNN GLOB C1024 and a classifier of 5994 × 192, from the golden parameter list.
fn network() -> Vec<Param> {
    let counts = bregman_golden::json("fullsize_parameter_counts");
    let (_, ecapa) =
        counts.as_object().expect("an object").iter().find(|(name, _)| name.starts_with("ECAPA")).expect("ECAPA");
    let parameters = ecapa["parameters"].as_object().expect("parameters");
    let param = |(name, entry): (&String, &serde_json::Value)| {
        let shape: Vec<usize> =
            entry["shape"].as_array().expect("shape").iter().map(|n| n.as_u64().expect("size") as usize).collect();
        let role = if shape.len() > 1 { Role::ConvWeight } else { Role::Bias };
        Param::new(name, shape, role)
    };
    parameters.iter().map(param).chain([Param::new("classifier.weight", [5994, 192], Role::Classifier)]).collect()
}

/// Weights with 95 % zeros and small gradients, from a hash of the position.
fn values(params: &[Param], live: f32, scale: f32) -> Vec<Vec<f32>> {
    let value = |i: usize| {
        let hash = (i as u32).wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b);
        let uniform = (hash >> 8) as f32 / (1 << 24) as f32;
        if uniform < live { (uniform / live - 0.5) * scale } else { 0.0 }
    };
    params.iter().map(|param| (0..param.len()).map(value).collect()).collect()
}

/// Milliseconds of a step, and the bytes it must move: each array read once, each written array written once.
fn step_ms(rule: Rule, params: &[Param], arrays: usize) -> (f64, f64) {
    let (mut theta, grads) = (values(params, 0.05, 0.1), values(params, 1.0, 2e-3));
    let groups = Groups::resolve(params.to_vec(), vec![]).expect("groups");
    let lambda = rule.default_lambda().expect("a Bregman rule");
    let mut optimizer = Optimizer::new(rule, groups, lambda, &theta).expect("optimizer");
    let ms = median_ms(3, REPEATS, || optimizer.step(&mut theta, &grads, rule.default_lr()).expect("step"));
    let elements: usize = params.iter().map(Param::len).sum();
    (ms, (elements * arrays * 4) as f64)
}

/// Milliseconds to find the λ that leaves exactly 5 % of the controlled weights non-zero.
fn quantile_ms(params: &[Param]) -> f64 {
    let groups = Groups::resolve(params.to_vec(), vec![]).expect("groups");
    let controlled = groups.controlled();
    let keep = controlled.iter().map(|&tensor| params[tensor].len() as u64).sum::<u64>() / 20;
    let optimizer =
        Optimizer::new(Rule::LinBreg(LinBreg::default()), groups, 0.01, &values(params, 1.0, 0.1)).expect("optimizer");
    let duals = optimizer.duals().expect("LinBreg keeps duals");
    median_ms(2, 11, || {
        let lambda =
            try_smallest_threshold(keep, |digit, bins| duals.histogram(&controlled, digit, bins)).expect("duals");
        assert!(lambda > 0.0);
    })
}

/// GB/s of a parallel copy and of a triad a = b + s·c over arrays of the size of the network: bytes read plus written.
fn ceilings(elements: usize) -> (f64, f64) {
    const CHUNK: usize = 1 << 16;
    let (b, c, mut a) = (vec![1.0f32; elements], vec![2.0f32; elements], vec![0.0f32; elements]);
    let copy = median_ms(3, REPEATS, || {
        a.par_chunks_mut(CHUNK).zip(b.par_chunks(CHUNK)).for_each(|(a, b)| a.copy_from_slice(b))
    });
    let triad = median_ms(3, REPEATS, || {
        a.par_chunks_mut(CHUNK).zip(b.par_chunks(CHUNK)).zip(c.par_chunks(CHUNK)).for_each(|((a, b), c)| {
            a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = b + 0.5 * c);
        });
    });
    let gb_per_s = |arrays: usize, ms: f64| (elements * arrays * 4) as f64 / ms * 1e-6;
    (gb_per_s(2, copy), gb_per_s(3, triad))
}

fn main() {
    let params = network();
    let elements: usize = params.iter().map(Param::len).sum();
    let shapes = serde_json::to_string(&params.iter().map(|param| &param.shape).collect::<Vec<_>>()).expect("json");
    let threads = rayon::current_num_threads();
    println!(
        "{elements} parameters in {} tensors, {threads} threads, median of {REPEATS} steps, \
         best of {ROUNDS} interleaved rounds\n",
        params.len()
    );

    let best = |a: f64, b: f64| a.min(b);
    let (mut linbreg, mut adabreg, mut quantile, mut copy, mut triad) =
        ((f64::MAX, 0.0), (f64::MAX, 0.0), f64::MAX, 0f64, 0f64);
    let mut theirs = std::collections::BTreeMap::<String, f64>::new();
    for _ in 0..ROUNDS {
        let (ms, bytes) = step_ms(Rule::LinBreg(LinBreg::default()), &params, 4);
        linbreg = (best(linbreg.0, ms), bytes);
        let (ms, bytes) = step_ms(Rule::AdaBreg(AdaBreg::default()), &params, 8);
        adabreg = (best(adabreg.0, ms), bytes);
        quantile = best(quantile, quantile_ms(&params));
        let (c, t) = ceilings(elements);
        (copy, triad) = (copy.max(c), triad.max(t));
        for (name, ms) in peer("optimizer", &[&shapes, &threads.to_string()]).as_object().expect("an object") {
            let entry = theirs.entry(name.clone()).or_insert(f64::MAX);
            *entry = best(*entry, ms.as_f64().expect("a number"));
        }
    }

    let ceiling = copy.max(triad);
    let row = |name: &str, (ms, bytes): (f64, f64), reference: f64| {
        let bandwidth = bytes / ms * 1e-6;
        vec![
            name.into(),
            format!("{ms:.1}"),
            format!("{reference:.1}"),
            format!("{:.1}", theirs["count"]),
            format!("{:.3}", ms / (reference + theirs["count"])),
            format!("{bandwidth:.1}"),
            format!("{:.0} %", 100.0 * bandwidth / ceiling),
        ]
    };
    table(
        &["step + zero count", "ours ms", "PyTorch step", "+ count", "ours/theirs", "GB/s", "of ceiling"],
        &[row("LinBreg", linbreg, theirs["linbreg"]), row("AdaBreg", adabreg, theirs["adabreg"])],
    );
    println!(
        "\nceiling: copy {copy:.1} GB/s, triad {triad:.1} GB/s; torch's fused AdamW, no prox, no count: {:.1} ms\n",
        theirs["fused_adamw"]
    );
    println!(
        "exact quantile of all duals: {quantile:.1} ms, torch.kthvalue on a concatenated copy: {:.1} ms\n",
        theirs["quantile"]
    );
    ratio("linbreg", linbreg.0, theirs["linbreg"] + theirs["count"]);
    ratio("adabreg", adabreg.0, theirs["adabreg"] + theirs["count"]);
    ratio("adabreg-vs-fused-adamw", adabreg.0, theirs["fused_adamw"]);
    ratio("quantile", quantile, theirs["quantile"]);
}
