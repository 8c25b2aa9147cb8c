//! Axes: transforms of values, and positions of ticks.

use std::borrow::Cow;

/// The transform of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
    /// For DET curves: normally distributed scores give straight lines.
    Probit,
    /// For sparsity: 90, 99 and 99.9 % are equally spaced.
    Nines,
}

/// One axis of a panel.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlotAxis {
    pub(super) scale: Scale,
    /// Range of the transformed values.
    pub(super) range: [f64; 2],
    pub(super) label: Cow<'static, str>,
    /// Ticks are fractions, labelled in per cent.
    pub(super) percent: bool,
}

const RATES: [f64; 17] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
const SHARES: [f64; 9] = [0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999];

impl Scale {
    pub(super) fn bend(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.log10(),
            Self::Probit => probit(value),
            Self::Nines => -(1.0 - value.min(0.99999)).log10(),
        }
    }

    fn ticks(self, [low, high]: [f64; 2], count: f64) -> Vec<f64> {
        match self {
            Self::Linear => even(low, high, count),
            Self::Log if high - low < 1.0 => even(10f64.powf(low), 10f64.powf(high), count),
            Self::Log => {
                let stride = ((high - low) / count).ceil().max(1.0) as i32;
                let powers = (low - 1e-9).ceil() as i32..=(high + 1e-9).floor() as i32;
                powers.filter(|power| power % stride == 0).map(|power| 10f64.powi(power)).collect()
            }
            Self::Probit => self.apart(&RATES, [low, high], count),
            Self::Nines => self.apart(&SHARES, [low, high], count),
        }
    }

    /// The candidates that are inside the range and not too close to each other.
    fn apart(self, candidates: &[f64], [low, high]: [f64; 2], count: f64) -> Vec<f64> {
        let (gap, mut last, mut kept) = ((high - low) / (1.6 * count), f64::NEG_INFINITY, Vec::new());
        for &value in candidates {
            let bent = self.bend(value);
            if bent >= low - 1e-9 && bent <= high + 1e-9 && bent - last >= gap {
                last = bent;
                kept.push(value);
            }
        }
        kept
    }
}

impl PlotAxis {
    /// The axis that shows `values`, with a margin; `None` if there are none.
    pub(super) fn over(
        scale: Scale,
        label: impl Into<Cow<'static, str>>,
        percent: bool,
        values: impl IntoIterator<Item = f64>,
    ) -> Option<Self> {
        let bent = values.into_iter().map(|value| scale.bend(value)).filter(|bent| bent.is_finite());
        let (low, high) =
            bent.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), bent| (low.min(bent), high.max(bent)));
        let air = match high - low {
            spread if spread < 0.0 => return None,
            0.0 => (0.1 * low.abs()).max(1e-3),
            spread => 0.04 * spread,
        };
        Some(Self { scale, range: [low - air, high + air], label: label.into(), percent })
    }

    /// Limits the range to meaningful values.
    pub(super) fn within(mut self, low: f64, high: f64) -> Self {
        self.range = [self.range[0].max(self.scale.bend(low)), self.range[1].min(self.scale.bend(high))];
        self
    }

    /// 0 at the beginning of the axis, 1 at its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        (self.scale.bend(value) - self.range[0]) / (self.range[1] - self.range[0])
    }

    /// About `count` ticks with their labels.
    pub(super) fn ticks(&self, count: f64) -> Vec<(f64, String)> {
        let text = |value: f64| {
            let value = if self.percent { 100.0 * value } else { value };
            let (size, rounded) = (value.abs(), (value * 1e6).round() / 1e6);
            if size >= 1e5 || size > 0.0 && size < 1e-3 {
                format!("{value:.0e}")
            } else {
                format!("{rounded}").replace('-', "−")
            }
        };
        self.scale.ticks(self.range, count).into_iter().map(|value| (value, text(value))).collect()
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn even(low: f64, high: f64, count: f64) -> Vec<f64> {
    let raw = (high - low) / count;
    let power = 10f64.powf(raw.log10().floor());
    let step = power * [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= 0.75 * raw).unwrap_or(10.0);
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|at| at as f64 * step).collect()
}

/// The inverse of the normal distribution: P. J. Acklam's rational approximation, error below 1.2e-9.
fn probit(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.69683028665376,
        220.9460984245205,
        -275.9285104469687,
        138.357751867269,
        -30.66479806614716,
        2.506628277459239,
    ];
    const B: [f64; 5] =
        [-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572];
    const C: [f64; 6] = [
        -0.007784894002430293,
        -0.3223964580411365,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416];
    let polynomial = |factors: &[f64], x: f64| factors.iter().fold(0.0, |sum, factor| sum * x + factor);
    match p {
        _ if p <= 0.0 => f64::NEG_INFINITY,
        _ if p >= 1.0 => f64::INFINITY,
        _ if p > 0.5 => -probit(1.0 - p),
        _ if p < 0.02425 => {
            let q = (-2.0 * p.ln()).sqrt();
            polynomial(&C, q) / (polynomial(&D, q) * q + 1.0)
        }
        _ => {
            let q = p - 0.5;
            polynomial(&A, q * q) * q / (polynomial(&B, q * q) * q * q + 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probit_has_its_known_values() {
        for (p, expected) in
            [(0.5, 0.0), (0.975, 1.959963984540054), (0.01, -2.326347874040841), (0.0001, -3.719016485455709)]
        {
            assert!((probit(p) - expected).abs() < 1e-8, "{p}");
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let axis = PlotAxis::over(Scale::Linear, "", true, [0.9412, 0.9931]).unwrap();
        assert_eq!(
            axis.ticks(5.0).into_iter().map(|(_, text)| text).collect::<Vec<_>>(),
            ["94", "95", "96", "97", "98", "99"]
        );
        let axis = PlotAxis::over(Scale::Log, "", false, [0.004, 30.0]).unwrap();
        assert_eq!(axis.ticks(5.0).into_iter().map(|(_, text)| text).collect::<Vec<_>>(), ["0.01", "0.1", "1", "10"]);
        assert!(PlotAxis::over(Scale::Log, "", false, [f64::NAN, -1.0]).is_none());
    }

    #[test]
    fn a_single_value_has_an_axis_around_it() {
        let axis = PlotAxis::over(Scale::Linear, "", false, [2.0, 2.0]).unwrap();
        assert!((axis.place(2.0) - 0.5).abs() < 1e-9);
    }
}
