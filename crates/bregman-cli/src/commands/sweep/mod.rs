//! `bregman sweep`: a recipe with every combination of some methods and settings.
//!
//! | file | what it has |
//! | --- | --- |
//! | `plan` | what is run and tested, from a file or from options |
//! | `combinations` | the single runs |
//! | `single` | one run: trained, evaluated, exported |
//! | `processes` | the programs that do it |
//! | `comparison` | methods side by side: the tables and the picture |
//! | `results` | every run as a line of a CSV file |

mod combinations;
mod comparison;
mod plan;
mod processes;
mod results;
mod single;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bregman_speaker::Progress;

use self::combinations::combinations;
use self::comparison::Comparison;
use self::plan::Plan;
use self::processes::{Children, Countdown, log_of, pass_on};
use self::single::{SweepRow, one};
use super::cohort::CohortArgs;
use super::options::MOST_JOBS;
use crate::device::DeviceArg;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Bar, print, print_json, table};
use crate::ranks;
use crate::signals::stop_on_signals;

/// Train and evaluate a recipe with every combination of some methods and settings.
///
/// --methods compares methods, `all` of them or some by name: one table and one picture (comparison.svg in --out) of
/// errors against sparsity and against training time. --set KEY=A,B,C tries each value; several --set give all
/// combinations. --plan FILE says all of this in a file, for several networks and any number of trial lists, clean,
/// short or noisy. With --baseline, differences to that method are on the same trials, with intervals over speakers and
/// seeds. Each runs as `bregman train` in its own folder under --out, with a log beside it; results.csv has a line of
/// each. Runs that have finished are skipped, interrupted ones continue, failed ones are reported: give the same
/// command again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bregman sweep mine.toml networks/ecapa --methods all --targets 0.95 --set seed=1,2,3 \\
      --trials mine/trials.txt --root mine --out sweeps/methods
  bregman sweep --plan plan.toml --device cuda --jobs 4 --out sweeps/table
  bregman sweep audiomnist/ecapa-adabreg --set data.root=audiomnist --set method.target=0.75,0.9,0.95,0.99 \\
      --set seed=1,2,3 --trials audiomnist/trials.txt --root audiomnist \\
      --other-trials fsdd/trials.txt --other-root fsdd --out sweeps/adabreg
  bregman sweep cnceleb/ecapa-adabreg --set method.target=0.9,0.95 --out sweeps/cn \\
      --trials CN-Celeb_flac/eval/lists/trials.lst --enroll CN-Celeb_flac/eval/lists/enroll.map \\
      --root CN-Celeb_flac/eval --root CN-Celeb_flac/data --cohort train.csv --cohort-utterances 20

A plan:
  recipe = [\"mine.toml\"]           # of all runs
  seeds = [1, 2, 3]
  baseline = \"dense-sgd\"
  [[runs]]                           # any number of them; also name, set
  recipe = [\"networks/ecapa\"]
  methods = [\"dense-sgd\", \"adabreg\", \"rigl\"]
  targets = [0.9, 0.95]
  [[tests]]                          # any number of them; also name, enroll
  trials = \"mine/trials.txt\"
  roots = [\"mine\"]
  domain = \"in\"                    # or \"out\"
  max_seconds = 2.0                  # noise and room as of bregman evaluate")]
pub(crate) struct Args {
    /// Recipe of the experiments, by name or as files
    #[arg(required_unless_present = "plan")]
    recipe: Vec<PathBuf>,
    /// Runs and tests from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["recipe", "settings", "methods", "trials", "other_trials"])]
    plan: Option<PathBuf>,
    /// Key and its values (repeatable); a list in brackets is one value
    #[arg(long = "set", value_name = "KEY=A,B,…")]
    settings: Vec<String>,
    /// Methods to compare: recipes of `bregman recipes` such as rigl, files, or all; the recipe then needs none
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    methods: Vec<String>,
    /// Sparsities to ask for, of the methods that have one
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', requires = "methods")]
    targets: Vec<f64>,
    /// The method that the others are compared with
    #[arg(long, value_name = "NAME", requires = "methods")]
    baseline: Option<String>,
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

pub(crate) fn run(mut args: Args) -> Result<Exit, Failure> {
    let ranks = ranks::join()?;
    if !(1..=MOST_JOBS).contains(&args.jobs) {
        return Err(Failure::mistake(format!("--jobs {}", args.jobs), format!("pass 1 to {MOST_JOBS}")));
    }
    args.cohort.check()?;
    let plan = Plan::of(&args)?;
    let combinations = combinations(&plan)?;
    // a device that is not there shows before the first run, as a mistake in the settings does
    args.place = args.place.of_this_rank()?;
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::failed(format!("{}: {error}", args.out.display())))?;
    let bar = Bar::new("runs");
    bar.begin(combinations.len());
    let stop = stop_on_signals("stopping the runs with a checkpoint")?;
    let children = Children::default();
    let rows = Mutex::new(vec![None; combinations.len()]);
    let run_all = |numbers: &[usize]| {
        let (next, workers) = (AtomicUsize::new(0), AtomicUsize::new(args.jobs.min(numbers.len())));
        std::thread::scope(|scope| {
            scope.spawn(|| pass_on(&stop, &workers, &children));
            for _ in 0..args.jobs.min(numbers.len()) {
                scope.spawn(|| {
                    let _ended = Countdown(&workers);
                    while let Some(&at) = numbers.get(next.fetch_add(1, Ordering::Relaxed))
                        && !stop.load(Ordering::Relaxed)
                    {
                        let row = one(&args, &plan, &combinations[at], &children);
                        rows.lock().expect("no thread panics while it holds the rows")[at] = Some(row);
                        bar.step();
                    }
                });
            }
        });
    };
    // every rank trains every so many-th; the leading one then reads what the others have trained
    let (own, others): (Vec<usize>, Vec<usize>) =
        (0..combinations.len()).partition(|number| number % ranks.size() == ranks.rank());
    run_all(&own);
    ranks.meet().map_err(bregman_train::Error::from)?;
    if !ranks.leads() {
        return Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Done });
    }
    run_all(&others);
    drop(bar);
    let rows: Vec<SweepRow> = rows.into_inner().expect("all threads have ended").into_iter().flatten().collect();
    let next = format!("\nlook at them: bregman report {} -o report.html\n", args.out.display());
    results::write(&rows, &args.out.join("results.csv"))?;
    match (plan.compares(), args.json) {
        (false, true) => print_json(&rows)?,
        (false, false) => print(&(text(&rows, &plan.set) + &failures(&rows) + &next))?,
        (true, true) => print_json(&Comparison::of(&rows, &plan, &args.out)?)?,
        (true, false) => print(&(Comparison::of(&rows, &plan, &args.out)?.text() + &failures(&rows) + &next))?,
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

fn text(rows: &[SweepRow], settings: &[String]) -> String {
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
    table(&header, &rows.iter().map(line).collect::<Vec<_>>())
}

/// What went wrong, run by run.
fn failures(rows: &[SweepRow]) -> String {
    let failure = |row: &SweepRow| {
        let (problem, run) = (row.problem.as_ref()?, &row.run);
        Some(format!("\nfailed: {}: {problem}\n        log: {}\n", run.display(), log_of(run).display()))
    };
    rows.iter().filter_map(failure).collect()
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.2}", 100.0 * share))
}
