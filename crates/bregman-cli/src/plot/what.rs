//! What a figure can show: from runs to panels.

use clap::ValueEnum;

use super::axis::{Axis, Scale};
use super::scene::{COLORS, Color, Figure, GOOD, GREY, Key, Look, Mark, Panel};
use crate::evaluation::{Domain, Evaluation};
use crate::failure::Failure;
use crate::runs::Run;

/// A chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Zeros over steps, with target and tolerance
    Sparsity,
    /// λ over steps
    Lambda,
    /// Target minus sparsity over steps
    Error,
    /// Training loss over steps
    Loss,
    /// Training accuracy over steps
    Accuracy,
    /// Validation loss over epochs
    ValidationLoss,
    /// Validation accuracy over epochs
    ValidationAccuracy,
    /// Frobenius norm over epochs
    Norm,
    /// Learning rate over steps
    Lr,
    /// Margin over steps
    Margin,
    /// Utterances per second over steps
    Speed,
    /// Sparsity of groups of layers over epochs (of the first run)
    Groups,
    /// Sparsity of every layer at the end (of the first run)
    Layers,
    /// Sparsity of every layer over epochs (of the first run)
    Heat,
    /// EER against sparsity in domain, with 95 % intervals
    Eer,
    /// The same out of domain
    EerOut,
    /// DET curves
    Det,
    /// Scores of the first evaluated run, with the EER threshold
    Scores,
}

/// The panels that are asked for, below each other.
pub(crate) fn figure(runs: &[&Run], what: &[What]) -> Result<Figure, Failure> {
    let mut figure = Figure::default();
    for &what in what {
        let Some((panel, keys)) = what.panel(runs) else {
            let name = what.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
            return Err(Failure::mistake(format!("--what {name}: none of these runs has it"), what.needs()));
        };
        figure.panels.push(panel);
        for key in keys {
            if !figure.keys.iter().any(|known| known.name == key.name) {
                figure.keys.push(key);
            }
        }
    }
    Ok(figure)
}

type Drawn = Option<(Panel, Vec<Key>)>;

impl What {
    /// Where the data of this chart comes from.
    fn needs(self) -> &'static str {
        match self {
            Self::Eer | Self::EerOut | Self::Det | Self::Scores => "evaluate the run first: bregman evaluate RUN --trials LIST --root DIR",
            Self::Lambda | Self::Error => "only runs with a steered λ have it",
            Self::ValidationLoss | Self::ValidationAccuracy | Self::Norm | Self::Groups | Self::Layers | Self::Heat => {
                "it is logged when an epoch ends, and validation needs a validation set"
            }
            _ => "nothing has been logged yet: is this the folder of a run?",
        }
    }

    fn panel(self, runs: &[&Run]) -> Drawn {
        match self {
            Self::Sparsity => steps(runs, "sparsity", "zeros, %", Scale::Linear, true).map(|drawn| with_targets(drawn, runs)),
            Self::Lambda => steps(runs, "lambda", "λ", Scale::Log, false),
            Self::Error => {
                steps(runs, "epsilon", "target − sparsity, points", Scale::Linear, true).map(|drawn| with_tolerance(drawn, runs))
            }
            Self::Loss => steps(runs, "loss", "training loss", Scale::Log, false),
            Self::Accuracy => steps(runs, "accuracy", "training accuracy, %", Scale::Linear, true),
            Self::ValidationLoss => epochs(runs, |run| &run.epochs.validation_loss, "validation loss", Scale::Log, false),
            Self::ValidationAccuracy => epochs(runs, |run| &run.epochs.validation_accuracy, "validation accuracy, %", Scale::Linear, true),
            Self::Norm => epochs(runs, |run| &run.epochs.norm, "Frobenius norm", Scale::Log, false),
            Self::Lr => steps(runs, "lr", "learning rate", Scale::Log, false),
            Self::Margin => steps(runs, "margin", "margin, radians", Scale::Linear, false),
            Self::Speed => steps(runs, "utterances_per_second", "utterances/s", Scale::Linear, false),
            Self::Groups => groups(runs),
            Self::Layers => layers(runs),
            Self::Heat => heat(runs),
            Self::Eer => rates(runs, Domain::In),
            Self::EerOut => rates(runs, Domain::Out),
            Self::Det => det(runs),
            Self::Scores => scores(runs),
        }
    }
}

fn line(xs: impl Iterator<Item = f64>, ys: &[f64], look: Look) -> Mark {
    Mark::Line { points: xs.zip(ys).map(|(x, &y)| [x, y]).collect(), look }
}

/// Axes around all marks.
fn panel(x: (Scale, &'static str, bool), y: (Scale, &'static str, bool), marks: Vec<Mark>) -> Option<Panel> {
    let corners = |mark: &Mark| match mark {
        Mark::Line { points, .. } | Mark::Area { points, .. } => points.clone(),
        Mark::Rectangle { from, to, .. } => vec![*from, *to],
        Mark::Point { at, .. } => vec![*at],
    };
    let all: Vec<[f64; 2]> = marks.iter().flat_map(corners).filter(|[_, y]| y.is_finite()).collect();
    let x = Axis::over(x.0, x.1, x.2, all.iter().map(|[x, _]| *x))?;
    let y = Axis::over(y.0, y.1, y.2, all.iter().map(|[_, y]| *y))?;
    Some(Panel { x, y, marks, rows: Vec::new() })
}

fn key(run: &Run, at: usize) -> Key {
    Key { name: run.name.clone(), look: Look::of(at), symbol: None }
}

/// A metric of every step: the mean, and where steps were thinned a band from the lowest to the highest.
fn steps(runs: &[&Run], metric: &str, label: &'static str, scale: Scale, percent: bool) -> Drawn {
    let (mut marks, mut keys) = (Vec::new(), Vec::new());
    for (at, run) in runs.iter().enumerate() {
        let Some(curve) = run.curves.metrics.get(metric) else { continue };
        let (look, xs) = (Look::of(at), || run.curves.last.iter().map(|&step| step as f64));
        let edge = |values: &[f64]| xs().zip(values.to_vec()).map(|(x, y)| [x, y]).filter(|[_, y]| y.is_finite()).collect::<Vec<_>>();
        let (above, below) = (edge(&curve.high), edge(&curve.low));
        if !above.is_empty() {
            let points = above.into_iter().chain(below.into_iter().rev()).collect();
            marks.push(Mark::Area { points, color: look.color, alpha: (0.3 / runs.len() as f64).max(0.04) });
        }
        marks.push(line(xs(), &curve.mean, look));
        keys.push(key(run, at));
    }
    Some((panel((Scale::Linear, "step", false), (scale, label, percent), marks)?, keys))
}

fn epochs(runs: &[&Run], column: fn(&Run) -> &Vec<f64>, label: &'static str, scale: Scale, percent: bool) -> Drawn {
    let known = || runs.iter().enumerate().filter(|(_, run)| column(run).iter().any(|value| value.is_finite()));
    let marks = known().map(|(at, run)| line(run.epochs.epoch.iter().map(|&epoch| epoch as f64), column(run), Look::of(at))).collect();
    Some((panel((Scale::Linear, "epoch", false), (scale, label, percent), marks)?, known().map(|(at, run)| key(run, at)).collect()))
}

fn target_look() -> Look {
    Look { color: GOOD, dash: Some([4.0, 2.5]), width: 0.9 }
}

/// Puts the targets of the runs and their tolerances behind the curves.
fn with_targets((mut panel, keys): (Panel, Vec<Key>), runs: &[&Run]) -> (Panel, Vec<Key>) {
    let mut targets: Vec<(f64, f64)> = runs.iter().filter_map(|run| Some((run.target?, run.tolerance))).collect();
    targets.sort_by(|a, b| a.0.total_cmp(&b.0));
    targets.dedup_by(|a, b| a.0 == b.0);
    let [low, high] = panel.y.range;
    let ends = targets.iter().flat_map(|(target, tolerance)| [target - tolerance, target + tolerance]);
    panel.y = Axis::over(panel.y.scale, panel.y.label, true, ends.chain([low, high])).unwrap_or(panel.y).within(f64::NEG_INFINITY, 1.005);
    bands(&mut panel, targets.into_iter());
    (panel, keys)
}

/// The same around no error at all.
fn with_tolerance((mut panel, keys): (Panel, Vec<Key>), runs: &[&Run]) -> (Panel, Vec<Key>) {
    let tolerance = runs.iter().map(|run| run.tolerance).fold(0.0, f64::max);
    let [low, high] = panel.y.range;
    panel.y.range = [low.min(-1.2 * tolerance), high.max(1.2 * tolerance)];
    bands(&mut panel, std::iter::once((0.0, tolerance)));
    (panel, keys)
}

fn bands(panel: &mut Panel, targets: impl Iterator<Item = (f64, f64)>) {
    let [left, right] = panel.x.range;
    let mut behind = Vec::new();
    for (target, tolerance) in targets {
        behind.push(Mark::Rectangle { from: [left, target - tolerance], to: [right, target + tolerance], color: GOOD, alpha: 0.13 });
        behind.push(Mark::Line { points: vec![[left, target], [right, target]], look: target_look() });
    }
    behind.append(&mut panel.marks);
    panel.marks = behind;
}

fn groups(runs: &[&Run]) -> Drawn {
    let run = runs.iter().find(|run| !run.epochs.groups.is_empty())?;
    let named = || run.epochs.groups.iter().enumerate();
    let marks = named().map(|(at, group)| line(run.epochs.epoch.iter().map(|&epoch| epoch as f64), &group.sparsity, Look::of(at)));
    let panel = panel((Scale::Linear, "epoch", false), (Scale::Linear, "zeros, %", true), marks.collect())?;
    let keys = named().map(|(at, group)| Key { name: group.name.clone(), look: Look::of(at), symbol: None });
    Some((panel, keys.collect()))
}

/// Rows for the layers of the first run that has any.
fn layered<'a>(runs: &[&'a Run]) -> Option<(&'a Run, Axis, Vec<String>)> {
    let run = runs.iter().find(|run| !run.layers.layers.is_empty())?;
    let names = run.layers.layers.iter().map(|layer| layer.name.trim_end_matches(".weight").to_owned()).collect();
    let rows = Axis { scale: Scale::Linear, range: [run.layers.layers.len() as f64, 0.0], label: "", percent: false };
    Some((run, rows, names))
}

const DEAD: Color = COLORS[1];

fn layers(runs: &[&Run]) -> Drawn {
    let (run, y, rows) = layered(runs)?;
    let bar = |(row, layer): (usize, &crate::runs::Layer)| Mark::Rectangle {
        from: [0.0, row as f64 + 0.12],
        to: [layer.sparsity.last().copied().unwrap_or(0.0), row as f64 + 0.88],
        color: if layer.dead_since.is_some() { DEAD } else { COLORS[0] },
        alpha: 1.0,
    };
    let mut marks: Vec<Mark> = run.layers.layers.iter().enumerate().map(bar).collect();
    marks.extend(run.target.map(|target| Mark::Line { points: vec![[target, 0.0], [target, rows.len() as f64]], look: target_look() }));
    let x = Axis { scale: Scale::Linear, range: [0.0, 1.0], label: "zeros, %", percent: true };
    let dead = Key { name: "nothing lives here".to_owned(), look: Look { color: DEAD, dash: None, width: 4.0 }, symbol: None };
    let keys = if run.layers.dead().next().is_some() { vec![dead] } else { vec![] };
    Some((Panel { x, y, marks, rows }, keys))
}

fn heat(runs: &[&Run]) -> Drawn {
    let (run, y, rows) = layered(runs)?;
    let last = *run.layers.epoch.last()? as f64;
    let cell = |(row, layer): (usize, &crate::runs::Layer)| {
        let epochs = &run.layers.epoch;
        let cells = layer.sparsity.iter().enumerate().filter(|(_, sparsity)| sparsity.is_finite()).map(move |(at, &sparsity)| {
            let from = if at == 0 { 0.5 } else { epochs[at - 1] as f64 + 0.5 };
            let to = epochs[at] as f64 + 0.5;
            Mark::Rectangle { from: [from, row as f64], to: [to, row as f64 + 1.0], color: cividis(sparsity), alpha: 1.0 }
        });
        cells.collect::<Vec<_>>()
    };
    let marks = run.layers.layers.iter().enumerate().flat_map(cell).collect();
    let x = Axis { scale: Scale::Linear, range: [0.5, last + 0.5], label: "epoch", percent: false };
    let keys = [0.0, 0.5, 0.75, 0.9, 1.0].map(|share: f64| Key {
        name: format!("{} % zeros", 100.0 * share),
        look: Look { color: cividis(share), dash: None, width: 6.0 },
        symbol: None,
    });
    Some((Panel { x, y, marks, rows }, keys.to_vec()))
}

/// Even to the eye, and the same for colour-blind readers (Nuñez, Anderton & Renslow 2018).
fn cividis(share: f64) -> Color {
    const STOPS: [Color; 11] = [
        (0, 32, 77),
        (0, 52, 110),
        (39, 68, 108),
        (69, 85, 107),
        (94, 101, 110),
        (119, 119, 119),
        (146, 138, 118),
        (174, 157, 109),
        (203, 178, 94),
        (232, 200, 70),
        (255, 233, 69),
    ];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let low = (at as usize).min(STOPS.len() - 2);
    let mix = |a: u8, b: u8| (f64::from(a) + (at - low as f64) * (f64::from(b) - f64::from(a))).round() as u8;
    let (a, b) = (STOPS[low], STOPS[low + 1]);
    (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// One symbol and colour per method; a line through the means of the runs with one target.
fn rates(runs: &[&Run], domain: Domain) -> Drawn {
    let mut methods: Vec<(&str, Vec<(Option<f64>, &Evaluation)>)> = Vec::new();
    for run in runs {
        let name = run.method.as_deref().unwrap_or(&run.name);
        for evaluation in run.evaluations.iter().filter(|evaluation| evaluation.subject.domain == domain) {
            match methods.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push((run.target, evaluation)),
                None => methods.push((name, vec![(run.target, evaluation)])),
            }
        }
    }
    let (mut marks, mut keys) = (Vec::new(), Vec::new());
    for (number, (name, points)) in methods.iter_mut().enumerate() {
        points.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
        let look = Look { dash: None, width: 0.9, ..Look::of(number) };
        let means = points.chunk_by(|a, b| a.0 == b.0).map(|same| {
            let mean = |value: fn(&Evaluation) -> f64| same.iter().map(|(_, one)| value(one)).sum::<f64>() / same.len() as f64;
            [mean(|one| one.subject.sparsity), mean(|one| one.rates.eer)]
        });
        marks.push(Mark::Line { points: means.collect(), look });
        for (_, Evaluation { subject, rates, .. }) in points.iter() {
            if let Some(intervals) = &rates.intervals {
                let [low, high] = intervals.eer;
                marks.push(Mark::Line { points: vec![[subject.sparsity, low], [subject.sparsity, high]], look });
            }
            marks.push(Mark::Point { at: [subject.sparsity, rates.eer], symbol: number, color: look.color });
        }
        keys.push(Key { name: (*name).to_owned(), look, symbol: Some(number) });
    }
    let label = if domain == Domain::In { "EER, %" } else { "EER out of domain, %" };
    let mut panel = panel((Scale::Nines, "sparsity, %", true), (Scale::Linear, label, true), marks)?;
    panel.y.range[0] = panel.y.range[0].min(0.0).max(0.0);
    Some((panel, keys))
}

fn det(runs: &[&Run]) -> Drawn {
    let (mut marks, mut keys) = (Vec::new(), Vec::new());
    for (at, run) in runs.iter().enumerate() {
        for (number, evaluation) in run.evaluations.iter().enumerate() {
            let look = Look::of(at + number * COLORS.len());
            let inside = |rate: f64| (0.0002..=0.8).contains(&rate);
            let points = evaluation.rates.det.iter().filter(|point| inside(point.miss) && inside(point.false_alarm));
            marks.push(Mark::Line { points: points.map(|point| [point.false_alarm, point.miss]).collect(), look });
            keys.push(Key { name: format!("{}, {}", run.name, evaluation.subject.test), look, symbol: None });
        }
    }
    Some((panel((Scale::Probit, "false alarms, %", true), (Scale::Probit, "misses, %", true), marks)?, keys))
}

fn scores(runs: &[&Run]) -> Drawn {
    let rates = &runs.iter().find_map(|run| run.evaluations.first())?.rates;
    let histogram = &rates.histogram;
    let width = (histogram.high - histogram.low) / histogram.targets.len() as f64;
    let shape = |counts: &[u64], color: Color| {
        let total = counts.iter().sum::<u64>().max(1) as f64;
        let step = |(at, &count): (usize, &u64)| {
            let (left, share) = (histogram.low + at as f64 * width, count as f64 / total);
            [[left, share], [left + width, share]]
        };
        let ends = |x: f64| std::iter::once([x, 0.0]);
        let points = ends(histogram.low).chain(counts.iter().enumerate().flat_map(step)).chain(ends(histogram.high)).collect();
        Mark::Area { points, color, alpha: 0.55 }
    };
    let marks = vec![shape(&histogram.others, COLORS[1]), shape(&histogram.targets, COLORS[0])];
    let mut panel = panel((Scale::Linear, "score", false), (Scale::Linear, "trials of each kind, %", true), marks)?;
    panel.y.range[0] = 0.0;
    let top = panel.y.range[1];
    let threshold = Look { color: GREY, dash: Some([3.0, 2.0]), width: 0.9 };
    panel.marks.push(Mark::Line { points: vec![[rates.threshold, 0.0], [rates.threshold, top]], look: threshold });
    let key = |name: &str, look| Key { name: name.to_owned(), look, symbol: None };
    let block = |color| Look { color, dash: None, width: 5.0 };
    Some((panel, vec![key("same speaker", block(COLORS[0])), key("different speakers", block(COLORS[1])), key("EER threshold", threshold)]))
}
