//! What a figure can show.

use bregman_train::TestDomain;
use clap::ValueEnum;

use super::axis::Scale;
use super::curves::{epochs, groups, steps, with_targets, with_tolerance};
use super::layers::{heat, layers};
use super::scene::{Drawn, Figure};
use super::scores::{Against, det, rates, scores};
use crate::failure::Failure;
use crate::runs::ReportedRun;

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
    /// EER in domain against minutes of training
    EerTime,
    /// DET curves
    Det,
    /// Scores of the first evaluated run, with the EER threshold
    Scores,
}

/// The requested panels, below each other.
pub(crate) fn figure(runs: &[&ReportedRun], what: &[What]) -> Result<Figure, Failure> {
    let mut figure = Figure::default();
    for &what in what {
        let Some((panel, keys)) = what.panel(runs) else {
            let name = what.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
            return Err(Failure::mistake(format!("--what {name}: none of these runs has it"), what.needs()));
        };
        figure.append(Figure { panels: vec![panel], keys });
    }
    Ok(figure)
}

impl What {
    /// Where the data of this chart comes from.
    fn needs(self) -> &'static str {
        match self {
            Self::Eer | Self::EerOut | Self::EerTime | Self::Det | Self::Scores => {
                "evaluate the run first: bregman evaluate RUN --trials LIST --root DIR"
            }
            Self::Lambda | Self::Error => "only runs with an adaptive λ have it",
            Self::ValidationLoss | Self::ValidationAccuracy | Self::Norm | Self::Groups | Self::Layers | Self::Heat => {
                "it is logged at the end of each epoch, and validation needs a validation set"
            }
            _ => "nothing has been logged yet; is this the folder of a run?",
        }
    }

    fn panel(self, runs: &[&ReportedRun]) -> Drawn {
        match self {
            Self::Sparsity => {
                steps(runs, "sparsity", "zeros, %", Scale::Linear, true).map(|drawn| with_targets(drawn, runs))
            }
            Self::Lambda => steps(runs, "lambda", "λ", Scale::Log, false),
            Self::Error => steps(runs, "epsilon", "target − sparsity, points", Scale::Linear, true)
                .map(|drawn| with_tolerance(drawn, runs)),
            Self::Loss => steps(runs, "loss", "training loss", Scale::Log, false),
            Self::Accuracy => steps(runs, "accuracy", "training accuracy, %", Scale::Linear, true),
            Self::ValidationLoss => {
                epochs(runs, |run| &run.epochs.validation_loss, "validation loss", Scale::Log, false)
            }
            Self::ValidationAccuracy => {
                epochs(runs, |run| &run.epochs.validation_accuracy, "validation accuracy, %", Scale::Linear, true)
            }
            Self::Norm => epochs(runs, |run| &run.epochs.norm, "Frobenius norm", Scale::Log, false),
            Self::Lr => steps(runs, "lr", "learning rate", Scale::Log, false),
            Self::Margin => steps(runs, "margin", "margin, radians", Scale::Linear, false),
            Self::Speed => steps(runs, "utterances_per_second", "utterances/s", Scale::Linear, false),
            Self::Groups => groups(runs),
            Self::Layers => layers(runs),
            Self::Heat => heat(runs),
            Self::Eer => rates(runs, TestDomain::In, Against::Sparsity),
            Self::EerOut => rates(runs, TestDomain::Out, Against::Sparsity),
            Self::EerTime => rates(runs, TestDomain::In, Against::Minutes),
            Self::Det => det(runs),
            Self::Scores => scores(runs),
        }
    }
}
