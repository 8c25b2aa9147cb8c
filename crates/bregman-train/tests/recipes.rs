//! What every recipe resolves to, pinned in `docs/recipes.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bregman_train::Experiment;
use bregman_train::config::BuiltIn;
use toml::{Table, Value};

/// A recipe by its three names, and its settings by their dotted names.
struct Resolved {
    corpus: String,
    network: String,
    method: String,
    settings: BTreeMap<String, String>,
}

const INTRODUCTION: &str = "\
# What the recipes say

Every setting of every recipe CORPUS/NETWORK-METHOD, defaults included; `bregman recipes NAME` prints one of them. Where
a value depends on the corpus or the network, the cell says on which; – is a setting that does not exist there.

The source of a value: the *paper*; the published *code* of its authors or of WeSpeaker, from which its networks are; or
*ours*, where both are silent or the corpus is not theirs. The recipes of audiomnist and the demo are ours throughout.

A test compares this page with the program. After an intended change of a recipe or a default, write it again:
`BLESS=1 cargo test -p bregman-train --test recipes`.
";

/// Where the values of a setting come from; a name that ends in a dot stands for all that begin with it.
const SOURCES: &[(&str, &str)] = &[
    ("data.augment.", "paper"),
    ("data.cache", "ours"),
    ("data.features.bins", "paper"),
    ("data.features.", "code: WeSpeaker's; the paper's toolkit is SpeechBrain"),
    ("data.features_by", "ours"),
    ("data.join_seconds", "paper"),
    ("data.order", "code"),
    ("data.root", "ours"),
    ("data.seconds", "paper"),
    ("data.strict", "ours"),
    ("data.train", "ours"),
    ("data.validation", "paper"),
    ("loss.", "paper"),
    ("model.", "paper"),
    ("seed", "ours"),
    ("select.average", "ours"),
    ("select.metric", "code"),
    ("select.tolerance", "paper"),
    ("train.batch", "paper"),
    ("train.clip", "code"),
    ("train.epochs", "paper"),
    ("train.log_every", "ours"),
    ("train.lr", "paper"),
    ("train.save_every", "ours"),
    ("train.schedule.", "paper; exponential for Bregman methods in short runs: ours"),
    ("method.at", "paper"),
    ("method.epochs", "paper"),
    ("method.fraction", "RigL's paper; GraNet: the code of its authors"),
    ("method.freeze", "ours"),
    ("method.freeze_after", "ours"),
    ("method.from", "GraNet's paper"),
    ("method.gradient_weight", "the code of MEST's authors"),
    ("method.groups", "paper; cls03: ours"),
    ("method.initial_inputs", "ours"),
    ("method.initial_mask", "code"),
    ("method.initial_sparsity", "paper"),
    ("method.kind", "paper; static: ours; snip, set, rigl, granet, mest, acdc, str: their papers"),
    ("method.lambda", "paper"),
    ("method.law.", "quantile: ours; multiplicative: paper, `gamma_alpha`, `gamma_f` in our reading"),
    (
        "method.layers.",
        "ours; set, rigl: RigL's paper; mest: the code of its authors, which however leaves the first layer and the \
         classifier dense. Our target counts these, and together they may have more weights than it allows: ECAPA's \
         first layer is 2.8 % of all its weights, a classifier of 6000 speakers 7 %",
    ),
    ("method.optimizer.", "paper; `beta1`, `beta2`, `eps`: code; variant steady: ours"),
    ("method.penalty", "paper"),
    ("method.period", "paper: 50; set, rigl: 100, granet: 1000, mest: 1/32 of the run; shorter in short runs: ours"),
    ("method.rise", "ours"),
    ("method.rounds", "ours"),
    ("method.shape", "paper"),
    ("method.stages", "MEST: the code of its authors"),
    ("method.structure", "paper; channels: ours"),
    ("method.survivors", "code"),
    ("method.target", "paper"),
    ("method.threshold", "ours"),
    ("method.until", "RigL's paper; GraNet: the code of its authors; str: ours"),
    ("method.warmup", "ours"),
];

fn source(key: &str) -> String {
    let fits = |name: &str| key == name || name.ends_with('.') && key.starts_with(name);
    let found = SOURCES.iter().find(|(name, _)| fits(name));
    found.unwrap_or_else(|| panic!("where does {key} come from? Say it in SOURCES of this test")).1.to_owned()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every recipe but the demo's.
fn all() -> Vec<Resolved> {
    let mut all = Vec::new();
    for corpus in BuiltIn::of_folder("corpora").map(BuiltIn::short_name) {
        for network in BuiltIn::of_folder("networks").map(BuiltIn::short_name) {
            for method in BuiltIn::of_folder("methods").map(BuiltIn::short_name) {
                let settings = settings(&resolve(&format!("{corpus}/{network}-{method}")));
                let [corpus, network, method] = [corpus, network, method].map(str::to_owned);
                all.push(Resolved { corpus, network, method, settings });
            }
        }
    }
    all
}

fn resolve(name: &str) -> Experiment {
    Experiment::read(&[name], &[] as &[&str]).unwrap_or_else(|error| panic!("{error}"))
}

fn settings(experiment: &Experiment) -> BTreeMap<String, String> {
    fn flatten(prefix: &str, table: &Table, settings: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => flatten(&format!("{prefix}{key}."), inner, settings),
                _ => drop(settings.insert(format!("{prefix}{key}"), value.to_string().replace('"', ""))),
            }
        }
    }
    let mut settings = BTreeMap::new();
    flatten("", &experiment.to_toml().parse().unwrap(), &mut settings);
    settings
}

/// The values of a setting in some recipes, told by as few names as decide them.
fn cell(key: &str, recipes: &[&Resolved]) -> String {
    let value = |recipe: &Resolved| recipe.settings.get(key).map_or("–", String::as_str).to_owned();
    let deciders: [fn(&Resolved) -> String; 4] = [
        |_| String::new(),
        |recipe| format!("{}: ", recipe.network),
        |recipe| format!("{}: ", recipe.corpus),
        |recipe| format!("{}/{}: ", recipe.corpus, recipe.network),
    ];
    let cells = deciders.iter().find_map(|decider| {
        let mut values = BTreeMap::new();
        let decided = |recipe: &&Resolved| *values.entry(decider(recipe)).or_insert(value(recipe)) == value(recipe);
        recipes.iter().all(decided).then_some(values)
    });
    let cells = cells.unwrap_or_else(|| panic!("{key} depends on the method"));
    cells.iter().map(|(name, value)| format!("{name}{value}")).collect::<Vec<_>>().join("<br>")
}

/// Whether a setting is the method's, or follows from it where the recipe does not say.
fn follows_method(key: &str) -> bool {
    ["method.", "train.clip", "train.lr", "train.schedule."].iter().any(|name| key.starts_with(name))
}

fn document() -> String {
    let (recipes, demo) = (all(), settings(&resolve("demo")));
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let header = |cells: &[String]| row(cells) + &row(&vec!["---".to_owned(); cells.len()]);
    let keys: BTreeSet<&String> = recipes.iter().flat_map(|recipe| recipe.settings.keys()).chain(demo.keys()).collect();
    let of_demo = |key: &str| demo.get(key).map_or("–", String::as_str).to_owned();

    let mut text = format!("{INTRODUCTION}\n## Corpora and networks\n\n");
    text += &header(&["setting", "value", "demo", "source"].map(str::to_owned));
    for key in keys.iter().filter(|key| !follows_method(key)) {
        text += &row(&[format!("`{key}`"), cell(key, &recipes.iter().collect::<Vec<_>>()), of_demo(key), source(key)]);
    }

    let methods: BTreeSet<&String> = recipes.iter().map(|recipe| &recipe.method).collect();
    let names = methods.iter().map(|method| (*method).clone());
    text += "\n## Methods\n\n";
    text += &header(
        &["setting".to_owned()]
            .into_iter()
            .chain(names)
            .chain(["demo", "source"].map(str::to_owned))
            .collect::<Vec<_>>(),
    );
    for key in keys.iter().filter(|key| follows_method(key)) {
        let of_method = |method: &&String| {
            cell(key, &recipes.iter().filter(|recipe| recipe.method == **method).collect::<Vec<_>>())
        };
        let name = format!("`{key}`");
        text += &row(&[name]
            .into_iter()
            .chain(methods.iter().map(of_method))
            .chain([of_demo(key), source(key)])
            .collect::<Vec<_>>());
    }
    text
}

#[test]
fn every_source_is_of_a_setting_that_exists() {
    let keys: BTreeSet<String> = all().into_iter().flat_map(|recipe| recipe.settings.into_keys()).collect();
    for (name, _) in SOURCES {
        let exists = keys.iter().any(|key| key == name || name.ends_with('.') && key.starts_with(name));
        assert!(exists, "no recipe has {name}");
    }
}

#[test]
fn every_recipe_resolves_to_the_settings_in_the_table() {
    assert_eq!(all().len(), 3 * 4 * 32);
    let (path, document) = (repository().join("docs/recipes.md"), document());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap();
    let differs = document.lines().zip(pinned.lines()).find(|(now, pinned)| now != pinned);
    assert!(document == pinned, "docs/recipes.md is not what the recipes say (BLESS=1 writes it): {differs:?}");
}
