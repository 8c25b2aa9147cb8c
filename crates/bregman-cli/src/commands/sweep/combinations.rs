//! What a sweep runs: every combination of methods, targets and settings.

use std::path::{Path, PathBuf};

use bregman_train::Experiment;

use super::plan::{Plan, Runs};
use crate::failure::Failure;

/// What `--methods all` compares: dense networks, Bregman training with every step full and with frozen ones, pruning,
/// and the usual ways of masks. Not `pruned-oneshot`: over all layers together it disconnects networks.
const ALL: [&str; 19] = [
    "dense-sgd",
    "dense-adamw",
    "adabreg",
    "adabreg-frozen",
    "adabreg-cls03",
    "linbreg",
    "linbreg-frozen",
    "proxsgd",
    "pruned-gradual",
    "pruned-gradual-erk",
    "pruned-oneshot-erk",
    "static",
    "snip",
    "set",
    "rigl",
    "granet",
    "mest",
    "acdc",
    "str",
];

/// One of the runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Combination {
    /// The name of its group in the plan.
    pub(super) group: Option<String>,
    /// The method, as it was written.
    pub(super) method: Option<String>,
    /// The recipe, method included.
    pub(super) recipe: Vec<PathBuf>,
    pub(super) settings: Vec<String>,
    /// Those of the settings that differ from run to run.
    pub(super) varied: Vec<String>,
}

impl Combination {
    pub(super) fn experiment(&self) -> Result<Experiment, bregman_train::Error> {
        Experiment::read(&self.recipe, &self.settings)
    }

    /// The recipe without the method.
    pub(super) fn shared_recipe(&self) -> &[PathBuf] {
        &self.recipe[..self.recipe.len() - usize::from(self.method.is_some())]
    }

    /// A folder name: what stays the same in all runs need not stand in it.
    pub(super) fn folder_name(&self) -> String {
        let plain = |letter: char| if letter.is_alphanumeric() || ".=_,-".contains(letter) { letter } else { '_' };
        let method = self
            .method
            .as_ref()
            .map(|method| Path::new(method).file_stem().unwrap_or_default().to_string_lossy().into_owned());
        let words: Vec<String> = self.group.iter().cloned().chain(method).chain(self.varied.iter().cloned()).collect();
        let name: String = words.join(",").chars().map(plain).collect();
        if name.is_empty() { "run".to_owned() } else { name }
    }
}

/// All of them, the last setting changing fastest. A target is only for methods that have one.
pub(super) fn combinations(plan: &Plan) -> Result<Vec<Combination>, Failure> {
    let mut all: Vec<Combination> = Vec::new();
    for runs in &plan.runs {
        for combination in combinations_of(plan, runs)? {
            let folder = combination.folder_name();
            if all.iter().any(|known| known.folder_name() == folder) {
                let hint = "give each [[runs]] of the plan a name of its own";
                return Err(Failure::mistake(format!("two runs would be kept in {folder}"), hint));
            }
            combination.experiment()?; // a mistake shows before the first run, not after the last
            all.push(combination);
        }
    }
    Ok(all)
}

fn combinations_of(plan: &Plan, runs: &Runs) -> Result<Vec<Combination>, Failure> {
    let seeds = plan.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let seeds = (!seeds.is_empty()).then(|| format!("seed={seeds}"));
    let written: Vec<String> = plan.set.iter().chain(&runs.set).cloned().chain(seeds).collect();
    let settings = setting_combinations(&written)?;
    let methods: Vec<Option<String>> = if runs.methods.is_empty() {
        vec![None]
    } else {
        let known = |word: &String| if word == "all" { ALL.map(str::to_owned).to_vec() } else { vec![word.clone()] };
        runs.methods.iter().flat_map(known).map(Some).collect()
    };
    let mut all = Vec::new();
    for method in methods {
        let part = method.as_ref().map(|method| match Path::new(method) {
            file if file.exists() || method.contains('/') => file.to_owned(),
            name => Path::new("methods").join(name),
        });
        let recipe: Vec<PathBuf> = plan.recipe.iter().chain(&runs.recipe).cloned().chain(part).collect();
        let fixed: Vec<&str> = settings.first().map_or(vec![], |first| first.iter().map(String::as_str).collect());
        let has_target = Experiment::read(&recipe, &fixed)?.method.target().is_some();
        let targets: Vec<Option<String>> = match has_target {
            true if !runs.targets.is_empty() => {
                runs.targets.iter().map(|target| Some(format!("method.target={target}"))).collect()
            }
            _ => vec![None],
        };
        for target in targets {
            for settings in &settings {
                let varied = settings.iter().filter(|setting| !written.contains(setting)).cloned();
                all.push(Combination {
                    group: runs.name.clone(),
                    method: method.clone(),
                    recipe: recipe.clone(),
                    settings: target.iter().chain(settings).cloned().collect(),
                    varied: target.iter().cloned().chain(varied).collect(),
                });
            }
        }
    }
    Ok(all)
}

/// Every combination of the values, the last key changing fastest.
fn setting_combinations(settings: &[String]) -> Result<Vec<Vec<String>>, Failure> {
    let mut all = vec![Vec::new()];
    for setting in settings {
        let Some((key, values)) = setting.split_once('=') else {
            return Err(Failure::mistake(format!("--set {setting}"), "expected KEY=VALUE or KEY=A,B,C"));
        };
        let values = split_values(values);
        all = all
            .into_iter()
            .flat_map(|row| values.iter().map(move |value| [&row[..], &[format!("{key}={value}")]].concat()))
            .collect();
    }
    Ok(all)
}

/// Splits at the commas that are outside of brackets, braces and quotes.
fn split_values(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start, mut values) = (0i32, false, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                values.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    values.push(&text[start..]);
    values
}

#[cfg(test)]
mod tests {
    use bregman_train::config::{AdaptiveConfig, MethodConfig};

    use super::*;

    #[test]
    fn every_combination_occurs_once_and_lists_stay_whole() {
        let settings = ["seed=1,2".to_owned(), "a.b=[1,2],\"x,y\"".to_owned(), "c=3".to_owned()];
        let all = setting_combinations(&settings).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[1], ["seed=1", "a.b=\"x,y\"", "c=3"]);
        assert_eq!(all[2], ["seed=2", "a.b=[1,2]", "c=3"]);
        assert_eq!(setting_combinations(&[]).unwrap(), [Vec::<String>::new()]);
        assert!(setting_combinations(&["seed".to_owned()]).is_err());
    }

    #[test]
    fn all_methods_are_recipes_and_both_optimizers_are_there_with_frozen_steps() {
        let freezes = |method: &&&str| {
            let recipe = [PathBuf::from("demo"), Path::new("methods").join(method)];
            let experiment = Experiment::read(&recipe, &[] as &[&str]).unwrap();
            matches!(experiment.method, MethodConfig::Adaptive(AdaptiveConfig { freeze: 2.., .. }))
        };
        let frozen: Vec<&&str> = ALL.iter().filter(freezes).collect();
        assert_eq!(frozen, [&"adabreg-frozen", &"linbreg-frozen"]);
    }

    #[test]
    fn all_methods_but_dense_ones_have_a_target_and_the_guide_tells_of_each() {
        let guide = include_str!("../../../../../docs/guide.md");
        for method in ALL {
            let recipe = [PathBuf::from("demo"), Path::new("methods").join(method)];
            let experiment = Experiment::read(&recipe, &[] as &[&str]).unwrap();
            assert_eq!(experiment.method.target().is_some(), !method.starts_with("dense"), "{method}");
            assert!(guide.contains(&format!("`{method}`")), "docs/guide.md lacks {method}");
        }
    }

    #[test]
    fn folders_are_named_by_what_varies() {
        let name = |group: Option<&str>, method: Option<&str>, varied: &[&str]| {
            let varied = varied.iter().map(|setting| (*setting).to_owned()).collect();
            let method = method.map(str::to_owned);
            let group = group.map(str::to_owned);
            Combination { group, method, recipe: vec![], settings: vec![], varied }.folder_name()
        };
        assert_eq!(name(None, None, &["method.target=0.9", "data.root=/a b"]), "method.target=0.9,data.root=_a_b");
        assert_eq!(name(Some("r 34"), Some("rigl"), &["method.target=0.9"]), "r_34,rigl,method.target=0.9");
        assert_eq!(name(None, Some("my/own.toml"), &[]), "own");
        assert_eq!(name(None, None, &[]), "run");
    }
}
