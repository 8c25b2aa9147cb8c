//! Every run as a line of a CSV file: the raw numbers behind tables and pictures.

use std::path::Path;

use bregman_base::files::write_file;

use super::single::SweepRow;
use crate::failure::Failure;

/// Error rates are one column per test, in percent; what a run does not have is empty.
pub(super) fn write(rows: &[SweepRow], file: &Path) -> Result<(), Failure> {
    write_file(file, text(rows)).map_err(|error| Failure::failed(error.to_string()))
}

fn text(rows: &[SweepRow]) -> String {
    let mut tests: Vec<&str> = Vec::new();
    for record in rows.iter().flat_map(|row| &row.evaluations) {
        if !tests.contains(&&*record.test) {
            tests.push(&record.test);
        }
    }
    let header = ["group", "method", "target", "seed", "settings", "sparsity_percent", "lambda", "seconds", "bytes"];
    let mut text = line(header.iter().map(|word| (*word).to_owned()).chain(tests.iter().map(|test| eer_of(test))));
    for row in rows.iter().filter(|row| row.problem.is_none()) {
        let number =
            |value: Option<f64>, digits: usize| value.map_or(String::new(), |value| format!("{value:.digits$}"));
        let percent = |value: Option<f64>, digits: usize| number(value.map(|value| 100.0 * value), digits);
        let seed = row.settings.iter().find_map(|setting| setting.strip_prefix("seed="));
        let other: Vec<&str> = row.other_settings().map(String::as_str).collect();
        let fixed = [
            row.group.clone().unwrap_or_default(),
            row.method.clone().unwrap_or_default(),
            row.target.map_or(String::new(), |target| target.to_string()),
            seed.unwrap_or_default().to_owned(),
            other.join(" "),
            percent(row.sparsity, 4),
            row.lambda.map_or(String::new(), |lambda| format!("{lambda:.4e}")),
            number(row.seconds, 1),
            row.bytes.map_or(String::new(), |bytes| bytes.to_string()),
        ];
        let rate = |test: &&str| row.evaluations.iter().find(|record| record.test == **test);
        let rates = tests.iter().map(|test| percent(rate(test).map(|record| record.report.rates.eer), 3));
        text += &line(fixed.into_iter().chain(rates));
    }
    text
}

fn eer_of(test: &str) -> String {
    format!("eer_percent {test}")
}

/// RFC 4180: quoted where it must be.
fn line(cells: impl Iterator<Item = String>) -> String {
    let quoted = |cell: String| match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}
