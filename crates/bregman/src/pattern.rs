//! Name patterns: globs, or regular expressions after `re:`.

use regex::Regex;

use crate::error::{Error, Result};

/// A parsed pattern. In a glob `*` stands for any text and `?` for one character, and the whole name must match; a
/// regular expression may match anywhere in the name.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    source: String,
    expression: Regex,
}

impl Pattern {
    pub(crate) fn parse(source: &str) -> Result<Self> {
        let expression = source.strip_prefix("re:").map_or_else(|| glob(source), ToString::to_string);
        let expression =
            Regex::new(&expression).map_err(|e| Error::Pattern { pattern: source.into(), reason: e.to_string() })?;
        Ok(Self { source: source.into(), expression })
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.expression.is_match(name)
    }

    /// The three names closest by edit distance, wildcards left out: what a typing error was meant to say.
    pub(crate) fn near_misses<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let literal: String =
            self.source.trim_start_matches("re:").chars().filter(|c| !"*?^$\\()[]+|".contains(*c)).collect();
        let mut names: Vec<&str> = names.collect();
        names.sort_by_key(|name| edit_distance(&literal, name));
        names.into_iter().take(3).map(String::from).collect()
    }
}

fn glob(pattern: &str) -> String {
    let body: String = pattern
        .chars()
        .map(|c| match c {
            '*' => ".*".into(),
            '?' => ".".into(),
            c => regex::escape(&c.to_string()),
        })
        .collect();
    format!("^{body}$")
}

/// Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["layer1.conv.weight", "layer1.conv.bias", "layer2.linear.weight", "head.weight"];

    fn matched(pattern: &str) -> Vec<&str> {
        let pattern = Pattern::parse(pattern).unwrap();
        NAMES.into_iter().filter(|name| pattern.matches(name)).collect()
    }

    #[test]
    fn a_glob_matches_the_whole_name_and_takes_dots_literally() {
        assert_eq!(matched("layer?.*.weight"), [NAMES[0], NAMES[2]]);
        assert!(matched("layer1").is_empty());
        assert!(matched("layer1.conv.w.ight").is_empty());
    }

    #[test]
    fn a_regular_expression_matches_anywhere() {
        assert_eq!(matched("re:layer1"), [NAMES[0], NAMES[1]]);
        assert_eq!(matched("re:^layer[12].*weight$"), [NAMES[0], NAMES[2]]);
        assert!(Pattern::parse("re:(").unwrap_err().to_string().contains("not a regular expression"));
    }

    #[test]
    fn near_misses_come_closest_first() {
        let pattern = Pattern::parse("layer1.conv.wieght").unwrap();
        assert_eq!(pattern.near_misses(NAMES.into_iter())[0], NAMES[0]);
    }
}
