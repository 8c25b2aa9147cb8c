//! Score files: `enroll test score target|nontarget`, one line per trial, as Kaldi and WeSpeaker write them.
//!
//! Scores are written with as many digits as it takes to read back the same number: rounding would create ties.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use bregman_base::files::{ShortLines, open_regular};

use crate::files::write_whole;
use crate::{Error, Result, Trials};

/// Writes `scores` in the order of `trials`; an existing file is replaced only with `force`.
pub fn write_scores(path: &Path, trials: &Trials, scores: &[f64], force: bool) -> Result<()> {
    assert_eq!(trials.trials.len(), scores.len(), "one score per trial");
    write_whole(path, force, |file| {
        for (trial, score) in trials.trials.iter().zip(scores) {
            let [enroll, test] = [trial.enroll, trial.test].map(|name| &trials.names[name as usize]);
            let label = if trial.target { "target" } else { "nontarget" };
            writeln!(file, "{enroll} {test} {score} {label}").map_err(Error::io(path))?;
        }
        Ok(())
    })
}

/// Reads the scores and labels of a score file.
pub fn read_scores(path: &Path) -> Result<(Vec<f64>, Vec<bool>)> {
    let (mut scores, mut labels) = (Vec::new(), Vec::new());
    for (at, text) in BufReader::new(ShortLines::new(open_regular(path)?)).lines().enumerate() {
        let text = text.map_err(Error::io(path))?;
        let wrong = |problem: &str| {
            Error::line(path, at as u64 + 1, format!("{problem}; expected 'enroll test score target|nontarget'"))
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let &[_, _, score, label] = &fields[..] else { return Err(wrong(&format!("{} fields", fields.len()))) };
        scores.push(
            score
                .parse()
                .ok()
                .filter(|score: &f64| score.is_finite())
                .ok_or_else(|| wrong(&format!("score '{score}'")))?,
        );
        labels.push(match label {
            "target" | "1" => true,
            "nontarget" | "0" => false,
            other => return Err(wrong(&format!("label '{other}'"))),
        });
    }
    Ok((scores, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_scores_read_back_exactly() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scores.txt");
        let trials = Trials::parse(&b"1 a/1 a/2\n0 a/1 b/1\n"[..], Path::new("t")).unwrap();
        let scores = [1.0 / 3.0, -1e-17];
        write_scores(&path, &trials, &scores, false).unwrap();
        assert_eq!(read_scores(&path).unwrap(), (scores.to_vec(), vec![true, false]));
        assert!(matches!(write_scores(&path, &trials, &scores, false), Err(Error::Exists(_))));
        std::fs::write(&path, "a b x target\n").unwrap();
        assert!(
            read_scores(&path).unwrap_err().to_string().contains("line 1: score 'x'; expected"),
            "names line and field"
        );
    }
}
