//! What is logged at the end of each epoch: validation, layers and their groups.

use bregman_train::{EpochRecord, LayerRecord};
use serde::Serialize;

use super::six_digits;

/// Columns over epochs; NaN where a value is missing.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Epochs {
    pub(crate) epoch: Vec<u64>,
    pub(crate) step: Vec<u64>,
    pub(crate) train_loss: Vec<f64>,
    pub(crate) train_accuracy: Vec<f64>,
    pub(crate) validation_loss: Vec<f64>,
    pub(crate) validation_accuracy: Vec<f64>,
    pub(crate) seconds: Vec<f64>,
    /// Frobenius norm of all weights.
    pub(crate) norm: Vec<f64>,
    /// Sparsity of layers whose names begin alike.
    pub(crate) groups: Vec<Group>,
}

/// A group of layers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) sparsity: Vec<f64>,
}

/// Every weight tensor over the epochs, or over as many of them as a heat map has room for.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Layers {
    /// The epochs that are kept: the first, the last and some between.
    pub(crate) epoch: Vec<u64>,
    pub(crate) layers: Vec<Layer>,
}

/// A weight tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) sparsity: Vec<f64>,
    pub(crate) norm: Vec<f64>,
    /// Weights that are not zero, at the end.
    pub(crate) nonzero: u64,
    /// The epoch since which every weight is zero.
    pub(crate) zero_since: Option<u64>,
}

/// Columns of a heat map.
const COLUMNS: usize = 100;

fn number(value: Option<f64>) -> f64 {
    value.map_or(f64::NAN, six_digits)
}

impl Epochs {
    pub(super) fn of(lines: &[EpochRecord]) -> Self {
        let column =
            |value: fn(&EpochRecord) -> Option<f64>| lines.iter().map(|line| number(value(line))).collect::<Vec<_>>();
        let norm = |line: &EpochRecord| {
            let squares: f64 = line.layers.iter().map(|layer| layer.norm * layer.norm).sum();
            (!line.layers.is_empty()).then(|| squares.sqrt())
        };
        let group = |(name, _): &(String, _)| {
            let at = |line: &EpochRecord| {
                number(line.groups.iter().find(|(other, _)| other == name).map(|(_, sparsity)| *sparsity))
            };
            Group { name: name.clone(), sparsity: lines.iter().map(at).collect() }
        };
        Self {
            epoch: lines.iter().map(|line| line.epoch).collect(),
            step: lines.iter().map(|line| line.step).collect(),
            train_loss: column(|line| Some(line.train_loss)),
            train_accuracy: column(|line| Some(line.train_accuracy)),
            validation_loss: column(|line| line.validation_loss),
            validation_accuracy: column(|line| line.validation_accuracy),
            seconds: column(|line| Some(line.seconds)),
            norm: lines.iter().map(|line| number(norm(line))).collect(),
            groups: lines.last().map(|line| line.groups.iter().map(group).collect()).unwrap_or_default(),
        }
    }
}

impl Layers {
    pub(super) fn of(lines: &[EpochRecord]) -> Self {
        let Some(last) = lines.last() else { return Self::default() };
        let stride = lines.len().div_ceil(COLUMNS);
        let kept: Vec<&EpochRecord> = lines
            .iter()
            .rev()
            .step_by(stride)
            .chain(lines.first().filter(|_| !(lines.len() - 1).is_multiple_of(stride)))
            .collect();
        let kept: Vec<&EpochRecord> = kept.into_iter().rev().collect();
        let layer = |(at, end): (usize, &LayerRecord)| {
            let of = |line: &EpochRecord| line.layers.get(at).filter(|layer| layer.name == end.name).cloned();
            let zero = lines.iter().rev().take_while(|line| line.all_zero.contains(&end.name)).last();
            Layer {
                name: end.name.clone(),
                shape: end.shape.clone(),
                sparsity: kept.iter().map(|line| number(of(line).map(|layer| layer.sparsity))).collect(),
                norm: kept.iter().map(|line| number(of(line).map(|layer| layer.norm))).collect(),
                nonzero: end.nonzero,
                zero_since: zero.map(|line| line.epoch),
            }
        };
        Self {
            epoch: kept.iter().map(|line| line.epoch).collect(),
            layers: last.layers.iter().enumerate().map(layer).collect(),
        }
    }

    /// The layers in which every weight is zero.
    pub(crate) fn all_zero(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(|layer| layer.zero_since.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(epoch: u64, norm: f64, zero: bool) -> EpochRecord {
        let layer = |name: &str, norm| format!(r#"{{"name":"{name}","shape":[2],"nonzero":1,"norm":{norm}}}"#);
        let (a, b) = (layer("a", 3.0 * norm), layer("b", 4.0 * norm));
        let all_zero = if zero { r#"["b"]"# } else { "[]" };
        let line = format!(r#"{{"step":{epoch},"epoch":{epoch},"layers":[{a},{b}],"all_zero":{all_zero}}}"#);
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn the_norm_of_the_network_is_that_of_all_its_weights() {
        assert_eq!(Epochs::of(&[line(1, 1.0, false), line(2, 2.0, false)]).norm, [5.0, 10.0]);
    }

    #[test]
    fn a_layer_is_zero_since_it_became_so_for_the_last_time() {
        let lines: Vec<_> =
            [true, false, true, true].iter().zip(1..).map(|(&zero, epoch)| line(epoch, 1.0, zero)).collect();
        let layers = Layers::of(&lines);
        assert_eq!(
            layers.all_zero().map(|layer| (layer.name.as_str(), layer.zero_since)).collect::<Vec<_>>(),
            [("b", Some(3))]
        );
    }

    #[test]
    fn a_long_run_keeps_its_first_and_last_epoch_and_not_more_columns_than_fit() {
        for epochs in [1, 2, 99, 100, 101, 250, 1000] {
            let lines: Vec<_> = (1..=epochs).map(|epoch| line(epoch, 1.0, false)).collect();
            let kept = Layers::of(&lines).epoch;
            assert_eq!((kept[0], kept[kept.len() - 1]), (1, epochs));
            assert!(kept.len() <= COLUMNS + 1 && kept.is_sorted(), "{epochs}: {kept:?}");
        }
    }
}
