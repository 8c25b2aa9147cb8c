//! Recipes from parts: a corpus, a network and a method become the layers of one experiment.
//!
//! The network comes first, then the corpus, then the method; each is a file with its bases below it. What depends on a
//! combination stands in the `[[when]]` of one of the parts and comes right after that part's own settings
//! (`recipes/README.md`).

use std::path::{Path, PathBuf};

use bregman_base::files::read_text;
use serde::Deserialize;
use toml::{Table, Value};

use super::built_in::BuiltIn;
use super::read::parse;
use crate::{Error, Result};

/// The largest recipe that is read; ours have a kilobyte.
const MOST_BYTES: u64 = 1 << 20;

/// The table that makes a file a network, a corpus or a method, in the order of merging.
const SECTIONS: [&str; 3] = ["model", "data", "method"];

/// The tables of the recipes that these words stand for, lowest first, with their origins. A word is a file or a name
/// ([`BuiltIn::find`]); the file wins.
pub(super) fn layers(words: &[impl AsRef<Path>]) -> Result<Vec<(String, Table)>> {
    let mut parts = Vec::new();
    for word in words {
        parts.extend(Part::of_word(word.as_ref(), word.as_ref(), &mut Vec::new())?);
    }
    compose(parts)
}

/// A file with its bases: their tables, lowest first.
struct Part {
    /// Its own name and those of its bases.
    names: Vec<String>,
    layers: Vec<Layer>,
}

/// A table of a file.
struct Layer {
    origin: String,
    table: Table,
    /// What it counts for; `None`: always.
    when: Option<When>,
}

/// A `[[when]]`: what is set if all of the conditions hold. A word fits the part of that name, a part that is based on
/// it, and a part of that `kind`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    network: Option<Words>,
    corpus: Option<Words>,
    method: Option<Words>,
    set: Table,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a word or a list of words")]
enum Words {
    One(String),
    Some(Vec<String>),
}

impl Words {
    fn fit(&self, name: &str) -> bool {
        match self {
            Self::One(word) => word == name,
            Self::Some(words) => words.iter().any(|word| word == name),
        }
    }
}

impl When {
    fn holds(&self, parts: &[Part]) -> bool {
        let conditions = SECTIONS.iter().zip([&self.network, &self.corpus, &self.method]);
        conditions.filter_map(|(section, words)| Some((section, words.as_ref()?))).all(|(section, words)| {
            parts.iter().filter_map(|part| part.labels(section)).flatten().any(|label| words.fit(label))
        })
    }
}

impl Part {
    /// What a word stands for: a file at `path`, or else recipes by name.
    fn of_word(word: &Path, path: &Path, above: &mut Vec<PathBuf>) -> Result<Vec<Self>> {
        if path.exists() && !path.is_dir() {
            return Ok(vec![Self::of_file(path, above)?]);
        }
        let files = BuiltIn::find(word).map_err(|problem| {
            let problem = if path.is_dir() {
                format!("is a folder, not a recipe; a recipe for it says: data.root = \"{}\"", word.display())
            } else {
                format!("there is no such file and no such recipe (see bregman recipes): {problem}")
            };
            Error::Recipe { origin: word.display().to_string(), problem }
        })?;
        files.into_iter().map(Self::of_built_in).collect()
    }

    fn of_file(path: &Path, above: &mut Vec<PathBuf>) -> Result<Self> {
        let origin = path.display().to_string();
        let text = read_text(path, MOST_BYTES)?;
        let identity = path.canonicalize().map_err(Error::io(path))?;
        if above.contains(&identity) {
            return Err(Error::Recipe { origin, problem: "is its own base".to_owned() });
        }
        above.push(identity);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let part = Self::of_text(&text, &name, &origin, |base| {
            Self::of_word(Path::new(base), &path.with_file_name(base), above)
        })?;
        above.pop();
        Ok(part)
    }

    fn of_built_in(file: &BuiltIn) -> Result<Self> {
        Self::of_text(file.text, file.short_name(), &format!("recipes/{}.toml", file.name), |base| {
            let base = Path::new(file.name).with_file_name(base);
            let files = BuiltIn::find(&base).map_err(|problem| Error::Recipe { origin: file.name.to_owned(), problem });
            files?.into_iter().map(Self::of_built_in).collect()
        })
    }

    fn of_text(
        text: &str,
        name: &str,
        origin: &str,
        mut find_base: impl FnMut(&str) -> Result<Vec<Self>>,
    ) -> Result<Self> {
        let wrong = |problem: String| Error::Recipe { origin: origin.to_owned(), problem };
        let mut table = parse(text, origin)?;
        let bases = match table.remove("base") {
            None => vec![],
            Some(base) => {
                match base.try_into().map_err(|_| wrong("base must be a name or a list of names".to_owned()))? {
                    Words::One(base) => vec![base],
                    Words::Some(bases) => bases,
                }
            }
        };
        let whens: Vec<When> = match table.remove("when") {
            None => vec![],
            Some(whens) => whens.try_into().map_err(|error: toml::de::Error| {
                wrong(format!("[[when]]: {}", error.message().trim().replace('\n', " ")))
            })?,
        };
        let mut part = Self { names: vec![name.to_owned()], layers: Vec::new() };
        for base in bases {
            for mut base in find_base(&base)? {
                part.names.append(&mut base.names);
                part.layers.append(&mut base.layers);
            }
        }
        part.layers.push(Layer { origin: origin.to_owned(), table, when: None });
        for when in whens {
            part.layers.push(Layer { origin: origin.to_owned(), table: when.set.clone(), when: Some(when) });
        }
        Ok(part)
    }

    /// The names that `[[when]]` may call this part, if it has this section.
    fn labels(&self, section: &str) -> Option<impl Iterator<Item = &str>> {
        let tables = self.layers.iter().filter(|layer| layer.when.is_none());
        let own: Vec<&Value> = tables.filter_map(|layer| layer.table.get(section)).collect();
        let kind = own.iter().rev().find_map(|table| table.get("kind")?.as_str());
        (!own.is_empty()).then(|| self.names.iter().map(String::as_str).chain(kind))
    }
}

/// The parts in their order, without the settings whose conditions do not hold. A method takes the place of that of a
/// whole recipe.
fn compose(mut parts: Vec<Part>) -> Result<Vec<(String, Table)>> {
    let is_whole = |part: &Part| SECTIONS.iter().all(|section| part.labels(section).is_some());
    let is_method = |part: &Part| SECTIONS.iter().all(|name| part.labels(name).is_some() == (*name == "method"));
    if parts.iter().any(is_method) {
        for part in parts.iter_mut().filter(|part| is_whole(part)) {
            let own = part.layers.iter_mut().filter(|layer| layer.when.is_none());
            own.for_each(|layer| drop(layer.table.remove("method")));
        }
    }
    for section in SECTIONS {
        let mut having = parts.iter().filter(|part| part.labels(section).is_some());
        if let (Some(first), Some(second)) = (having.next(), having.next()) {
            return Err(Error::Recipe {
                origin: second.names[0].clone(),
                problem: format!("has [{section}], as {} has: give one of them", first.names[0]),
            });
        }
    }
    let place = |part: &Part| SECTIONS.iter().position(|section| part.labels(section).is_some());
    parts.sort_by_key(|part| place(part).unwrap_or(SECTIONS.len()));
    let holds = |layer: &&Layer| layer.when.as_ref().is_none_or(|when| when.holds(&parts));
    let layers = parts.iter().flat_map(|part| &part.layers).filter(holds);
    Ok(layers.map(|layer| (layer.origin.clone(), layer.table.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use crate::config::MethodConfig;

    const NONE: &[&str] = &[];

    #[test]
    fn a_method_takes_the_place_of_that_of_a_whole_recipe() {
        let demo = Experiment::read(&["demo"], NONE).unwrap();
        let other = Experiment::read(&["demo", "methods/adabreg"], NONE).unwrap();
        assert_eq!((demo.method.target(), other.method.target()), (Some(0.9), Some(0.95)));
        let rigl = Experiment::read(&["demo", "methods/rigl"], NONE).unwrap();
        assert!(matches!(rigl.method, MethodConfig::RigL(_)), "{:?}", rigl.method);
        assert_eq!((rigl.model, rigl.data), (demo.model, demo.data));
        let gradual = Experiment::read(&["demo", "methods/pruned-gradual"], NONE).unwrap();
        assert!(matches!(&gradual.method, MethodConfig::Gradual(config) if config.epochs == 3), "{:?}", gradual.method);
        let twice = Experiment::read(&["audiomnist/ecapa-adabreg", "methods/rigl"], NONE).unwrap_err().to_string();
        assert!(twice.contains("give one of them"), "{twice}");
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn read(dir: &tempfile::TempDir, names: &[&str]) -> Result<Experiment> {
        Experiment::read(&names.iter().map(|name| dir.path().join(name)).collect::<Vec<_>>(), NONE)
    }

    #[test]
    fn a_part_sets_what_depends_on_the_others_and_later_parts_win() {
        let dir = folder(&[
            ("net.toml", "[model]\nkind = \"resnet\"\n[[when]]\nmethod = \"adaptive\"\nset.method.warmup = 5\n"),
            ("data.toml", "[data]\nroot = \"x\"\n[[when]]\nnetwork = [\"net\", \"other\"]\nset.train.epochs = 3\n"),
            ("method.toml", "[method]\nkind = \"adaptive\"\ntarget = 0.9\n[[when]]\ncorpus = \"none\"\nset.seed = 2\n"),
            ("own.toml", "base = \"method.toml\"\n[method]\nwarmup = 7\n[[when]]\nmethod = \"method\"\nset.seed = 3\n"),
        ]);
        let warmup = |experiment: &Experiment| match &experiment.method {
            super::super::MethodConfig::Adaptive(config) => config.warmup,
            _ => unreachable!(),
        };
        let plain = read(&dir, &["data.toml", "net.toml", "method.toml"]).unwrap();
        assert_eq!((warmup(&plain), plain.train.epochs, plain.seed), (5, 3, 1));
        let own = read(&dir, &["own.toml", "data.toml", "net.toml"]).unwrap();
        assert_eq!((warmup(&own), own.seed), (7, 3), "in any order; a part answers to the names of its bases");
        let twice = read(&dir, &["method.toml", "own.toml"]).unwrap_err().to_string();
        assert_eq!(twice, "own: has [method], as method has: give one of them");
    }

    #[test]
    fn bases_are_files_beside_their_recipe_or_recipes_by_name_and_a_circle_is_refused() {
        let dir = folder(&[
            ("base.toml", "[data]\nroot = \"x\"\n[method]\nkind = \"adaptive\"\ntarget = 0.9\n"),
            ("size.toml", "[train]\nepochs = 3\n"),
            ("a/r.toml", "base = [\"../base.toml\", \"../size.toml\"]\n[method]\ntarget = 0.75\n"),
            ("mine.toml", "base = \"audiomnist/resnet34-adabreg\"\n[model]\nchannels = 4\n"),
            ("method.toml", "base = \"audiomnist/ecapa\"\n[method]\nkind = \"adaptive\"\ntarget = 0.95\n"),
            ("circle.toml", "base = \"circle.toml\""),
        ]);
        let experiment = read(&dir, &["a/r.toml"]).unwrap();
        assert_eq!((experiment.method.target(), experiment.train.epochs), (Some(0.75), 3));
        let mine = read(&dir, &["mine.toml"]).unwrap();
        let named = Experiment::read(&["audiomnist/resnet34-adabreg"], &["model.channels=4"]).unwrap();
        assert_eq!(mine, named);
        let method = read(&dir, &["method.toml"]).unwrap();
        assert_eq!(method, Experiment::read(&["audiomnist/ecapa-linbreg"], NONE).unwrap(), "conditions see the whole");
        assert!(read(&dir, &["circle.toml"]).unwrap_err().to_string().contains("its own base"));
    }

    #[test]
    fn mistakes_name_the_file_and_what_is_wrong() {
        let dir = folder(&[("when.toml", "[[when]]\nnetwrk = \"x\"\nset.seed = 1\n"), ("base.toml", "base = 3\n")]);
        let fails = |word: &Path, expected: &str| {
            let message = Experiment::read(&[word], NONE).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        fails(&dir.path().join("when.toml"), "[[when]]: unknown field `netwrk`");
        fails(&dir.path().join("base.toml"), "base must be a name or a list of names");
        fails(Path::new("audiomnist/ecapa-adabrag"), "unknown method `adabrag`");
        fails(&dir.path().join("gone.toml"), "there is no such file");
    }
}
