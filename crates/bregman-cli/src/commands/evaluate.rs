//! `bregman evaluate`: the error rates of a trained network on a trial list.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bregman_speaker::score::{Bootstrap, CohortSource, Evaluation, Rates, write_scores};
use bregman_speaker::{AudioSource, Enrollments, FileCorpus, Manifest, ShardCorpus, Trials, open_corpus};

use bregman_train::TestDomain;
use clap::ValueEnum;

use super::options::WorkArgs;
use crate::Outcome;
use crate::device::DeviceArg;
use crate::evaluation::{Evaluated, TestSet};
use crate::failure::Failure;
use crate::network::SpeakerModel;
use crate::output::{Bar, print, print_json, refuse_existing, table, unreadable};

const TOP_N: usize = 600;

/// Measure a trained network on a trial list.
///
/// Each utterance is embedded once, and known again by its content in later evaluations. Cosine scores, optionally
/// AS-norm with a cohort of other speakers; EER, minDCF at 0.01 and 0.05, and 95 % confidence intervals by resampling
/// speakers. Trials with equal scores are accepted or rejected together, so the result does not depend on the order of
/// the list. Embeddings are computed in f32 on every device, whatever the network was trained in; those of a GPU differ
/// from those of the CPU by rounding, less than 1e-4. The result of a run is kept in
/// RUN/evaluations for `bregman report`, its threshold in the run for `bregman verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Trial lists:  '1 enroll test' (VoxCeleb), 'enroll test 1' or 'enroll test target' (CN-Celeb, Kaldi)
Enroll maps:  'model path1 path2 …', models are means weighted by duration

Examples:
  bregman evaluate runs/first --trials voices/trials.txt --root voices
  bregman evaluate model.breg --trials voices/trials.txt --root voices
  bregman evaluate runs/first --trials voices/trials_multi.txt --enroll voices/enroll.map --root voices
  bregman evaluate runs/first --trials voices/trials.txt --root voices --cohort voices/train.csv --as-norm 600 \
--scores scores.txt --json")]
pub(crate) struct Args {
    /// Run (its best checkpoint, or else its last), checkpoint, or model file (.breg)
    model: PathBuf,
    /// Trial list
    #[arg(long, value_name = "FILE")]
    trials: PathBuf,
    /// Folder that the names of the lists count from, or folder of shards with these utterances
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Enrollment map, for models of several utterances
    #[arg(long, value_name = "FILE")]
    enroll: Option<PathBuf>,
    /// Manifest or shards of other speakers, such as the training set
    #[arg(long, value_name = "MANIFEST")]
    cohort: Option<PathBuf>,
    /// Use at most so many utterances of each cohort speaker [default: all]
    #[arg(long, value_name = "N", requires = "cohort")]
    cohort_utterances: Option<usize>,
    /// Normalise with the best N cohort scores [default with --cohort: 600]
    #[arg(long, value_name = "N")]
    as_norm: Option<usize>,
    /// Subtract the mean of the cohort from all embeddings
    #[arg(long)]
    center: bool,
    /// Use at most the middle so many seconds of an utterance
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    /// Replicates of the confidence intervals; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1000)]
    bootstrap: usize,
    /// Write the score of every trial
    #[arg(long, value_name = "FILE")]
    scores: Option<PathBuf>,
    /// Replace an existing score file
    #[arg(long)]
    force: bool,
    /// Stop at unreadable audio; otherwise its trials are left out
    #[arg(long)]
    strict: bool,
    /// Name of the test set in reports [default: of the folder and of the list]
    #[arg(long)]
    name: Option<String>,
    /// Whether the network was trained on this corpus [default: in if --root is the run's data.root]
    #[arg(long, value_enum)]
    domain: Option<Domain>,
    #[command(flatten)]
    place: DeviceArg,
    #[command(flatten)]
    work: WorkArgs,
}

/// Values of --domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Domain {
    /// Trained on this corpus
    In,
    /// Trained on another
    Out,
}

impl From<Domain> for TestDomain {
    fn from(domain: Domain) -> Self {
        match domain {
            Domain::In => Self::In,
            Domain::Out => Self::Out,
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    args.work.use_threads()?;
    if let Some(path) = &args.scores {
        refuse_existing(path, args.force)?;
    }
    let cohort = open_cohort(&args)?;
    let network = SpeakerModel::open(&args.model, args.max_seconds, args.place)?;
    let mut trials = Trials::read(&args.trials)?;
    let enrollments = args.enroll.as_deref().map(Enrollments::read).transpose()?;
    let source = open_root(&args.root, &trials, enrollments.as_ref())?;
    let resolved = trials.resolve(source.manifest(), enrollments.as_ref())?;

    let evaluation = Evaluation {
        source: &*source,
        trials: &resolved,
        cohort: cohort.as_deref().map(|source| CohortSource {
            source,
            per_speaker: args.cohort_utterances.unwrap_or(usize::MAX),
            center: args.center,
            as_norm: args.as_norm.or((!args.center).then_some(TOP_N)),
        }),
        max_seconds: args.max_seconds,
        bootstrap: Bootstrap { replicates: args.bootstrap, seed: 1 },
        strict: args.strict,
    };
    let bar = Bar::new("embedding");
    let scored = evaluation.run(|| network.load(), &network.store(), &bar)?;
    drop(bar);

    if let Some(path) = &args.scores {
        trials.trials = scored.kept.iter().map(|&at| trials.trials[at]).collect();
        write_scores(path, &trials, &scored.scores, args.force)?;
    }
    let test = TestSet::new(&network, &args.trials, &args.root, args.name, args.domain.map(Into::into));
    let evaluated = Evaluated::new(&network, test, scored.report);
    evaluated.keep(&network, (!args.center).then_some(&*args.trials));
    if args.work.json { print_json(&evaluated) } else { print(&text(&evaluated)) }
}

fn open_cohort(args: &Args) -> Result<Option<Arc<dyn AudioSource>>, Failure> {
    let needs = if args.as_norm.is_some() { Some("--as-norm") } else { args.center.then_some("--center") };
    match (&args.cohort, needs) {
        (None, Some(option)) => {
            let hint = "pass --cohort with the manifest of other speakers, for example the training set";
            Err(Failure::mistake(format!("{option} needs a cohort"), hint))
        }
        (None, None) => Ok(None),
        (Some(_), _) if args.cohort_utterances == Some(0) => {
            Err(Failure::mistake("--cohort-utterances 0", "pass 1 or more"))
        }
        (Some(path), _) => Ok(Some(open_corpus(path, None)?)),
    }
}

/// The utterances that the lists name: files under `root`, or shards in it.
fn open_root(root: &Path, trials: &Trials, enrollments: Option<&Enrollments>) -> Result<Arc<dyn AudioSource>, Failure> {
    if !root.is_dir() {
        return Err(Failure::mistake(
            format!("{}: no such folder", root.display()),
            "--root is the folder that the names of the lists count from",
        ));
    }
    if ShardCorpus::is_at(root) {
        return Ok(open_corpus(root, None)?);
    }
    let enrolled: Vec<String> = trials.names.iter().map(|name| format!("enroll/{name}")).collect(); // CN-Celeb's models
    let mapped = enrollments.into_iter().flat_map(|map| map.models.iter().flat_map(|(_, names)| names));
    let names = trials.names.iter().chain(mapped).chain(&enrolled).map(String::as_str);
    Ok(Arc::new(FileCorpus(Manifest::of_files(root, names))))
}

fn text(evaluated: &Evaluated) -> String {
    let report = evaluated.report();
    let mut text = format!(
        "{}\n{} trials ({} target) of {} speakers, {} utterances ({} embedded now)\n\n",
        evaluated.title(),
        report.trials,
        report.targets,
        report.speakers,
        report.utterances,
        report.computed
    );
    let row = |name: String, rates: &Rates| {
        let range = |scale: f64, digits: usize, interval: Option<[f64; 2]>| {
            interval.map_or_else(
                || "–".to_owned(),
                |[low, high]| format!("{:.digits$} – {:.digits$}", scale * low, scale * high),
            )
        };
        let intervals = rates.intervals.as_ref();
        vec![
            name,
            format!("{:.2}", 100.0 * rates.eer),
            range(100.0, 2, intervals.map(|all| all.eer)),
            format!("{:.3}", rates.min_dcf),
            range(1.0, 3, intervals.map(|all| all.min_dcf[0])),
            format!("{:.3}", rates.min_dcf_p05),
            range(1.0, 3, intervals.map(|all| all.min_dcf[1])),
            format!("{:.4}", rates.threshold),
        ]
    };
    let decisive = match (report.top_n, report.cohort_speakers) {
        (Some(top), Some(all)) => format!("AS-norm (top {top} of {all})"),
        (None, Some(_)) => "cosine, centred".to_owned(),
        _ => "cosine".to_owned(),
    };
    let rows = report.cosine.iter().map(|rates| row("cosine".to_owned(), rates)).chain([row(decisive, &report.rates)]);
    text += &table(
        &["", "EER %", "95 %", "minDCF .01", "95 %", "minDCF .05", "95 %", "threshold"],
        &rows.collect::<Vec<_>>(),
    );
    if report.left_out > 0 {
        text += &format!("\n{} trials were left out: their audio could not be read\n", report.left_out);
    }
    text + &unreadable(&report.unreadable)
}
