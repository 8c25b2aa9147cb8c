//! From tables and `--set` to an experiment: each layer over the one before.
//!
//! Tables are merged key by key. A table that names another `kind` replaces the one below it: the settings of one kind
//! mean nothing to another.

use toml::{Table, Value};

use super::Experiment;
use crate::run::format;
use crate::{Error, Result};

/// What has been read so far, and where each part of it came from.
pub(super) struct Layers {
    merged: Table,
    origins: Vec<(String, Table)>,
}

impl Layers {
    /// The tables of a recipe, lowest first.
    pub(super) fn of_tables(tables: Vec<(String, Table)>) -> Self {
        let mut layers = Self { merged: Table::new(), origins: Vec::new() };
        for (origin, table) in tables {
            layers.add(table, &origin);
        }
        layers
    }

    /// What a run saved.
    pub(super) fn of_text(text: &str, origin: &str) -> Result<Self> {
        let mut table = parse(text, origin)?;
        drop_fixed_target(&mut table);
        Ok(Self::of_tables(vec![(origin.to_owned(), table)]))
    }

    /// The experiment with these `a.b=c` settings on top.
    pub(super) fn experiment(self, settings: &[impl AsRef<str>]) -> Result<Experiment> {
        let mut layers = settings.iter().try_fold(self, |layers, setting| layers.set(setting.as_ref()))?;
        name_kinds(&mut layers.merged);
        let experiment: Experiment =
            Value::Table(layers.merged.clone()).try_into().map_err(|error| layers.explain(&error))?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Applies `a.b=c`. The value is TOML; what is not is taken as text, so paths and words need no quotes.
    fn set(mut self, setting: &str) -> Result<Self> {
        let origin = format!("--set {setting}");
        let (key, value) =
            setting.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or_else(|| Error::Recipe {
                origin: origin.clone(),
                problem: "expected key=value, such as method.target=0.95".to_owned(),
            })?;
        let value = parse(&format!("value = {value}"), &origin).ok().and_then(|mut table| table.remove("value"));
        let value = value.unwrap_or_else(|| Value::String(setting[key.len() + 1..].trim().to_owned()));
        let nested = |value, part: &str| Value::Table(Table::from_iter([(part.trim().to_owned(), value)]));
        if let Value::Table(table) = key.split('.').rev().fold(value, nested) {
            self.add(table, &origin);
        }
        Ok(self)
    }

    fn add(&mut self, table: Table, origin: &str) {
        merge(&mut self.merged, &table);
        self.origins.push((origin.to_owned(), table));
    }

    /// What serde says, with the file and the full key, and the nearest word that would be understood.
    fn explain(&self, error: &toml::de::Error) -> Error {
        let message = error.message().trim().replace('\n', " ");
        let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let nearest = |word: &str| quoted[1..].iter().min_by_key(|known| strsim::damerau_levenshtein(known, word));
        match quoted.first() {
            Some(&unknown) if message.starts_with("unknown field") => {
                let path = find(&self.merged, "", &|key, _| key == unknown).unwrap_or_else(|| unknown.to_owned());
                let parent = path.strip_suffix(unknown).unwrap_or("");
                let advice = match nearest(unknown) {
                    Some(nearest) => format!("did you mean `{parent}{nearest}`?"),
                    None => format!("`{}` has no settings", parent.trim_end_matches('.')),
                };
                Error::Recipe { origin: self.origin(&path), problem: format!("unknown key `{path}`; {advice}") }
            }
            Some(&unknown) if message.starts_with("unknown variant") => {
                let path = find(&self.merged, "", &|_, value| value.as_str() == Some(unknown)).unwrap_or_default();
                let known = quoted[1..].join(", ");
                let advice = nearest(unknown)
                    .map_or(String::new(), |nearest| format!("; did you mean \"{nearest}\"? ({known})"));
                Error::Recipe {
                    origin: self.origin(&path),
                    problem: format!("{path} = \"{unknown}\" is not known{advice}"),
                }
            }
            Some(&missing) if message.starts_with("missing field") => {
                let example = match missing {
                    "root" => " (data): where the corpus is, --set data.root=DIR",
                    "target" => " (method): the sparsity asked for, --set method.target=0.95",
                    "method" => {
                        ": how to train, [method] with kind = \"adaptive\", \"fixed\", \"dense\", \"gradual\" or \
                         \"one_shot\""
                    }
                    _ => "",
                };
                Error::Recipe { origin: self.top(), problem: format!("{message}{example}") }
            }
            _ => Error::Recipe { origin: self.top(), problem: message },
        }
    }

    /// The layer that was added last.
    fn top(&self) -> String {
        self.origins.last().map_or_else(|| "recipe".to_owned(), |(origin, _)| origin.clone())
    }

    /// The last layer that has this key.
    fn origin(&self, path: &str) -> String {
        let has = |table: &Table| {
            let mut parts = path.split('.');
            let first = parts.next().and_then(|part| table.get(part));
            parts.try_fold(first, |value, part| value.map(|value| value.get(part))).flatten().is_some()
        };
        self.origins
            .iter()
            .rev()
            .find(|(_, table)| has(table))
            .map_or_else(|| "recipe".to_owned(), |(origin, _)| origin.clone())
    }
}

/// Tables that may leave out their `kind` where a setting says it: section, table, kind, settings.
const KINDS_BY_SETTING: [(&str, &str, &str, &[&str]); 4] = [
    ("method", "law", "multiplicative", &["alpha", "damping"]),
    ("method", "law", "density", &["kappa"]),
    ("train", "schedule", "plateau", &["factor", "patience", "floor"]),
    ("train", "schedule", "exponential", &["warmup", "last"]),
];

/// Runs with a fixed λ once had a target; they are still read.
fn drop_fixed_target(saved: &mut Table) {
    let method = saved.get_mut("method").and_then(Value::as_table_mut);
    if let Some(method) = method.filter(|method| method.get("kind").and_then(Value::as_str) == Some("fixed")) {
        method.remove("target");
    }
}

/// So that `--set method.law.alpha=0.5` is enough where the recipe leaves the law to the program.
fn name_kinds(recipe: &mut Table) {
    for (section, name, kind, settings) in KINDS_BY_SETTING {
        let table = recipe.get_mut(section).and_then(|section| section.get_mut(name)).and_then(Value::as_table_mut);
        if let Some(table) = table
            && !table.contains_key("kind")
            && settings.iter().any(|setting| table.contains_key(*setting))
        {
            table.insert("kind".to_owned(), Value::String(kind.to_owned()));
        }
    }
}

pub(super) fn parse(text: &str, origin: &str) -> Result<Table> {
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Error::Recipe { origin: format!("{origin}, line {line}"), problem: error.message().replace('\n', " ") }
    })?;
    // the recipe of a run carries the format number of its folder
    let format = table.remove("format").and_then(|format| format.as_integer());
    format::check(format.and_then(|format| u32::try_from(format).ok()), origin)?;
    Ok(table)
}

fn merge(below: &mut Table, above: &Table) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) if !changes_kind(below, above) => merge(below, above),
            _ => drop(below.insert(key.clone(), value.clone())),
        }
    }
}

fn changes_kind(below: &Table, above: &Table) -> bool {
    matches!((below.get("kind"), above.get("kind")), (Some(below), Some(above)) if below != above)
}

/// The dotted path of the first entry that fits.
fn find(table: &Table, prefix: &str, fits: &dyn Fn(&str, &Value) -> bool) -> Option<String> {
    let here = table.iter().find(|(key, value)| fits(key, value)).map(|(key, _)| format!("{prefix}{key}"));
    here.or_else(|| table.iter().find_map(|(key, value)| find(value.as_table()?, &format!("{prefix}{key}."), fits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LrSchedule, MethodConfig};

    const RECIPE: &str = "[data]\nroot = \"x\"\n[method]\nkind = \"adaptive\"\ntarget = 0.9\n";

    fn with(settings: &[&str]) -> Result<Experiment> {
        Experiment::parse(RECIPE, "r.toml", settings)
    }

    fn message(settings: &[&str]) -> String {
        with(settings).unwrap_err().to_string()
    }

    #[test]
    fn settings_override_the_recipe_and_words_need_no_quotes() {
        let experiment = with(&["method.target=0.95", "data.root=/a b/c", "seed=7"]).unwrap();
        assert_eq!((experiment.seed, experiment.data.root.to_str()), (7, Some("/a b/c")));
        assert_eq!(experiment.method.target(), Some(0.95));
    }

    #[test]
    fn a_run_saved_with_a_fixed_lambda_and_a_target_is_read_and_a_new_setting_of_it_refused() {
        let saved = RECIPE.replace("adaptive", "fixed");
        assert_eq!(Experiment::parse(&saved, "r.toml", &[] as &[&str]).unwrap().method.target(), None);
        let refused = Experiment::parse(&saved, "r.toml", &["method.target=0.9"]).unwrap_err().to_string();
        assert!(refused.contains("unknown key `method.target`"), "{refused}");
    }

    #[test]
    fn a_setting_of_a_law_or_a_schedule_says_which_one_is_meant() {
        let experiment = with(&["method.law.alpha=0.25", "train.schedule.patience=3"]).unwrap();
        let MethodConfig::Adaptive(method) = &experiment.method else { panic!("{:?}", experiment.method) };
        let expected = bregman::controller::Multiplicative { alpha: 0.25, ..Default::default() };
        assert_eq!(method.law, bregman::Law::Multiplicative(expected));
        assert!(matches!(experiment.train.schedule, Some(LrSchedule::Plateau { patience: 3, .. })));
    }

    #[test]
    fn an_unknown_key_names_its_origin_and_the_nearest_known_one() {
        assert_eq!(
            message(&["method.targt=0.9"]),
            "--set method.targt=0.9: unknown key `method.targt`; did you mean `method.target`?"
        );
        assert_eq!(
            message(&["train.epoch=3"]),
            "--set train.epoch=3: unknown key `train.epoch`; did you mean `train.epochs`?"
        );
        let wrong =
            Experiment::parse(&RECIPE.replace("target", "goal"), "r.toml", &[] as &[&str]).unwrap_err().to_string();
        assert!(wrong.starts_with("r.toml: unknown key `method.goal`"), "{wrong}");
    }

    #[test]
    fn an_unknown_word_names_its_key_and_the_nearest_known_one() {
        let wrong = message(&["method.optimizer.kind=adabrag"]);
        assert!(
            wrong.contains("method.optimizer.kind = \"adabrag\" is not known; did you mean \"adabreg\"?"),
            "{wrong}"
        );
    }

    #[test]
    fn another_kind_replaces_the_table_below_it() {
        let experiment = with(&["method.kind=dense", "method.optimizer.kind=adamw"]).unwrap();
        assert!(matches!(experiment.method, MethodConfig::Dense(_)));
        assert_eq!(experiment.method.target(), None);
    }

    #[test]
    fn mistakes_of_form_and_range_are_named() {
        assert!(message(&["seed"]).contains("expected key=value"));
        assert!(message(&["method.target=1.5"]).contains("target"), "{}", message(&["method.target=1.5"]));
        for beyond in ["train.epochs=9000000000000000000", "train.batch=1048577"] {
            let dense = message(&["method.kind=dense", beyond]);
            assert!(dense.starts_with(&beyond.replace('=', " = ")), "{dense}");
        }
        let cosine = message(&["train.schedule.kind=cosine", "train.schedule.last=1.5"]);
        assert!(cosine.starts_with("train.schedule.last = 1.5"), "{cosine}");
        let warmup = message(&["train.schedule.kind=cosine", "train.schedule.warmup=-1"]);
        assert!(warmup.starts_with("train.schedule.warmup = -1"), "{warmup}");
        let learnt = message(&["method.kind=str", "method.target=0.9", "method.rise=7"]);
        assert!(learnt.starts_with("method.rise = 7: expected none beside method.target"), "{learnt}");
        let phases = message(&["method.kind=acdc", "method.target=0.9", "train.epochs=9000000000000000000"]);
        assert!(phases.starts_with("train.epochs = 9000000000000000000"), "{phases}");
        let rounds = message(&["method.kind=snip", "method.target=0.9", "method.rounds=100000000000"]);
        assert!(rounds.contains("`method.rounds` is 100000000000"), "{rounds}");
        let batches = message(&["method.kind=snip", "method.target=0.9", "method.batches=0"]);
        assert!(batches.starts_with("method.batches = 0"), "{batches}");
        assert!(message(&["method.target=much"]).contains("expected"), "{}", message(&["method.target=much"]));
        let missing = Experiment::parse("[data]\nroot=\"x\"\n", "r.toml", &[] as &[&str]).unwrap_err().to_string();
        assert!(missing.contains("[method]"), "{missing}");
        let line = Experiment::parse("seed = 1\n[data\n", "r.toml", &[] as &[&str]).unwrap_err().to_string();
        assert!(line.starts_with("r.toml, line 2"), "{line}");
    }

    #[test]
    fn a_resolved_experiment_reads_back_as_itself() {
        for settings in
            [&[][..], &["method.kind=one_shot", "method.target=0.9"], &["method.kind=dense", "model.kind=resnet"]]
        {
            let experiment = with(settings).unwrap();
            assert_eq!(Experiment::parse(&experiment.to_toml(), "saved", &[] as &[&str]).unwrap(), experiment);
        }
        let newer = format!("format = 2\n{}", with(&[]).unwrap().to_toml());
        let refused = Experiment::parse(&newer, "saved", &[] as &[&str]).unwrap_err().to_string();
        assert!(refused.contains("saved: written in format 2"), "{refused}");
    }
}
