//! The recipes that are part of the program, by name: the files of `recipes/`, put in by `build.rs`.

use std::path::{Component, Path};

/// A file of `recipes/`.
#[derive(Debug)]
pub struct BuiltIn {
    /// Its path in `recipes/` without `.toml`: `corpora/audiomnist`, or `demo`.
    pub name: &'static str,
    /// What it says.
    pub text: &'static str,
}

static FILES: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/recipes.rs"));

/// The folders of `recipes/`, and what a file in them is called.
const FOLDERS: [(&str, &str); 3] = [("corpora", "corpus"), ("networks", "network"), ("methods", "method")];

impl BuiltIn {
    /// All of them, sorted by name.
    pub fn all() -> &'static [Self] {
        FILES
    }

    /// Those of a folder (`corpora`, `networks` or `methods`).
    pub fn of_folder(folder: &str) -> impl Iterator<Item = &'static Self> + use<'_> {
        FILES.iter().filter(move |file| file.folder() == Some(folder))
    }

    /// The folder, for a part of a recipe; `None` for a whole recipe.
    pub fn folder(&self) -> Option<&'static str> {
        self.name.rsplit_once('/').map(|(folder, _)| folder)
    }

    /// The name without the folder.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }

    /// Its first comment.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches('#').trim()
    }

    pub(super) fn get(name: &str) -> Option<&'static Self> {
        FILES.iter().find(|file| file.name == name)
    }

    /// The files that a word stands for: one of them, or the parts of `CORPUS/NETWORK-METHOD` (or `CORPUS/NETWORK`) in
    /// the order of merging. A path that ends in `recipes/NAME.toml` stands for NAME. The error says which part is
    /// unknown.
    pub(super) fn find(word: &Path) -> Result<Vec<&'static Self>, String> {
        let name = name(word);
        if let Some(file) = Self::get(&name) {
            return Ok(vec![file]);
        }
        let Some((first, second)) = name.split_once('/').filter(|(_, second)| !second.contains('/')) else {
            return Err("expected CORPUS/NETWORK-METHOD, such as audiomnist/ecapa-adabreg".to_owned());
        };
        if FOLDERS.iter().any(|(folder, _)| *folder == first) {
            return Ok(vec![Self::pick(first, second)?]);
        }
        let corpus = Self::pick("corpora", first)?;
        let begins = |network: &&Self| {
            second.strip_prefix(network.short_name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        // The longest, should one network's name begin with another's.
        let network = Self::of_folder("networks").filter(begins).max_by_key(|network| network.name.len());
        let network = match network {
            Some(network) => network,
            None => Self::pick("networks", second.split('-').next().unwrap_or(second))?,
        };
        let method = second[network.short_name().len()..].strip_prefix('-');
        let method = method.map(|method| Self::pick("methods", method)).transpose()?;
        Ok([network, corpus].into_iter().chain(method).collect())
    }

    /// The file of this name in a folder; the error names the nearest.
    fn pick(folder: &str, name: &str) -> Result<&'static Self, String> {
        Self::of_folder(folder).find(|file| file.short_name() == name).ok_or_else(|| {
            let what = FOLDERS.iter().find(|(known, _)| *known == folder).map_or(folder, |(_, what)| what);
            let mut known: Vec<&str> = Self::of_folder(folder).map(Self::short_name).collect();
            known.sort_by_key(|known| strsim::damerau_levenshtein(known, name));
            known.truncate(3);
            format!("unknown {what} `{name}`; the nearest known: {}", known.join(", "))
        })
    }
}

/// `audiomnist/ecapa-adabreg` for `recipes/audiomnist/ecapa-adabreg.toml`, wherever that folder is.
fn name(word: &Path) -> String {
    let parts: Vec<_> = word.components().filter(|part| *part != Component::CurDir).map(Component::as_os_str).collect();
    let start = parts.iter().rposition(|part| *part == "recipes").map_or(0, |at| at + 1);
    let name = parts[start..].iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
    name.strip_suffix(".toml").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(word: &str) -> Vec<&'static str> {
        BuiltIn::find(Path::new(word)).unwrap().iter().map(|file| file.name).collect()
    }

    #[test]
    fn a_name_and_the_path_of_a_former_file_stand_for_the_same_parts() {
        let parts = ["networks/ecapa", "corpora/audiomnist", "methods/adabreg-cls2"];
        for word in ["audiomnist/ecapa-adabreg-cls2", "/a/recipes/audiomnist/ecapa-adabreg-cls2.toml"] {
            assert_eq!(found(word), parts);
        }
        assert_eq!(found("audiomnist/ecapa"), parts[..2]);
        assert_eq!(found("recipes/methods/adabreg-cls2.toml"), parts[2..]);
        assert_eq!(found("demo"), ["demo"]);
    }

    #[test]
    fn an_unknown_name_says_which_part_is_unknown_and_the_nearest() {
        let fails = |word: &str, expected: &str| {
            let problem = BuiltIn::find(Path::new(word)).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        };
        fails("audiomnst/ecapa-adabreg", "unknown corpus `audiomnst`; the nearest known: audiomnist");
        fails("audiomnist/ecappa-adabreg", "unknown network `ecappa`; the nearest known: ecapa");
        fails("audiomnist/ecapa-adabrag", "unknown method `adabrag`; the nearest known: adabreg");
        fails("methods/adabrag", "unknown method `adabrag`");
        fails("ecapa-adabreg", "expected CORPUS/NETWORK-METHOD");
        fails("/nowhere/else/mine.toml", "expected CORPUS/NETWORK-METHOD");
    }

    #[test]
    fn every_file_begins_with_one_line_about_itself() {
        for file in BuiltIn::all() {
            assert!(file.text.starts_with("# ") && (10..=118).contains(&file.about().len()), "{}", file.name);
        }
    }
}
