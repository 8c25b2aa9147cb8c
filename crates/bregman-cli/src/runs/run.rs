//! One run: everything its folder says.

use std::path::PathBuf;

use bregman_base::files::read_text;
use bregman_train::config::MethodConfig;
use bregman_train::{
    BestEpoch, CheckpointFolder, CommandRecord, EvaluationRecord, Experiment, MetricsRecord, RunFolder, RunState,
    read_metrics,
};
use serde::Serialize;
use serde_json::Value;

use super::curves::Steps;
use super::find::Found;
use super::{Curves, Epochs, Layers};

/// The largest recipe that a page shows.
const MOST_RECIPE: u64 = 1 << 20;

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// All epochs are done, or it stopped early.
    Finished,
    /// It has logged something.
    Unfinished,
    /// It has not.
    Empty,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReportedRun {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) status: Status,
    /// "LinBreg → 95 %".
    pub(crate) title: Option<String>,
    /// The title without its target: runs of one method form a line in the chart of EER against sparsity.
    pub(crate) method: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) target: Option<f64>,
    /// ζ.
    pub(crate) tolerance: f64,
    /// Epochs done and asked for.
    pub(crate) epochs_done: u64,
    pub(crate) epochs_asked: Option<u64>,
    pub(crate) steps_done: u64,
    /// At the end of the log.
    pub(crate) sparsity: Option<f64>,
    pub(crate) lambda: Option<f64>,
    pub(crate) seconds: Option<f64>,
    pub(crate) best: Option<BestEpoch>,
    pub(crate) curves: Curves,
    pub(crate) epochs: Epochs,
    pub(crate) layers: Layers,
    pub(crate) evaluations: Vec<EvaluationRecord>,
    /// What is missing or wrong.
    pub(crate) notes: Vec<String>,
    /// The resolved recipe.
    pub(crate) recipe: Option<String>,
    /// Its keys and values, dotted.
    pub(crate) settings: Vec<(String, String)>,
    /// The command that started it.
    pub(crate) started: Option<String>,
    /// A command that trains the same network again.
    pub(crate) reproduce: Option<String>,
}

impl ReportedRun {
    /// The same with its evaluations on one test set.
    pub(crate) fn on_test(&self, test: &str) -> Self {
        let evaluations = self.evaluations.iter().filter(|record| record.test == test).cloned().collect();
        Self { evaluations, ..self.clone() }
    }

    /// Reads what there is.
    pub(crate) fn read(found: &Found, buckets: usize) -> Self {
        let folder = RunFolder::new(&found.folder);
        let (mut steps, mut epochs) = (Steps::default(), Vec::new());
        let problems = read_metrics(&folder.metrics(), |record| match record {
            MetricsRecord::Step(step) => steps.add(&step),
            MetricsRecord::Epoch(epoch) => epochs.push(epoch),
            MetricsRecord::Run { .. } => {}
        });
        let state = folder.last_state();
        let (evaluations, unreadable) = read_evaluations(&folder);
        let (recipe, experiment) = read_recipe(&folder);
        let finished = state.as_ref().is_some_and(|state| state.finished);
        let method = experiment.as_ref().ok().map(|experiment| &experiment.method);
        let settings = experiment.as_ref().map(flat_settings).unwrap_or_default();
        let last = epochs.last();
        let mut run = Self {
            name: found.name.clone(),
            status: match finished {
                true => Status::Finished,
                false if steps.is_empty() && last.is_none() => Status::Empty,
                false => Status::Unfinished,
            },
            title: method.map(MethodConfig::title),
            method: method.map(family),
            model: settings.iter().find(|(key, _)| key == "model.kind").map(|(_, kind)| kind.clone()),
            target: method.and_then(MethodConfig::target),
            tolerance: experiment.as_ref().map_or(0.01, |experiment| experiment.select.tolerance),
            epochs_done: last.map_or(0, |epoch| epoch.epoch),
            epochs_asked: experiment.as_ref().ok().map(|experiment| experiment.train.epochs),
            steps_done: steps.step.last().copied().max(last.map(|epoch| epoch.step)).unwrap_or(0),
            sparsity: steps.latest("sparsity").or(last.map(|epoch| epoch.sparsity)),
            lambda: steps.latest("lambda").or(last.and_then(|epoch| epoch.lambda)),
            seconds: state.as_ref().map(|state| state.seconds).or(last.map(|epoch| epoch.seconds)),
            best: state.as_ref().and_then(|state| state.selection.best),
            curves: steps.thin(buckets),
            epochs: Epochs::of(&epochs),
            layers: Layers::of(&epochs),
            evaluations,
            notes: problems,
            settings,
            started: CommandRecord::read(&folder).map(|command| command.shell()),
            reproduce: recipe.as_ref().map(|_| folder.reproduce()),
            recipe,
            folder: found.folder.clone(),
        };
        run.notes.extend(steps.diverged().map(|step| format!("the loss is not a number at step {step}")));
        run.notes.extend(experiment.as_ref().err().cloned());
        run.notes.extend(unreadable);
        run.note_what_is_missing(state.as_ref());
        run
    }

    fn note_what_is_missing(&mut self, state: Option<&RunState>) {
        let folder = self.folder.display();
        let mut notes = Vec::new();
        if self.status == Status::Unfinished {
            let asked = self.epochs_asked.map_or(String::new(), |asked| format!(" of {asked}"));
            notes.push(format!("not finished: {}{asked} epochs, {} steps so far", self.epochs_done, self.steps_done));
        }
        if self.status != Status::Empty && self.epochs.epoch.is_empty() {
            notes.push("no epoch has ended yet: no validation, no sparsity of layers, no norm".to_owned());
        } else if self.status != Status::Empty && self.epochs.validation_loss.iter().all(|loss| loss.is_nan()) {
            notes.push("no validation set: the recipe has validation = 0".to_owned());
        }
        match state {
            None => notes.push("no checkpoint yet (last/): it cannot be continued or evaluated".to_owned()),
            Some(state) if state.selection.best.is_none() && self.target.is_some() => {
                notes.push(format!(
                    "no epoch ended within ±{:.2} % of the target: there is no best/",
                    100.0 * self.tolerance
                ));
            }
            _ => {}
        }
        if self.evaluations.is_empty() && state.is_some() {
            notes.push(format!(
                "not evaluated: EER, DET and scores come from bregman evaluate {folder} --trials LIST --root DIR"
            ));
        }
        for evaluation in &self.evaluations {
            // by its name: the run may have moved since
            let name = evaluation.checkpoint.file_name();
            let now = name.and_then(|name| CheckpointFolder::new(self.folder.join(name)).state().ok());
            if let Some(now) = now.filter(|now| now.step != evaluation.step) {
                let (test, then, now) = (&evaluation.test, evaluation.step, now.step);
                notes.push(format!(
                    "{test} was evaluated at step {then}, the checkpoint is now of step {now}: evaluate it again"
                ));
            }
        }
        self.notes.extend(notes);
    }
}

/// The evaluations as a page shows them, and what is wrong with those that cannot be read.
fn read_evaluations(run: &RunFolder) -> (Vec<EvaluationRecord>, Vec<String>) {
    let (mut evaluations, unreadable) = EvaluationRecord::read_all(run);
    for evaluation in &mut evaluations {
        // long, and nothing on the page shows them
        evaluation.report.cosine = None;
        evaluation.report.unreadable.clear();
    }
    (evaluations, unreadable.iter().map(ToString::to_string).collect())
}

/// The recipe as text, and understood or with what is wrong about it.
fn read_recipe(run: &RunFolder) -> (Option<String>, Result<Experiment, String>) {
    match read_text(&run.config(), MOST_RECIPE).map_err(|error| error.source) {
        Ok(text) => {
            let experiment = Experiment::parse(&text, "config.toml", &[] as &[&str]).map_err(|error| error.to_string());
            (Some(text), experiment)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            (None, Err("config.toml is missing: method, target and recipe are not known".to_owned()))
        }
        Err(error) => (None, Err(format!("config.toml cannot be read: {error}"))),
    }
}

/// The title without its target, with what else tells methods apart.
fn family(method: &MethodConfig) -> String {
    let title = method.title();
    let name = title.split([',', '→']).next().unwrap_or(&title).trim();
    let config = serde_json::to_value(method).unwrap_or_default();
    let word =
        |value: &Value, usual: &str| value.as_str().filter(|word| *word != usual).map(|word| word.replace('_', " "));
    let fixed = (config["kind"] == "fixed").then(|| "fixed λ".to_owned());
    let usually_layerwise = ["static", "set", "rigl", "mest"].iter().any(|kind| config["kind"] == *kind);
    let layerwise = (config["layers"].is_object() && !usually_layerwise).then(|| "layerwise".to_owned());
    let details =
        [fixed, word(&config["law"]["kind"], "quantile"), layerwise, word(&config["optimizer"]["variant"], "steady")];
    details.into_iter().flatten().fold(name.to_owned(), |name, detail| format!("{name}, {detail}"))
}

/// `method.target` and the like, one value each.
fn flat_settings(experiment: &Experiment) -> Vec<(String, String)> {
    fn flatten(prefix: &str, value: &Value, out: &mut Vec<(String, String)>) {
        match value {
            Value::Object(table) => table.iter().for_each(|(key, value)| {
                flatten(&if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") }, value, out);
            }),
            Value::Null => {}
            Value::String(text) => out.push((prefix.to_owned(), text.clone())),
            other => out.push((prefix.to_owned(), other.to_string())),
        }
    }
    let mut all = Vec::new();
    flatten("", &serde_json::to_value(experiment).unwrap_or_default(), &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_differ_in_more_than_their_target_have_different_names() {
        let of = |settings: &[&str]| {
            let recipe = "[data]\nroot = \"x\"\n[method]\nkind = \"adaptive\"\ntarget = 0.9\n";
            family(&Experiment::parse(recipe, "test", settings).unwrap().method)
        };
        assert_eq!((of(&[]), of(&["method.target=0.99"])), ("LinBreg".to_owned(), "LinBreg".to_owned()));
        assert_eq!(of(&["method.optimizer.kind=adabreg", "method.law.kind=density"]), "AdaBreg, density");
        assert_eq!(
            of(&["method.optimizer.kind=linbreg", "method.optimizer.variant=prox_rescaling"]),
            "LinBreg, prox rescaling"
        );
        assert_eq!(of(&["method.kind=fixed", "method.lambda=0.3"]), "LinBreg, fixed λ");
        assert_eq!(of(&["method.kind=dense"]), "dense SGD");
        assert_eq!(of(&["method.kind=gradual", "method.target=0.9"]), "gradual pruning");
        assert_eq!(of(&["method.kind=rigl", "method.target=0.9"]), "RigL");
        let layerwise = ["method.kind=granet", "method.target=0.9", "method.layers={ sharing = \"erk\" }"];
        assert_eq!(of(&layerwise), "GraNet, layerwise");
    }
}
