//! Output of commands: tables for people, JSON for programs, progress bars.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use bregman_base::text::excerpt;
use bregman_speaker::{CorpusSummary, Progress, Unreadable};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

/// A progress bar on standard error, hidden if that is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {per_sec} eta {eta}");
        let bar = ProgressBar::no_length()
            .with_message(what)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(std::time::Duration::from_millis(200)); // shows activity before the total is known
        Self(bar)
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn begin(&self, total: usize) {
        self.0.set_length(total as u64);
    }

    fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Prints to standard output; a closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Tells the user something on standard error; one that is gone, with its terminal or reader, is not an error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Fails early, before long work, if there is something at `path` that may not be replaced.
pub(crate) fn refuse_existing(path: &Path, force: bool) -> Result<(), Failure> {
    if force || path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(bregman_speaker::Error::Exists(path.to_owned()).into())
}

/// Warns the user of a problem that did not stop the command.
pub(crate) fn note(what: &str, why: &dyn std::fmt::Display) {
    say(&format!("note: {what}: {}", excerpt(&why.to_string(), 2000)));
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Rows under a header, columns aligned: the first to the left, the others to the right. Names out of files are shown
/// as they can be printed.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let printable = |row: &Vec<String>| row.iter().map(|cell| excerpt(cell, 200).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(printable).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([header[column].chars().count()]).max()
    };
    let widths: Vec<usize> = (0..header.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let pad = |(column, cell): (usize, &str)| {
            let width = widths[column];
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        cells.enumerate().map(pad).collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let body: String = rows.iter().map(|row| line(&mut row.iter().map(String::as_str))).collect();
    line(&mut header.iter().copied()) + &body
}

/// A corpus in a few lines, with a histogram of durations.
pub(crate) fn summary(summary: &CorpusSummary) -> String {
    let CorpusSummary {
        speakers,
        utterances,
        hours,
        seconds: [shortest, median, longest],
        per_speaker: [fewest, middle, most],
        histogram,
    } = summary;
    let mut text = format!(
        "speakers    {speakers}\n\
         utterances  {utterances} ({fewest} / {middle} / {most} per speaker: fewest, median, most)\n\
         hours       {hours:.2}\n\
         seconds     {shortest:.2} / {median:.2} / {longest:.2} (shortest, median, longest)\n\n\
         length\n"
    );
    let largest = histogram.iter().map(|class| class.utterances).max().unwrap_or(0).max(1);
    for class in histogram {
        let range = match class.below {
            Some(below) => format!("{:>2} – {below:>2} s", class.from),
            None => format!("{:>2} s –   ", class.from),
        };
        let bar = "█".repeat((40 * class.utterances).div_ceil(largest));
        let _ = writeln!(text, "  {range}  {:>9}  {bar}", class.utterances);
    }
    text
}

/// Skipped files: the first ten, and how many more.
pub(crate) fn unreadable(files: &[Unreadable]) -> String {
    const SHOWN: usize = 10;
    if files.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{} files could not be read and were skipped:\n", files.len());
    for file in files.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}", excerpt(&format!("{}: {}", file.path, file.problem), 500));
    }
    if files.len() > SHOWN {
        let _ = writeln!(text, "  … and {} more (--json lists all)", files.len() - SHOWN);
    }
    text
}
