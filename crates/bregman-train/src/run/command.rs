//! How a run was started: with `command.json` and `config.toml` anybody can train the same network again.

use std::path::PathBuf;

use bregman_base::files::write_file;
use serde::{Deserialize, Serialize};

use super::{RunFolder, format};
use crate::Result;

/// The command that started a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// The words of the command line, the program's name first.
    pub command: Vec<String>,
    /// The working directory: relative paths of the recipe count from here.
    pub folder: PathBuf,
    /// Threads: sums differ in their last bits with another number.
    pub threads: usize,
    /// Version of the program.
    pub version: String,
}

impl CommandRecord {
    /// The command line of this process.
    pub fn of_this_process() -> Self {
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        Self {
            command: std::iter::once("bregman".to_owned()).chain(words).collect(),
            folder: std::env::current_dir().unwrap_or_default(),
            threads: rayon::current_num_threads(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Keeps it in the run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, run: &RunFolder) -> Result<()> {
        Ok(write_file(&run.command(), format::to_json(self))?)
    }

    /// The command that started `run`, if it is known.
    pub fn read(run: &RunFolder) -> Option<Self> {
        format::read_json(&run.command()).ok()
    }

    /// What was typed, for a shell.
    pub fn shell(&self) -> String {
        self.shell_of(self.command.iter().map(String::as_str))
    }

    /// The device that was asked for.
    fn device(&self) -> Option<&str> {
        let mut words = self.command.iter().map(String::as_str);
        words.find_map(|word| word.strip_prefix("--device")).and_then(|rest| match rest {
            "" => words.next(),
            value => value.strip_prefix('='),
        })
    }

    fn shell_of<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> String {
        let folder = quoted(&self.folder.to_string_lossy());
        format!("cd {folder} && RAYON_NUM_THREADS={} {}", self.threads, line(words))
    }
}

impl RunFolder {
    /// A command that trains the network of this run (an absolute path) again, beside it.
    pub fn reproduce(&self) -> String {
        let (recipe, out) = (self.config(), format!("{}-again", self.path().display()));
        let words = ["bregman", "train", &recipe.to_string_lossy(), "--out", &out];
        let Some(command) = CommandRecord::read(self) else { return line(words) };
        let device = command.device().into_iter().flat_map(|device| ["--device", device]);
        command.shell_of(words.into_iter().chain(device))
    }
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
    fn a_run_is_reproduced_on_the_device_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder::new(dir.path());
        let reproduced = |words: &[&str]| {
            let command = words.iter().map(|word| (*word).to_owned()).collect();
            CommandRecord { command, folder: "/work".into(), threads: 3, version: String::new() }.save(&run).unwrap();
            run.reproduce()
        };
        let asked = reproduced(&["bregman", "train", "r.toml", "--device", "cuda:1", "--json"]);
        assert!(asked.starts_with("cd /work && RAYON_NUM_THREADS=3 bregman train"), "{asked}");
        assert!(asked.ends_with("-again --device cuda:1"), "{asked}");
        assert!(reproduced(&["bregman", "train", "r.toml", "--device=cpu"]).ends_with("-again --device cpu"));
        assert!(reproduced(&["bregman", "train", "r.toml"]).ends_with("-again"));
    }

    #[test]
    fn words_with_spaces_and_quotes_survive_the_shell() {
        let words = ["plain/path.toml", "a b", "it's", "", "--set", "method.target=0.9", "$HOME", "λ"];
        let script = format!("printf '%s\\n' {}", line(words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.join("\n") + "\n");
    }
}
