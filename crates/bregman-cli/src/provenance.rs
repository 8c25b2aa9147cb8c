//! How a run was started, kept in `RUN/command.json`: with it and `RUN/config.toml` anybody can train the same network
//! again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A command that started a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    /// The words of the command line, the program's name first.
    pub(crate) command: Vec<String>,
    /// Where it was given: relative paths of the recipe count from here.
    pub(crate) folder: PathBuf,
    /// Threads: sums differ in their last bits with another number.
    pub(crate) threads: usize,
    /// Version of the program.
    pub(crate) version: String,
}

const FILE: &str = "command.json";

impl Provenance {
    fn here() -> Self {
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        Self {
            command: std::iter::once("bregman".to_owned()).chain(words).collect(),
            folder: std::env::current_dir().unwrap_or_default(),
            threads: rayon::current_num_threads(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Keeps this process's command in the run that it has just started; one that cannot be kept is told.
    pub(crate) fn save(run: &Path) {
        let file = run.join(FILE);
        let text = serde_json::to_string_pretty(&Self::here()).map_err(std::io::Error::from);
        if let Err(error) = text.and_then(|text| std::fs::write(&file, text + "\n")) {
            eprintln!("note: the command is not kept: {}: {error}", file.display());
        }
    }

    /// The command that started `run`, if it is known.
    pub(crate) fn of(run: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(run.join(FILE)).ok()?).ok()
    }

    /// What was typed, for a shell.
    pub(crate) fn started(&self) -> String {
        self.shell(self.command.iter().map(String::as_str))
    }

    fn shell<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> String {
        format!("cd {} && RAYON_NUM_THREADS={} {}", quoted(&self.folder.to_string_lossy()), self.threads, line(words))
    }
}

/// Trains the network of the folder `run` (an absolute path) again, beside it.
pub(crate) fn reproduce(provenance: Option<&Provenance>, run: &Path) -> String {
    let (recipe, out) = (run.join("config.toml"), format!("{}-again", run.display()));
    let words = ["bregman", "train", &recipe.to_string_lossy(), "--out", &out];
    provenance.map_or_else(|| line(words), |provenance| provenance.shell(words))
}

/// Words as a POSIX shell reads them back.
fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-=,:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_spaces_and_quotes_survive_the_shell() {
        let words = ["plain/path.toml", "a b", "it's", "", "--set", "method.target=0.9", "$HOME", "λ"];
        let script = format!("printf '%s\\n' {}", line(words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.join("\n") + "\n");
    }
}
