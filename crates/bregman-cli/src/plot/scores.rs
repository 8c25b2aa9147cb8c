//! Error rates, DET curves and scores of evaluated runs.

use bregman_speaker::score::{EvaluationReport, Sample};
use bregman_train::TestDomain;

use super::axis::Scale;
use super::scene::{COLORS, Color, Drawn, GREY, LegendEntry, Look, Mark, Panel};
use crate::runs::ReportedRun;

/// The density of a method that is drawn beside another, over that one's.
const BESIDE: f64 = 0.985;

/// From here on an equal error rate is that of a network that has learnt nothing.
const CHANCE: f64 = 0.45;

/// What error rates are drawn against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Against {
    Sparsity,
    /// Of training.
    Minutes,
}

/// Runs of a method with the same target: where each stands, and its report.
struct Means<'a> {
    target: Option<f64>,
    points: Vec<(f64, &'a EvaluationReport)>,
}

impl Means<'_> {
    fn at(&self) -> [f64; 2] {
        let mean = |value: &dyn Fn(&(f64, &EvaluationReport)) -> f64| {
            self.points.iter().map(value).sum::<f64>() / self.points.len() as f64
        };
        [mean(&|point| point.0), mean(&|point| point.1.rates.eer)]
    }

    /// Over speakers and seeds; of runs that were not resampled alike, all that their own intervals hold.
    fn interval(&self) -> Option<[f64; 2]> {
        let together = Sample::new(self.points.iter().map(|point| point.1)).and_then(|sample| sample.mean());
        let each = self.points.iter().filter_map(|point| point.1.rates.intervals.as_ref()).map(|all| all.eer);
        together.map(|mean| mean.interval).or(each.reduce(|[low, high], [from, to]| [low.min(from), high.max(to)]))
    }
}

/// One symbol and colour per method: a point per run, and a line through the means of the runs with the same target,
/// with 95 % intervals. Methods stand beside each other where their sparsity is the same.
pub(super) fn rates(runs: &[&ReportedRun], domain: TestDomain, against: Against) -> Drawn {
    let mut methods: Vec<(&str, Vec<Means>)> = Vec::new();
    let mut tests: Vec<&str> = Vec::new();
    for run in runs {
        let name = run.method.as_deref().unwrap_or(&run.name);
        for evaluation in run.evaluations.iter().filter(|evaluation| evaluation.domain == domain) {
            tests.push(&evaluation.test);
            let x = match against {
                Against::Sparsity => evaluation.sparsity,
                Against::Minutes => run.seconds.unwrap_or(f64::NAN) / 60.0,
            };
            if !methods.iter().any(|(known, _)| *known == name) {
                methods.push((name, vec![]));
            }
            let means = &mut methods.iter_mut().find(|(known, _)| *known == name).expect("it is there now").1;
            let point = (x, &evaluation.report);
            match means.iter_mut().find(|means| means.target == run.target) {
                Some(means) => means.points.push(point),
                None => means.push(Means { target: run.target, points: vec![point] }),
            }
        }
    }
    // networks at chance would press all others to the ground: where there are others, they are only named
    let any_learnt = methods.iter().any(|(_, means)| means.iter().any(|means| means.at()[1] < CHANCE));
    let (mut marks, mut keys, count) = (Vec::new(), Vec::new(), methods.len());
    for (number, (name, means)) in methods.iter_mut().enumerate() {
        let all = means.len();
        means.retain(|means| !any_learnt || means.at()[1] < CHANCE);
        let name = match all - means.len() {
            0 => (*name).to_owned(),
            lost if lost == all => format!("{name} (not shown: learnt nothing)"),
            _ => format!("{name} (some not shown: learnt nothing)"),
        };
        means.sort_by(|a, b| a.target.partial_cmp(&b.target).unwrap_or(std::cmp::Ordering::Equal));
        let beside = |x: f64| match against {
            Against::Sparsity if x > 0.0 => 1.0 - (1.0 - x) * BESIDE.powf(number as f64 - 0.5 * (count - 1) as f64),
            _ => x,
        };
        let look = Look { dash: None, width: 0.9, ..Look::of(number) };
        let line = means.iter().map(|means| [beside(means.at()[0]), means.at()[1]]);
        marks.push(Mark::Line { points: line.collect(), look });
        for means in means.iter() {
            if let Some([low, high]) = means.interval() {
                let x = beside(means.at()[0]);
                marks.push(Mark::Line { points: vec![[x, low], [x, high]], look });
            }
            for &(x, report) in &means.points {
                let at = [beside(x), report.rates.eer];
                marks.push(Mark::Point { at, symbol: number, color: look.color });
            }
        }
        keys.push(LegendEntry { name, look, symbol: Some(number) });
    }
    let label = if domain == TestDomain::In { "EER, %" } else { "EER out of domain, %" };
    let x = match against {
        Against::Sparsity => (Scale::Nines, "sparsity, %", true),
        Against::Minutes => (Scale::Linear, "training, minutes", false),
    };
    let mut panel = Panel::around(x, (Scale::Linear, label, true), marks)?;
    panel.y.range[0] = 0.0;
    tests.dedup();
    if let [test] = tests[..] {
        panel.y.label = format!("{label}: {test}").into();
    }
    Some((panel, keys))
}

pub(super) fn det(runs: &[&ReportedRun]) -> Drawn {
    let (mut marks, mut keys) = (Vec::new(), Vec::new());
    for (at, run) in runs.iter().enumerate() {
        for (number, evaluation) in run.evaluations.iter().enumerate() {
            let look = Look::of(at + number * COLORS.len());
            let inside = |rate: f64| (0.0002..=0.8).contains(&rate);
            let points =
                evaluation.report.rates.det.iter().filter(|point| inside(point.miss) && inside(point.false_alarm));
            marks.push(Mark::Line { points: points.map(|point| [point.false_alarm, point.miss]).collect(), look });
            keys.push(LegendEntry { name: format!("{}, {}", run.name, evaluation.test), look, symbol: None });
        }
    }
    Some((Panel::around((Scale::Probit, "false alarms, %", true), (Scale::Probit, "misses, %", true), marks)?, keys))
}

pub(super) fn scores(runs: &[&ReportedRun]) -> Drawn {
    let rates = &runs.iter().find_map(|run| run.evaluations.first())?.report.rates;
    let histogram = &rates.histogram;
    let width = (histogram.high - histogram.low) / histogram.targets.len() as f64;
    let shape = |counts: &[u64], color: Color| {
        let total = counts.iter().sum::<u64>().max(1) as f64;
        let step = |(at, &count): (usize, &u64)| {
            let (left, share) = (histogram.low + at as f64 * width, count as f64 / total);
            [[left, share], [left + width, share]]
        };
        let ends = |x: f64| std::iter::once([x, 0.0]);
        let points =
            ends(histogram.low).chain(counts.iter().enumerate().flat_map(step)).chain(ends(histogram.high)).collect();
        Mark::Area { points, color, alpha: 0.55 }
    };
    let marks = vec![shape(&histogram.others, COLORS[1]), shape(&histogram.targets, COLORS[0])];
    let mut panel =
        Panel::around((Scale::Linear, "score", false), (Scale::Linear, "trials of each kind, %", true), marks)?;
    panel.y.range[0] = 0.0;
    let top = panel.y.range[1];
    let threshold = Look { color: GREY, dash: Some([3.0, 2.0]), width: 0.9 };
    panel.marks.push(Mark::Line { points: vec![[rates.threshold, 0.0], [rates.threshold, top]], look: threshold });
    let key = |name: &str, look| LegendEntry { name: name.to_owned(), look, symbol: None };
    let block = |color| Look { color, dash: None, width: 5.0 };
    Some((
        panel,
        vec![
            key("same speaker", block(COLORS[0])),
            key("different speakers", block(COLORS[1])),
            key("EER threshold", threshold),
        ],
    ))
}
