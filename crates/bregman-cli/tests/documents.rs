//! What the documents name exists: files, symbols, links. And their lines fit a screen.

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files below a folder with one of these extensions; not build outputs, nor the licence of the font.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "runs" && name != "font" {
                found.extend(files(&path, extensions));
            }
        } else if extensions.iter().any(|extension| name.ends_with(extension)) {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether `text` has `word` with nothing around it that would make it another word.
fn has_word(text: &str, word: &str) -> bool {
    let inside = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word)
        .any(|(at, _)| !inside(text[..at].chars().next_back()) && !inside(text[at + word.len()..].chars().next()))
}

/// What is between backticks, outside of code blocks.
fn code_spans(text: &str) -> Vec<String> {
    let outside_of_blocks: String = text.split("```").step_by(2).collect();
    outside_of_blocks
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// `folder/*.ext`: whether there is such a file.
fn has_match(root: &Path, pattern: &str) -> bool {
    let (folder, rest) = pattern.split_once('*').unwrap();
    let folder = root.join(folder);
    folder.is_dir() && files(&folder, &[rest]).iter().any(|file| file.parent() == Some(&folder))
}

#[test]
fn every_file_and_symbol_named_to_contributors_exists() {
    let root = repository();
    let sources = ["crates", "tools"].map(|folder| files(&root.join(folder), &[".rs", ".cu", ".js"]));
    let sources: String = sources.iter().flatten().map(|path| read(path)).collect();
    let is_name = |text: &str| {
        let letters = |part: &str| part.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        !text.is_empty() && text.split("::").all(|part| !part.is_empty() && letters(part))
    };
    let mut wrong = Vec::new();
    for document in ["CONTRIBUTING.md", "docs/architecture.md"] {
        let mut checked = 0;
        for span in code_spans(&read(&root.join(document))) {
            // Commands, settings, examples with a name to fill in.
            if span.contains([' ', '=', '[', '"', '…']) || span.contains("NAME") {
                continue;
            }
            let problem = match span.split_once("::") {
                Some((path, symbol)) if path.contains('/') => {
                    let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
                    let missing = symbol.split("::").find(|part| !has_word(&text, part));
                    missing.map(|part| format!("{path} has no `{part}`"))
                }
                _ if is_name(&span) => {
                    let missing = span.split("::").find(|part| !has_word(&sources, part));
                    missing.map(|part| format!("no source has `{part}`"))
                }
                _ if span.contains('*') => (!has_match(&root, &span)).then(|| format!("nothing is like {span}")),
                _ if span.contains('/') => (!root.join(&span).exists()).then(|| format!("there is no {span}")),
                _ => None,
            };
            checked += 1;
            wrong.extend(problem.map(|problem| format!("{document}: {problem}")));
        }
        assert!(checked > 30, "{document} names only {checked} things");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_lead_to_files() {
    let root = repository();
    let mut wrong = Vec::new();
    for path in files(&root, &[".md"]) {
        let (text, name) = (read(&path), path.strip_prefix(&root).unwrap().display().to_string());
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let elsewhere = target.is_empty() || target.contains("://") || target.contains("crate::");
            if !elsewhere && !path.with_file_name(target).exists() {
                wrong.push(format!("{name}: there is no {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
