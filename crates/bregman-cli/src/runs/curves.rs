//! Curves over steps, thinned without hiding anything: consecutive steps share a bucket, and each bucket keeps its
//! lowest and highest value with the mean. A spike of one step in 100 000 stays visible. A run with fewer steps than
//! buckets is kept exactly.

use std::collections::BTreeMap;

use bregman_train::StepRecord;
use serde::Serialize;

use super::six_digits;

/// What is logged at each step.
const METRICS: [&str; 10] = [
    "loss",
    "accuracy",
    "lambda",
    "sparsity",
    "target",
    "epsilon",
    "lr",
    "margin",
    "gradient_norm",
    "utterances_per_second",
];

/// Every logged step.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) step: Vec<u64>,
    values: [Vec<f64>; METRICS.len()],
}

/// The same in at most so many buckets.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Curves {
    /// The first step of each bucket.
    pub(crate) first: Vec<u64>,
    /// The last step of each bucket.
    pub(crate) last: Vec<u64>,
    /// Steps that were logged.
    pub(crate) logged: usize,
    /// By name; a metric that was never logged is absent.
    pub(crate) metrics: BTreeMap<&'static str, Curve>,
}

/// One metric: NaN where a bucket has none.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Curve {
    pub(crate) mean: Vec<f64>,
    /// Lowest value of each bucket; empty where every bucket is one step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) low: Vec<f64>,
    /// Highest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) high: Vec<f64>,
}

impl Steps {
    pub(super) fn add(&mut self, record: &StepRecord) {
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let values = [
            record.loss,
            record.accuracy,
            number(record.lambda),
            record.sparsity,
            number(record.target),
            number(record.epsilon),
            record.lr,
            record.margin,
            record.gradient_norm,
            record.utterances_per_second,
        ];
        self.push(record.step, values);
    }

    /// In the order of [`METRICS`].
    fn push(&mut self, step: u64, values: [f64; METRICS.len()]) {
        self.step.push(step);
        self.values.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.step.is_empty()
    }

    /// The last value of a metric that is a number.
    pub(super) fn latest(&self, metric: &str) -> Option<f64> {
        let column = METRICS.iter().position(|name| *name == metric)?;
        self.values[column].iter().rev().copied().find(|value| value.is_finite())
    }

    /// The first step whose loss is not a number.
    pub(super) fn diverged(&self) -> Option<u64> {
        self.values[0].iter().position(|loss| !loss.is_finite()).map(|at| self.step[at])
    }

    /// At most `buckets` buckets.
    pub(super) fn thin(&self, buckets: usize) -> Curves {
        let per = self.step.len().div_ceil(buckets.max(1)).max(1);
        let thin = |column: &Vec<f64>| Curve::thin(column, per);
        let logged =
            METRICS.iter().zip(&self.values).filter(|(_, column)| column.iter().any(|value| value.is_finite()));
        Curves {
            first: self.step.chunks(per).map(|bucket| bucket[0]).collect(),
            last: self.step.chunks(per).map(|bucket| bucket[bucket.len() - 1]).collect(),
            logged: self.step.len(),
            metrics: logged.map(|(&name, column)| (name, thin(column))).collect(),
        }
    }
}

impl Curve {
    fn thin(values: &[f64], per: usize) -> Self {
        let fold = |fold: fn(&mut dyn Iterator<Item = f64>) -> f64| {
            let bucket =
                |bucket: &[f64]| six_digits(fold(&mut bucket.iter().copied().filter(|value| value.is_finite())));
            values.chunks(per).map(bucket).collect::<Vec<f64>>()
        };
        let mean = fold(|values| {
            let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            if count > 0.0 { sum / count } else { f64::NAN }
        });
        if per == 1 {
            return Self { mean, ..Self::default() };
        }
        Self {
            mean,
            low: fold(|values| values.fold(f64::NAN, f64::min)),
            high: fold(|values| values.fold(f64::NAN, f64::max)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(values: &[f64]) -> Steps {
        let mut steps = Steps::default();
        values.iter().enumerate().for_each(|(at, &value)| steps.push(at as u64 + 1, [value; METRICS.len()]));
        steps
    }

    #[test]
    fn a_spike_of_one_step_in_a_hundred_thousand_survives() {
        let mut values = vec![1.0; 100_000];
        (values[31_337], values[77_777]) = (9.0, -9.0);
        let thinned = steps(&values).thin(1000);
        let loss = &thinned.metrics["loss"];
        assert_eq!((loss.mean.len(), thinned.last.last()), (1000, Some(&100_000)));
        assert!(loss.high.contains(&9.0) && loss.low.contains(&-9.0));
    }

    #[test]
    fn a_short_run_is_kept_exactly_and_a_gap_stays_a_gap() {
        let thinned = steps(&[3.0, f64::NAN, 1.0]).thin(10);
        let loss = &thinned.metrics["loss"];
        assert_eq!((loss.mean[0], loss.mean[2], loss.low.len()), (3.0, 1.0, 0));
        assert!(loss.mean[1].is_nan());
        assert_eq!(serde_json::to_string(&loss).unwrap(), r#"{"mean":[3.0,null,1.0]}"#);
    }

    proptest! {
        #[test]
        fn every_value_lies_between_the_lowest_and_the_highest_of_its_bucket(
            values in prop::collection::vec(-1e6..1e6f64, 1..500),
            buckets in 1..60usize,
        ) {
            let thinned = steps(&values).thin(buckets);
            prop_assert!(thinned.last.len() <= buckets);
            prop_assert_eq!((thinned.first[0], *thinned.last.last().unwrap()), (1, values.len() as u64));
            let curve = &thinned.metrics["loss"];
            for (at, &value) in values.iter().enumerate() {
                let bucket = thinned.last.partition_point(|&last| last < at as u64 + 1);
                let exact = curve.low.is_empty();
                let (low, high) = if exact {
                    (curve.mean[bucket], curve.mean[bucket])
                } else {
                    (curve.low[bucket], curve.high[bucket])
                };
                let digits = 1e-5 * value.abs();
                prop_assert!(low - digits <= value && value <= high + digits, "{} not in {}..{}", value, low, high);
            }
        }
    }
}
