//! What a recipe leaves open and the program decides from the network and the length of the run.
//!
//! The paper's settings are those of networks at full width that train for twenty epochs and more. Narrow networks and
//! short runs need others (`docs/results.md` has the measurements):
//!
//! | setting | as in the paper | otherwise |
//! | --- | --- | --- |
//! | `method.initial_inputs` | 1: no output starts without an input | 10 where 1 % of the inputs is hardly a weight |
//! | `train.schedule` of Bregman methods | plateau | exponential with warm-up: too short to wait for plateaus |
//! | `train.clip` of Bregman methods | 1 | |
//! | `method.lambda` | 0.01 LinBreg, 1 AdaBreg | AdaBreg, but for the quantile law: less in a narrow network |

use bregman::Freeze;

use super::{Experiment, LrSchedule, MethodConfig, RunLength};

/// Networks with less than this share of the published channels are narrow.
const NARROW: f64 = 0.5;
/// Inputs of every output that are non-zero at the start of a narrow network: as many as 1 % of 1024.
const NARROW_INPUTS: f64 = 10.0;
/// A run of fewer epochs cannot wait for plateaus of three.
const FEWEST_EPOCHS_FOR_PLATEAUS: u64 = 10;
/// Largest norm of a Bregman method's gradient, as in the published configurations. The first gradient of a 99 % sparse
/// network has a norm of 10⁴ and more, which would throw LinBreg's duals over λ at once.
const CLIP: f32 = 1.0;

impl Experiment {
    /// Decides what the recipe leaves open.
    pub(super) fn settle(&mut self) {
        let inputs = if self.is_narrow() { NARROW_INPUTS } else { 1.0 };
        let bregman = match &mut self.method {
            MethodConfig::Adaptive(config) => Some(&mut config.initial_inputs),
            MethodConfig::Fixed(config) => Some(&mut config.initial_inputs),
            _ => None,
        };
        let plateaus = bregman.is_some() && self.train.epochs >= FEWEST_EPOCHS_FOR_PLATEAUS;
        if let Some(initial_inputs) = bregman {
            initial_inputs.get_or_insert(inputs);
            self.train.clip.get_or_insert(CLIP);
        }
        let schedule = if plateaus { LrSchedule::plateau() } else { LrSchedule::exponential() };
        self.train.schedule.get_or_insert(schedule);
        let lr = self.base_lr();
        self.train.lr.get_or_insert(lr);
    }
}

impl Experiment {
    /// Whether the network is so narrow that the paper's settings do not fit it.
    fn is_narrow(&self) -> bool {
        self.architecture().width() < NARROW
    }

    /// A run of so many steps.
    pub(crate) fn length(&self, steps: u64) -> RunLength {
        RunLength { steps, lr: self.base_lr(), narrow: self.is_narrow() }
    }

    /// How a run of `total` steps will train, in a line: what the paper, the recipe or the program decided. A round of
    /// masks before the first step looks at `batches`.
    pub(crate) fn plan(&self, total: u64, batches: u64) -> String {
        let start = |config: &super::SparseStart<'_>| {
            let rule = config.general();
            let zeros = 100.0 * rule.initial_sparsity.unwrap_or(bregman::INITIAL_SPARSITY);
            let inputs = rule.initial_inputs.unwrap_or(0.0);
            format!("starts with {zeros} % zeros and at least {inputs} inputs of every output, ")
        };
        // in single precision, which has no digits of rounding to show
        let lambda = |lambda: Option<f64>| lambda.map_or(String::new(), |lambda| format!("λ₀ {}", lambda as f32));
        let method = match &self.method {
            MethodConfig::Adaptive(config) => {
                let (law, period) = (config.law.name(), config.period.steps(total));
                let lambda = lambda(config.first_lambda(&self.length(total)));
                format!("{}{lambda} moved by the {law} law every {period} steps; ", start(&config.start()))
            }
            MethodConfig::Fixed(config) => {
                format!("{}{}; ", start(&config.start()), lambda(config.lambda.or(config.optimizer.default_lambda())))
            }
            MethodConfig::Snip(config) => {
                format!("the mask follows from {} batches in {} rounds; ", config.rounds * batches, config.rounds)
            }
            _ => String::new(),
        };
        let freeze = match self.method.freeze(total, self.train.epochs) {
            Freeze { every: 1, .. } => String::new(),
            Freeze { every, after, .. } => {
                format!("after step {after} zero weights move in one of {every} steps; ")
            }
        };
        let schedule = self.train.schedule.unwrap_or_else(LrSchedule::exponential).name();
        let clip = self.train.clip.filter(|clip| clip.is_finite());
        let clip = clip.map_or(String::new(), |clip| format!(", gradient norm at most {clip}"));
        format!("{method}{freeze}rate {}, {schedule}{clip}", self.base_lr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, settings: &[&str]) -> Experiment {
        Experiment::read(&[name], settings).unwrap()
    }

    fn initial_inputs(experiment: &Experiment) -> Option<f64> {
        match &experiment.method {
            MethodConfig::Adaptive(config) => config.initial_inputs,
            method => panic!("{method:?}"),
        }
    }

    #[test]
    fn full_width_and_twenty_epochs_are_the_papers_settings() {
        let experiment = read("voxceleb/ecapa-linbreg", &[]);
        assert_eq!((initial_inputs(&experiment), experiment.train.clip), (Some(1.0), Some(1.0)));
        assert_eq!(experiment.train.schedule, Some(LrSchedule::plateau()));
    }

    #[test]
    fn narrow_networks_and_short_runs_get_what_they_need_and_what_is_said_stays() {
        let narrow = read("voxceleb/ecapa-adabreg", &["model.channels=64", "train.epochs=4"]);
        assert_eq!(initial_inputs(&narrow), Some(10.0));
        assert_eq!(narrow.train.schedule, Some(LrSchedule::exponential()));
        let said = read("voxceleb/ecapa-adabreg", &["model.channels=64", "method.initial_inputs=3", "train.clip=inf"]);
        assert_eq!((initial_inputs(&said), said.train.clip), (Some(3.0), Some(f32::INFINITY)));
    }

    #[test]
    fn the_plan_says_what_was_decided() {
        let plan = read("voxceleb/ecapa-linbreg", &["model.channels=64", "method.law.alpha=1"]).plan(90_000, 1);
        assert_eq!(
            plan,
            "starts with 99 % zeros and at least 10 inputs of every output, λ₀ 0.01 moved by the multiplicative law \
             every 50 steps; rate 0.1, plateau, gradient norm at most 1"
        );
        let plan = read("voxceleb/ecapa-adabreg-frozen", &[]).plan(90_000, 1);
        let snip = read("voxceleb/ecapa-snip", &[]).plan(90_000, 27);
        assert!(snip.starts_with("the mask follows from 2700 batches in 100 rounds; rate 0.1"), "{snip}");
        assert!(plan.contains("; after step 45000 zero weights move in one of 10 steps; rate 0.01"), "{plan}");
    }

    #[test]
    fn masks_and_dense_networks_are_not_clipped() {
        let moving = ["set", "rigl", "granet", "mest", "acdc", "snip"];
        for method in ["dense-sgd", "pruned-gradual", "static"].into_iter().chain(moving) {
            assert_eq!(read(&format!("voxceleb/ecapa-{method}"), &[]).train.clip, None, "{method}");
        }
    }
}
