//! `bregman sweep`: a recipe with every combination of some settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bregman_base::files::append_to;
use bregman_speaker::Progress;
use bregman_train::{Experiment, RunFolder, RunState};
use serde::Serialize;
use serde_json::Value;

use super::cohort::CohortArgs;
use crate::device::DeviceArg;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Bar, print, print_json, table};
use crate::signals::stop_on_signals;

/// Train and evaluate a recipe with every combination of some settings.
///
/// --set KEY=A,B,C tries each value; several --set give all combinations. Each runs as `bregman train` in its own
/// folder under --out, with a log beside it. Runs that have finished are skipped, interrupted ones continue, failed
/// ones are reported: give the same command again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman sweep audiomnist/ecapa-adabreg --set data.root=audiomnist --set method.target=0.75,0.9,0.95,0.99 \\
      --set seed=1,2,3 --trials audiomnist/trials.txt --root audiomnist \\
      --other-trials fsdd/trials.txt --other-root fsdd --out sweeps/adabreg
  bregman sweep cnceleb/ecapa-adabreg --set method.target=0.9,0.95 --out sweeps/cn \\
      --trials CN-Celeb_flac/eval/lists/trials.lst --enroll CN-Celeb_flac/eval/lists/enroll.map \\
      --root CN-Celeb_flac/eval --root CN-Celeb_flac/data --cohort train.csv --cohort-utterances 20")]
pub(crate) struct Args {
    /// Recipe of the experiments, by name or as files
    #[arg(required = true)]
    recipe: Vec<PathBuf>,
    /// Key and its values (repeatable); a list in brackets is one value
    #[arg(long = "set", value_name = "KEY=A,B,…")]
    settings: Vec<String>,
    /// Folder of the runs
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Runs at a time, sharing the cores
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    #[command(flatten)]
    place: DeviceArg,
    /// Trial list to evaluate each run on
    #[arg(long, value_name = "FILE", requires = "roots")]
    trials: Option<PathBuf>,
    /// Where its names are: folder, shards or manifest (repeatable)
    #[arg(long = "root", value_name = "DIR", requires = "trials")]
    roots: Vec<PathBuf>,
    /// Enrollment map of that list
    #[arg(long, value_name = "FILE", requires = "trials")]
    enroll: Option<PathBuf>,
    /// Trial list of another corpus, out of domain
    #[arg(long, value_name = "FILE", requires = "other_roots")]
    other_trials: Option<PathBuf>,
    /// Where its names are (repeatable)
    #[arg(long = "other-root", value_name = "DIR", requires = "other_trials")]
    other_roots: Vec<PathBuf>,
    /// Enrollment map of that list
    #[arg(long, value_name = "FILE", requires = "other_trials")]
    other_enroll: Option<PathBuf>,
    #[command(flatten)]
    cohort: CohortArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What runs are evaluated on.
#[derive(Clone, Copy)]
struct TestLists<'a> {
    trials: &'a Option<PathBuf>,
    roots: &'a [PathBuf],
    enroll: &'a Option<PathBuf>,
}

/// One run of the sweep.
#[derive(Debug, Clone, Serialize)]
struct SweepRow {
    run: PathBuf,
    settings: Vec<String>,
    /// `finished`, `skipped` (had finished before) or `failed`.
    status: &'static str,
    /// Why it failed.
    problem: Option<String>,
    sparsity: Option<f64>,
    lambda: Option<f64>,
    eer: Option<f64>,
    eer_out_of_domain: Option<f64>,
    seconds: Option<f64>,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    if args.jobs == 0 {
        return Err(Failure::mistake("--jobs 0", "pass 1 or more"));
    }
    args.cohort.check()?;
    let combinations = combinations(&args.settings)?;
    for settings in &combinations {
        Experiment::read(&args.recipe, settings)?; // a mistake shows before the first run, not after the last
    }
    args.place.find()?; // so does a device that is not there
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::failed(format!("{}: {error}", args.out.display())))?;
    let bar = Bar::new("runs");
    bar.begin(combinations.len());
    let stop = stop_on_signals("stopping the runs with a checkpoint")?;
    let children = Children::default();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(vec![None; combinations.len()]));
    let workers = AtomicUsize::new(args.jobs.min(combinations.len()));
    std::thread::scope(|scope| {
        scope.spawn(|| pass_on(&stop, &workers, &children));
        for _ in 0..args.jobs.min(combinations.len()) {
            scope.spawn(|| {
                let _ended = Countdown(&workers);
                while let Some((at, settings)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, combinations.get(at)?)))
                    && !stop.load(Ordering::Relaxed)
                {
                    let row = one(&args, settings, &children);
                    rows.lock().expect("no thread panics while it holds the rows")[at] = Some(row);
                    bar.step();
                }
            });
        }
    });
    drop(bar);
    let rows: Vec<SweepRow> = rows.into_inner().expect("all threads have ended").into_iter().flatten().collect();
    if args.json {
        print_json(&rows)?
    } else {
        let next = format!("\nlook at them: bregman report {} -o report.html\n", args.out.display());
        print(&(text(&rows, &args.settings) + &next))?
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    match rows.iter().filter(|row| row.status == "failed").count() {
        0 => Ok(Exit::Done),
        failed => {
            Err(Failure::failed(format!("{failed} of {} runs failed; the same command tries them again", rows.len())))
        }
    }
}

/// The programs that are running now, by their numbers.
type Children = Mutex<Vec<u32>>;

/// One worker less when it ends, however it ends.
struct Countdown<'a>(&'a AtomicUsize);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks the running programs to stop when this one is asked to. From a terminal they have been asked already; they take
/// the two for one.
fn pass_on(stop: &AtomicBool, workers: &AtomicUsize, children: &Children) {
    let mut told = Vec::new();
    while workers.load(Ordering::Relaxed) > 0 {
        if stop.load(Ordering::Relaxed) {
            let running = children.lock().expect("no thread panics while it holds the numbers").clone();
            for child in running.into_iter().filter(|child| !told.contains(child)).collect::<Vec<_>>() {
                let _ = Command::new("kill").arg(child.to_string()).status(); // SIGTERM
                told.push(child);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every combination of the values, the last key changing fastest.
fn combinations(settings: &[String]) -> Result<Vec<Vec<String>>, Failure> {
    let mut all = vec![Vec::new()];
    for setting in settings {
        let Some((key, values)) = setting.split_once('=') else {
            return Err(Failure::mistake(format!("--set {setting}"), "expected KEY=VALUE or KEY=A,B,C"));
        };
        let values = split_values(values);
        all = all
            .into_iter()
            .flat_map(|row| values.iter().map(move |value| [&row[..], &[format!("{key}={value}")]].concat()))
            .collect();
    }
    Ok(all)
}

/// Splits at the commas that are outside of brackets, braces and quotes.
fn split_values(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start, mut values) = (0i32, false, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                values.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    values.push(&text[start..]);
    values
}

/// A folder name for some settings.
fn folder_name(settings: &[String]) -> String {
    let plain = |letter: char| if letter.is_alphanumeric() || ".=_-".contains(letter) { letter } else { '_' };
    let name: String =
        settings.join(",").chars().map(|letter| if letter == ',' { ',' } else { plain(letter) }).collect();
    if name.is_empty() { "run".to_owned() } else { name }
}

/// The log beside a run.
fn log_of(run: &Path) -> PathBuf {
    let mut name = run.as_os_str().to_owned();
    name.push(".log");
    name.into()
}

fn one(args: &Args, settings: &[String], children: &Children) -> SweepRow {
    // What stays the same in all runs need not stand in their names.
    let varied: Vec<String> = settings.iter().filter(|setting| !args.settings.contains(setting)).cloned().collect();
    let run = args.out.join(folder_name(&varied));
    let folder = RunFolder::new(&run);
    let last = || folder.last().state().ok();
    // A run with other settings in this folder is no reason to skip; `bregman train` will refuse to continue it and say
    // why.
    let asked = Experiment::read(&args.recipe, settings);
    let same =
        || folder.experiment().is_ok_and(|saved| asked.is_ok_and(|asked| asked.in_precision_of(&saved) == saved));
    let had_finished = last().is_some_and(|state| state.finished) && same();
    let mut row = SweepRow {
        run: run.clone(),
        settings: varied,
        status: if had_finished { "skipped" } else { "finished" },
        problem: None,
        sparsity: None,
        lambda: None,
        eer: None,
        eer_out_of_domain: None,
        seconds: None,
    };
    let device = args.place.device.to_string();
    let mut work = || -> Result<(), String> {
        if !had_finished {
            let mut train = program(args)?;
            train.arg("train").args(&args.recipe).args(["--resume", "--json", "--device", &device, "--out"]).arg(&run);
            train.args(settings.iter().flat_map(|setting| ["--set", setting]));
            finish(train, &log_of(&run), children)?;
        }
        let chosen = folder.chosen().and_then(|checkpoint| checkpoint.state().ok());
        row.sparsity = chosen.as_ref().map(|state| state.sparsity);
        row.lambda = chosen.as_ref().and_then(RunState::mean_lambda);
        row.seconds = last().map(|state| state.seconds);
        let evaluate = |test: TestLists<'_>, domain: &str| -> Result<Option<f64>, String> {
            let Some(trials) = test.trials else { return Ok(None) };
            let mut evaluate = program(args)?;
            evaluate.arg("evaluate").arg(&run).args(["--json", "--device", &device, "--domain", domain]);
            evaluate.arg("--trials").arg(trials);
            for root in test.roots {
                evaluate.arg("--root").arg(root);
            }
            if let Some(map) = test.enroll {
                evaluate.arg("--enroll").arg(map);
            }
            args.cohort.pass_to(&mut evaluate);
            Ok(finish(evaluate, &log_of(&run), children)?["eer"].as_f64())
        };
        let other = TestLists { trials: &args.other_trials, roots: &args.other_roots, enroll: &args.other_enroll };
        row.eer_out_of_domain = evaluate(other, "out")?;
        // Last, so that the run keeps the threshold of its own domain.
        row.eer = evaluate(TestLists { trials: &args.trials, roots: &args.roots, enroll: &args.enroll }, "in")?;
        Ok(())
    };
    if let Err(problem) = work() {
        (row.status, row.problem) = ("failed", Some(problem));
    }
    row
}

/// This program, with its share of the cores.
fn program(args: &Args) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    if args.jobs > 1 && std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RAYON_NUM_THREADS", (cores / args.jobs).max(1).to_string());
    }
    Ok(command)
}

/// Runs a command to its end; its messages go to `log`, its JSON comes back.
fn finish(mut command: Command, log: &Path, children: &Children) -> Result<Value, String> {
    let file = append_to(log).map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    let child = command.spawn().map_err(|error| error.to_string())?;
    let number = child.id();
    children.lock().expect("no thread panics while it holds the numbers").push(number);
    let output = child.wait_with_output().map_err(|error| error.to_string());
    children.lock().expect("no thread panics while it holds the numbers").retain(|&child| child != number);
    let output = output?;
    if output.status.code() == Some(i32::from(Exit::Interrupted as u8)) {
        return Err("interrupted".to_owned());
    }
    if !output.status.success() {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let error = text.lines().rev().find_map(|line| line.strip_prefix("error: ")).map(str::to_owned);
        return Err(error.unwrap_or_else(|| format!("{}; see {}", output.status, log.display())));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("its output is not JSON: {error}"))
}

fn text(rows: &[SweepRow], settings: &[String]) -> String {
    let percent = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.2}", 100.0 * share));
    let line = |row: &SweepRow| {
        vec![
            if row.settings.is_empty() { settings.join(" ") } else { row.settings.join(" ") },
            row.status.to_owned(),
            percent(row.sparsity),
            row.lambda.map_or_else(|| "–".to_owned(), |lambda| format!("{lambda:.4}")),
            percent(row.eer),
            percent(row.eer_out_of_domain),
            row.seconds.map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.0}")),
        ]
    };
    let header = ["settings", "status", "sparsity %", "λ", "EER %", "EER % out of domain", "seconds"];
    let mut text = table(&header, &rows.iter().map(line).collect::<Vec<_>>());
    for row in rows {
        if let Some(problem) = &row.problem {
            text +=
                &format!("\nfailed: {}: {problem}\n        log: {}\n", row.run.display(), log_of(&row.run).display());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_occurs_once_and_lists_stay_whole() {
        let settings = ["seed=1,2".to_owned(), "a.b=[1,2],\"x,y\"".to_owned(), "c=3".to_owned()];
        let all = combinations(&settings).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[1], ["seed=1", "a.b=\"x,y\"", "c=3"]);
        assert_eq!(all[2], ["seed=2", "a.b=[1,2]", "c=3"]);
        assert_eq!(combinations(&[]).unwrap(), [Vec::<String>::new()]);
        assert!(combinations(&["seed".to_owned()]).is_err());
    }

    #[test]
    fn folders_are_named_by_what_varies() {
        assert_eq!(
            folder_name(&["method.target=0.9".to_owned(), "data.root=/a b".to_owned()]),
            "method.target=0.9,data.root=_a_b"
        );
        assert_eq!(folder_name(&[]), "run");
    }
}
