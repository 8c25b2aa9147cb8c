//! Methods side by side: which gives the best network at a sparsity, and how long does it take.

use std::path::{Path, PathBuf};

use bregman_speaker::score::{Estimate, EvaluationReport, Sample};
use bregman_train::TestDomain;
use serde::Serialize;

use super::percent;
use super::plan::Plan;
use super::single::SweepRow;
use crate::failure::Failure;
use crate::output::table;
use crate::plot::{Figure, FigureFormat, What, figure as charts, write};
use crate::report::RunReader;
use crate::runs::{ReportedRun, find};

/// Width of the picture in points.
const WIDTH: f64 = 510.0;
/// The picture shows no curves: the fewest points of one.
const BUCKETS: usize = 2;

/// What `--json` prints of a comparison.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    /// By target, the best first.
    methods: Vec<Compared>,
    /// The method that the others are compared with.
    baseline: Option<String>,
    /// Errors against sparsity and against training time; none without a trial list.
    figure: Option<PathBuf>,
    runs: Vec<SweepRow>,
}

/// A method at a target: the means of its runs, which differ in their seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Compared {
    /// As `--methods` has it, with the other settings that were varied.
    method: String,
    target: Option<f64>,
    runs: usize,
    sparsity: f64,
    /// Of the first test of its own domain.
    eer: Option<f64>,
    /// 95 %, over speakers and seeds.
    eer_interval: Option<[f64; 2]>,
    minutes: f64,
    bytes: f64,
    tests: Vec<TestComparison>,
}

/// A method on a trial list.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct TestComparison {
    test: String,
    eer: f64,
    /// 95 %, over speakers and seeds; none without resampling.
    interval: Option<[f64; 2]>,
    /// Its EER minus the baseline's, on the same trials.
    difference: Option<Estimate>,
}

impl Comparison {
    /// Compares the runs that have ended, and draws the picture into `out`.
    pub(super) fn of(rows: &[SweepRow], plan: &Plan, out: &Path) -> Result<Self, Failure> {
        let figure = draw(rows, &out.join("comparison.svg"))?;
        let baseline = plan.baseline.clone();
        Ok(Self { methods: compare(rows, baseline.as_deref()), baseline, figure, runs: rows.to_vec() })
    }

    pub(super) fn text(&self) -> String {
        let mut tests: Vec<Option<&str>> = Vec::new();
        for test in self.methods.iter().flat_map(|row| &row.tests) {
            if !tests.contains(&Some(&*test.test)) {
                tests.push(Some(&test.test));
            }
        }
        if tests.is_empty() {
            tests.push(None);
        }
        let mut text = String::new();
        for test in &tests {
            if let (Some(name), true) = (test, tests.len() > 1) {
                text += &format!("{name}\n");
            }
            text += &self.table(*test);
            text += "\n";
        }
        if self.baseline.is_some() {
            text += "* the interval, over speakers and seeds, leaves 0 out\n";
        }
        for same in self.methods.chunk_by(|a, b| a.target == b.target) {
            if let ([best, _, ..], Some(target)) = (same, same[0].target)
                && best.eer.is_some()
            {
                let minutes = best.minutes;
                text += &format!("best at {} %: {}, {minutes:.1} minutes\n", percent(Some(target)), best.method);
            }
        }
        text + &self.figure.as_ref().map_or(String::new(), |file| format!("picture: {}\n", file.display()))
    }

    fn table(&self, test: Option<&str>) -> String {
        let difference = self.baseline.as_ref().map(|baseline| format!("minus {baseline} (95 %)"));
        let mut header = vec!["method", "target %", "runs", "sparsity %", "EER % (95 %)"];
        header.extend(difference.as_deref());
        header.extend(["minutes", "file kB"]);
        let line = |row: &Compared| {
            let tested = row.tests.iter().find(|tested| test.is_some_and(|test| tested.test == test));
            let mut cells = vec![
                row.method.clone(),
                percent(row.target),
                row.runs.to_string(),
                percent(Some(row.sparsity)),
                with_interval(tested.map(|test| test.eer), tested.and_then(|test| test.interval)),
            ];
            if difference.is_some() {
                let difference = tested.and_then(|test| test.difference);
                let text = with_interval(difference.map(|it| it.value), difference.map(|it| it.interval));
                cells.push(if difference.is_some_and(|it| it.is_decided()) { text + " *" } else { text });
            }
            cells.extend([format!("{:.1}", row.minutes), format!("{:.0}", row.bytes / 1e3)]);
            cells
        };
        table(&header, &self.methods.iter().map(line).collect::<Vec<_>>())
    }
}

fn with_interval(value: Option<f64>, interval: Option<[f64; 2]>) -> String {
    let interval =
        interval.map_or(String::new(), |[low, high]| format!(" ({} – {})", percent(Some(low)), percent(Some(high))));
    percent(value) + &interval
}

/// Runs that differ in nothing but their seed.
struct Group<'a> {
    name: String,
    rows: Vec<&'a SweepRow>,
}

impl Group<'_> {
    fn all(rows: &[SweepRow]) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for row in rows.iter().filter(|row| row.problem.is_none()) {
            let words = row.group.iter().chain(&row.method).chain(row.other_settings()).cloned();
            let name = words.collect::<Vec<_>>().join(" ");
            let known = |group: &&mut Group<'_>| {
                let first = group.rows[0];
                group.name == name && first.target == row.target && first.shared_recipe == row.shared_recipe
            };
            match groups.iter_mut().find(known) {
                Some(group) => group.rows.push(row),
                None => groups.push(Group { name, rows: vec![row] }),
            }
        }
        groups
    }

    fn reports(&self, test: &str) -> Vec<&EvaluationReport> {
        let all = self.rows.iter().flat_map(|row| &row.evaluations);
        all.filter(|record| record.test == test).map(|record| &record.report).collect()
    }

    /// The means, and on each test the difference to `baseline`.
    fn compared(&self, baseline: Option<&Group<'_>>) -> Compared {
        let of_rows = |value: &dyn Fn(&SweepRow) -> Option<f64>| mean(self.rows.iter().filter_map(|row| value(row)));
        let compare = |test: &str| {
            let reports = self.reports(test);
            let sample = Sample::new(reports.iter().copied());
            let other = baseline.and_then(|baseline| Sample::new(baseline.reports(test)));
            TestComparison {
                test: test.to_owned(),
                eer: mean(reports.iter().map(|report| report.rates.eer)).unwrap_or(f64::NAN),
                interval: sample.as_ref().and_then(Sample::mean).map(|mean| mean.interval),
                difference: sample.zip(other).and_then(|(sample, other)| sample.minus(&other)),
            }
        };
        let tests: Vec<TestComparison> = self.rows[0].evaluations.iter().map(|record| compare(&record.test)).collect();
        let own = self.rows[0].evaluations.iter().position(|record| record.domain == TestDomain::In);
        Compared {
            method: self.name.clone(),
            target: self.rows[0].target,
            runs: self.rows.len(),
            sparsity: of_rows(&|row| row.sparsity).unwrap_or(0.0),
            eer: of_rows(&|row| row.eer),
            eer_interval: own.and_then(|own| tests[own].interval),
            minutes: of_rows(&|row| row.seconds).unwrap_or(0.0) / 60.0,
            bytes: of_rows(&|row| row.bytes.map(|bytes| bytes as f64)).unwrap_or(0.0),
            tests,
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Each group of runs beside the baseline with the same recipe but for the method, the first in the plan.
fn compare(rows: &[SweepRow], baseline: Option<&str>) -> Vec<Compared> {
    let groups = Group::all(rows);
    let baseline_of = |group: &Group<'_>| {
        let (baseline, shared) = (baseline?, &group.rows[0].shared_recipe);
        let is_it = |row: &SweepRow| row.method.as_deref() == Some(baseline) && row.shared_recipe == *shared;
        groups.iter().find(|other| is_it(other.rows[0])).filter(|found| !std::ptr::eq(*found, group))
    };
    let mut compared: Vec<Compared> = groups.iter().map(|group| group.compared(baseline_of(group))).collect();
    let key = |row: &Compared| (row.target.unwrap_or(0.0), row.eer.unwrap_or(f64::INFINITY));
    compared.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    compared
}

fn draw(rows: &[SweepRow], file: &Path) -> Result<Option<PathBuf>, Failure> {
    let evaluated: Vec<PathBuf> = rows.iter().filter(|row| row.eer.is_some()).map(|row| row.run.clone()).collect();
    if evaluated.is_empty() {
        return Ok(None);
    }
    let mut reader = RunReader::new(BUCKETS);
    reader.read(&find(&evaluated, false)?);
    let mut tests: Vec<(&str, TestDomain)> = Vec::new();
    for record in rows.iter().flat_map(|row| &row.evaluations) {
        if !tests.iter().any(|(test, _)| *test == record.test) {
            tests.push((&record.test, record.domain));
        }
    }
    let mut figure = Figure::default();
    for (test, domain) in tests {
        let runs: Vec<ReportedRun> = reader.runs().into_iter().map(|run| run.on_test(test)).collect();
        let what: &[What] = if domain == TestDomain::In { &[What::Eer, What::EerTime] } else { &[What::EerOut] };
        figure.append(charts(&runs.iter().collect::<Vec<_>>(), what)?);
    }
    write(&figure, FigureFormat::of(file)?, WIDTH, file)?;
    Ok(Some(file.to_owned()))
}

#[cfg(test)]
mod tests {
    use bregman_train::EvaluationRecord;

    use super::*;

    fn row(method: &str, target: Option<f64>, seed: u32, eers: &[f64]) -> SweepRow {
        SweepRow {
            run: PathBuf::from("run"),
            group: None,
            method: Some(method.to_owned()),
            target,
            settings: vec![format!("seed={seed}")],
            status: "finished",
            problem: None,
            sparsity: target,
            lambda: None,
            eer: eers.first().copied(),
            eer_interval: None,
            eer_out_of_domain: None,
            seconds: Some(60.0 * f64::from(seed)),
            bytes: Some(1000),
            evaluations: eers.iter().enumerate().map(|(test, &eer)| record(test, eer)).collect(),
            shared_recipe: vec![],
        }
    }

    /// An evaluation whose replicates are half to twice the rate.
    fn record(test: usize, eer: f64) -> EvaluationRecord {
        let replicates: Vec<f64> = (0..201).map(|at| eer * 2f64.powf(f64::from(at) / 100.0 - 1.0)).collect();
        let domain = if test == 0 { "in" } else { "out" };
        serde_json::from_value(serde_json::json!({
            "test": format!("list {test}"), "domain": domain, "checkpoint": "last", "step": 1, "sparsity": 0.9,
            "eer": eer, "min_dcf": 0.0, "min_dcf_p05": 0.0, "threshold": 0.0, "det": [],
            "intervals": { "eer": [eer, eer], "min_dcf": [], "eer_replicates": replicates },
            "histogram": { "low": 0.0, "high": 1.0, "targets": [], "others": [] },
            "scoring": "cosine", "cosine": null, "trials": 9, "targets": 3, "left_out": 0, "speakers": 3,
            "cohort_speakers": null, "top_n": null,
        }))
        .unwrap()
    }

    #[test]
    fn seeds_are_averaged_and_the_best_of_each_target_comes_first() {
        let failed = SweepRow { problem: Some("no disk".to_owned()), ..row("rigl", Some(0.9), 3, &[0.9]) };
        let rows = [
            row("static", Some(0.9), 1, &[0.08]),
            row("rigl", Some(0.9), 1, &[0.02]),
            row("rigl", Some(0.9), 2, &[0.04]),
            row("rigl", Some(0.99), 1, &[0.2]),
            row("dense-sgd", None, 1, &[0.01]),
            failed,
        ];
        let methods = compare(&rows, None);
        let order: Vec<(&str, Option<f64>)> = methods.iter().map(|row| (&*row.method, row.target)).collect();
        let expected = [("dense-sgd", None), ("rigl", Some(0.9)), ("static", Some(0.9)), ("rigl", Some(0.99))];
        assert_eq!(order, expected);
        let rigl = &methods[1];
        assert_eq!((rigl.runs, rigl.eer, rigl.minutes), (2, Some(0.03), 1.5));
        let [low, high] = rigl.eer_interval.unwrap();
        assert!((0.01..0.02).contains(&low) && (0.05..0.08).contains(&high), "{rigl:?}");
        let text = Comparison { methods, baseline: None, figure: None, runs: vec![] }.text();
        assert!(text.contains("3.00 (1.") && text.contains("best at 90.00 %: rigl, 1.5 minutes"), "{text}");
        assert!(!text.contains("best at 99"), "one method alone is not the best: {text}");
    }

    #[test]
    fn every_list_has_a_table_and_differences_are_to_the_baseline_of_the_same_network() {
        let other = |row: SweepRow| SweepRow { shared_recipe: vec![PathBuf::from("networks/resnet34")], ..row };
        let rows = [
            row("dense-sgd", None, 1, &[0.02, 0.1]),
            row("rigl", Some(0.9), 1, &[0.05, 0.1]),
            other(row("dense-sgd", None, 1, &[0.04, 0.2])),
            SweepRow { group: Some("resnet".to_owned()), ..other(row("rigl", Some(0.9), 1, &[0.05, 0.1])) },
        ];
        let methods = compare(&rows, Some("dense-sgd"));
        let difference = |name: &str, test: usize| {
            methods.iter().find(|row| row.method == name).unwrap().tests[test].difference.unwrap().value
        };
        assert!((difference("rigl", 0) - 0.03).abs() < 1e-12 && difference("rigl", 1) == 0.0);
        assert!((difference("resnet rigl", 0) - 0.01).abs() < 1e-12);
        assert_eq!(methods[0].tests[0].difference, None, "the baseline itself");
        let baseline = Some("dense-sgd".to_owned());
        let text = Comparison { methods, baseline, figure: None, runs: vec![] }.text();
        for words in ["list 0\n", "list 1\n", "minus dense-sgd (95 %)", ") *", "leaves 0 out"] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }
}
