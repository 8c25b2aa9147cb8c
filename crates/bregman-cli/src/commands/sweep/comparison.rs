//! Methods side by side: which gives the best network at a sparsity, and how long does it take.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::percent;
use super::single::SweepRow;
use crate::failure::Failure;
use crate::output::table;
use crate::plot::{FigureFormat, What, figure, write};
use crate::report::RunReader;
use crate::runs::find;

/// Width of the picture in points.
const WIDTH: f64 = 510.0;
/// The picture shows no curves: the fewest points of one.
const BUCKETS: usize = 2;

/// What `--json` prints of a comparison.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    /// By target, the best first.
    methods: Vec<Compared>,
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
    eer: Option<f64>,
    /// From the lowest to the highest bound of its runs' 95 % intervals.
    eer_interval: Option<[f64; 2]>,
    minutes: f64,
    bytes: f64,
}

impl Comparison {
    /// Compares the runs that have ended, and draws the picture into `out`.
    pub(super) fn of(rows: &[SweepRow], out: &Path) -> Result<Self, Failure> {
        let figure = draw(rows, &out.join("comparison.svg"))?;
        Ok(Self { methods: compare(rows), figure, runs: rows.to_vec() })
    }

    pub(super) fn text(&self) -> String {
        let line = |row: &Compared| {
            let interval = row
                .eer_interval
                .map_or(String::new(), |[low, high]| format!(" ({} – {})", percent(Some(low)), percent(Some(high))));
            vec![
                row.method.clone(),
                percent(row.target),
                row.runs.to_string(),
                percent(Some(row.sparsity)),
                percent(row.eer) + &interval,
                format!("{:.1}", row.minutes),
                format!("{:.0}", row.bytes / 1e3),
            ]
        };
        let header = ["method", "target %", "runs", "sparsity %", "EER % (95 %)", "minutes", "file kB"];
        let mut text = table(&header, &self.methods.iter().map(line).collect::<Vec<_>>());
        for same in self.methods.chunk_by(|a, b| a.target == b.target) {
            if let ([best, _, ..], Some(target)) = (same, same[0].target)
                && best.eer.is_some()
            {
                let minutes = best.minutes;
                text += &format!("\nbest at {} %: {}, {minutes:.1} minutes", percent(Some(target)), best.method);
            }
        }
        text += &self.figure.as_ref().map_or(String::new(), |file| format!("\npicture: {}", file.display()));
        text + "\n"
    }
}

/// The means of the runs that differ in nothing but their seed.
fn compare(rows: &[SweepRow]) -> Vec<Compared> {
    let name = |row: &SweepRow| {
        let other = |setting: &&String| !setting.starts_with("seed=") && !setting.starts_with("method.target=");
        let words = row.method.iter().chain(row.settings.iter().filter(other)).cloned().collect::<Vec<_>>();
        words.join(" ")
    };
    let mut groups: Vec<(String, Option<f64>, Vec<&SweepRow>)> = Vec::new();
    for row in rows.iter().filter(|row| row.problem.is_none()) {
        match groups.iter_mut().find(|(known, target, _)| *known == name(row) && *target == row.target) {
            Some((_, _, same)) => same.push(row),
            None => groups.push((name(row), row.target, vec![row])),
        }
    }
    let mut compared: Vec<Compared> = groups
        .into_iter()
        .map(|(method, target, same)| {
            let mean = |value: &dyn Fn(&SweepRow) -> Option<f64>| {
                let known: Vec<f64> = same.iter().filter_map(|row| value(row)).collect();
                (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
            };
            let intervals = same.iter().filter_map(|row| row.eer_interval);
            let eer_interval = intervals.reduce(|[low, high], [from, to]| [low.min(from), high.max(to)]);
            Compared {
                method,
                target,
                runs: same.len(),
                sparsity: mean(&|row| row.sparsity).unwrap_or(0.0),
                eer: mean(&|row| row.eer),
                eer_interval,
                minutes: mean(&|row| row.seconds).unwrap_or(0.0) / 60.0,
                bytes: mean(&|row| row.bytes.map(|bytes| bytes as f64)).unwrap_or(0.0),
            }
        })
        .collect();
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
    let figure = figure(&reader.runs(), &[What::Eer, What::EerTime])?;
    write(&figure, FigureFormat::of(file)?, WIDTH, file)?;
    Ok(Some(file.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: &str, target: Option<f64>, seed: u32, eer: f64) -> SweepRow {
        SweepRow {
            run: PathBuf::from("run"),
            method: Some(method.to_owned()),
            target,
            settings: vec![format!("seed={seed}")],
            status: "finished",
            problem: None,
            sparsity: target,
            lambda: None,
            eer: Some(eer),
            eer_interval: Some([0.5 * eer, 2.0 * eer]),
            eer_out_of_domain: None,
            seconds: Some(60.0 * f64::from(seed)),
            bytes: Some(1000),
        }
    }

    #[test]
    fn seeds_are_averaged_and_the_best_of_each_target_comes_first() {
        let failed = SweepRow { problem: Some("no disk".to_owned()), ..row("rigl", Some(0.9), 3, 0.9) };
        let rows = [
            row("static", Some(0.9), 1, 0.08),
            row("rigl", Some(0.9), 1, 0.02),
            row("rigl", Some(0.9), 2, 0.04),
            row("rigl", Some(0.99), 1, 0.2),
            row("dense-sgd", None, 1, 0.01),
            failed,
        ];
        let methods = compare(&rows);
        let order: Vec<(&str, Option<f64>)> = methods.iter().map(|row| (&*row.method, row.target)).collect();
        let expected = [("dense-sgd", None), ("rigl", Some(0.9)), ("static", Some(0.9)), ("rigl", Some(0.99))];
        assert_eq!(order, expected);
        let rigl = &methods[1];
        assert_eq!((rigl.runs, rigl.eer, rigl.eer_interval, rigl.minutes), (2, Some(0.03), Some([0.01, 0.08]), 1.5));
        let text = Comparison { methods, figure: None, runs: vec![] }.text();
        assert!(text.contains("3.00 (1.00 – 8.00)") && text.contains("best at 90.00 %: rigl, 1.5 minutes"), "{text}");
        assert!(!text.contains("best at 99"), "one method alone is not the best: {text}");
    }
}
