//! `bregman recipes`: the recipes that are part of the program.

use std::path::PathBuf;

use bregman_train::Experiment;
use bregman_train::config::BuiltIn;
use serde::Serialize;

use crate::Outcome;
use crate::output::{print, print_json};

/// List the recipes, or print one with all its settings.
///
/// A recipe is CORPUS/NETWORK-METHOD, any combination of the parts listed. `bregman train` takes its name, a TOML file,
/// or one name or file for each part.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman recipes
  bregman recipes audiomnist/ecapa-adabreg
  bregman recipes audiomnist/ecapa-adabreg > mine.toml && bregman train mine.toml --set data.root=DIR")]
pub(crate) struct Args {
    /// Print this recipe with all its settings
    recipe: Vec<PathBuf>,
    /// Override a key of the recipe (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "recipe")]
    settings: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct RecipeRow {
    /// `corpora`, `networks`, `methods`; none for a whole recipe.
    part: Option<&'static str>,
    name: &'static str,
    about: &'static str,
}

pub(crate) fn run(args: Args) -> Outcome {
    if !args.recipe.is_empty() {
        let experiment = Experiment::read(&args.recipe, &args.settings)?;
        return if args.json { print_json(&experiment) } else { print(&experiment.to_toml()) };
    }
    let of = |file: &'static BuiltIn| RecipeRow { part: file.folder(), name: file.short_name(), about: file.about() };
    let rows: Vec<RecipeRow> = BuiltIn::all().iter().map(of).collect();
    if args.json {
        return print_json(&rows);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let group = |title: &str, part: Option<&str>| {
        let line = |row: &RecipeRow| format!("  {:width$}  {}\n", row.name, row.about);
        format!("{title}\n{}", rows.iter().filter(|row| row.part == part).map(line).collect::<String>())
    };
    let groups = ["corpora", "networks", "methods"].map(|part| group(part, Some(part))).join("\n");
    print(&format!(
        "{groups}\n{}\nbregman train CORPUS/NETWORK-METHOD, such as audiomnist/ecapa-adabreg\n\
         bregman recipes CORPUS/NETWORK-METHOD prints all its settings\n",
        group("complete", None)
    ))
}
