//! Error rates, DET curves and scores of evaluated runs.

use bregman_speaker::score::Rates;
use bregman_train::TestDomain;

use super::axis::Scale;
use super::scene::{COLORS, Color, Drawn, GREY, LegendEntry, Look, Mark, Panel};
use crate::runs::ReportedRun;

/// What error rates are drawn against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Against {
    Sparsity,
    /// Of training.
    Minutes,
}

/// One symbol and colour per method; a line through the means of the runs with the same target.
pub(super) fn rates(runs: &[&ReportedRun], domain: TestDomain, against: Against) -> Drawn {
    /// A target, and where the evaluation stands.
    type Points<'a> = Vec<(Option<f64>, f64, &'a Rates)>;
    let mut methods: Vec<(&str, Points)> = Vec::new();
    let mut tests: Vec<&str> = Vec::new();
    for run in runs {
        let name = run.method.as_deref().unwrap_or(&run.name);
        for evaluation in run.evaluations.iter().filter(|evaluation| evaluation.domain == domain) {
            tests.push(&evaluation.test);
            let x = match against {
                Against::Sparsity => evaluation.sparsity,
                Against::Minutes => run.seconds.unwrap_or(f64::NAN) / 60.0,
            };
            let point = (run.target, x, &evaluation.report.rates);
            match methods.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => methods.push((name, vec![point])),
            }
        }
    }
    let (mut marks, mut keys) = (Vec::new(), Vec::new());
    for (number, (name, points)) in methods.iter_mut().enumerate() {
        points.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
        let look = Look { dash: None, width: 0.9, ..Look::of(number) };
        let means = points.chunk_by(|a, b| a.0 == b.0).map(|same| {
            let mean = |values: Vec<f64>| values.iter().sum::<f64>() / same.len() as f64;
            [mean(same.iter().map(|point| point.1).collect()), mean(same.iter().map(|point| point.2.eer).collect())]
        });
        marks.push(Mark::Line { points: means.collect(), look });
        for &(_, x, rates) in points.iter() {
            if let Some(intervals) = &rates.intervals {
                let [low, high] = intervals.eer;
                marks.push(Mark::Line { points: vec![[x, low], [x, high]], look });
            }
            marks.push(Mark::Point { at: [x, rates.eer], symbol: number, color: look.color });
        }
        keys.push(LegendEntry { name: (*name).to_owned(), look, symbol: Some(number) });
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
