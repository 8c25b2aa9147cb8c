//! `bregman evaluate`: the error rates of a trained network on a trial list.

use std::path::PathBuf;

use bregman_speaker::score::{Bootstrap, Evaluation, Rates, write_scores};
use bregman_speaker::{AudioSource as _, Degradation, DegradedAudio, Enrollments, Trials};
use bregman_train::TestDomain;
use clap::ValueEnum;

use super::cohort::CohortArgs;
use super::options::WorkArgs;
use crate::Outcome;
use crate::device::DeviceArg;
use crate::evaluation::{Evaluated, TestSet, find_audio};
use crate::network::SpeakerModel;
use crate::output::{Bar, print, print_json, refuse_existing, table, unreadable};
use crate::ranks;

/// Measure a trained network on a trial list.
///
/// Each utterance is embedded once, and known again by its content in later evaluations. Cosine scores, optionally
/// AS-norm with a cohort of other speakers; EER, minDCF at 0.01 and 0.05, and 95 % confidence intervals by resampling
/// speakers. Trials with equal scores are accepted or rejected together, so the result does not depend on the order of
/// the list. Embeddings are computed in f32 on every device, whatever the network was trained in; those of a GPU differ
/// from those of the CPU by rounding, less than 1e-4. With --noise and --room every utterance, enrolled or tested, is
/// heard in noise or in a room of its own, the same ones each time. The result of a run is kept in
/// RUN/evaluations for `bregman report`, its threshold in the run for `bregman verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Trial lists:  '1 enroll test' (VoxCeleb), 'enroll test 1' or 'enroll test target' (CN-Celeb, Kaldi)
Enroll maps:  'model path1 path2 …', models are means weighted by duration
Roots:        a folder that names count from, a folder of shards, or a manifest; names are looked for in one root
              after the other, by another audio extension if need be

Examples:
  bregman evaluate runs/first --trials voices/trials.txt --root voices
  bregman evaluate model.breg --trials voices/trials.txt --root voices
  bregman evaluate runs/first --trials voices/trials_multi.txt --enroll voices/enroll.map --root voices
  bregman evaluate runs/first --trials voices/trials.txt --root voices --max-seconds 2 --noise 5 --room 0.6
  bregman evaluate runs/vox --trials veri_test2.txt --root voxceleb1/test/wav
  bregman evaluate runs/vox --trials list_test_hard2.txt --root voxceleb1/test/wav --root voxceleb1/dev/wav
  bregman evaluate runs/cn --trials CN-Celeb_flac/eval/lists/trials.lst --enroll CN-Celeb_flac/eval/lists/enroll.map \
--root CN-Celeb_flac/eval --root CN-Celeb_flac/data
  bregman evaluate runs/first --trials voices/trials.txt --root voices --cohort voices/train.csv --as-norm 600 \
--scores scores.txt --json")]
pub(crate) struct Args {
    /// Run (its best checkpoint, or else its last), checkpoint, or model file (.breg)
    model: PathBuf,
    /// Trial list
    #[arg(long, value_name = "FILE")]
    trials: PathBuf,
    /// Where the names of the lists are: folder, shards or manifest (repeatable)
    #[arg(long = "root", value_name = "DIR", required = true)]
    roots: Vec<PathBuf>,
    /// Enrollment map, for models of several utterances
    #[arg(long, value_name = "FILE")]
    enroll: Option<PathBuf>,
    #[command(flatten)]
    cohort: CohortArgs,
    /// Use at most this many seconds from the middle of an utterance
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    max_seconds: f64,
    /// Test in pink noise at this signal-to-noise ratio in dB
    #[arg(long, value_name = "DB", allow_negative_numbers = true)]
    noise: Option<f32>,
    /// Test in a room with this reverberation time (60 dB)
    #[arg(long, value_name = "SECONDS")]
    room: Option<f32>,
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
    /// Whether the network was trained on this corpus [default: in if a root lies in the run's data.root]
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
    let ranks = ranks::join()?;
    args.work.use_threads()?;
    if let Some(path) = &args.scores {
        refuse_existing(path, args.force)?;
    }
    let cohort = args.cohort.open()?;
    let network = SpeakerModel::open(&args.model, args.max_seconds, args.place)?;
    let mut trials = Trials::read(&args.trials)?;
    let enrollments = args.enroll.as_deref().map(Enrollments::read).transpose()?;
    let heard = Degradation { snr_db: args.noise, room_seconds: args.room };
    let source = DegradedAudio::new(find_audio(&args.roots, &trials, enrollments.as_ref())?, heard)?;
    let resolved = trials.resolve(source.manifest(), enrollments.as_ref())?;

    let evaluation = Evaluation {
        source: &source,
        trials: &resolved,
        cohort: cohort.as_deref().map(|source| args.cohort.of(source)),
        max_seconds: args.max_seconds,
        bootstrap: Bootstrap { replicates: args.bootstrap, seed: 1 },
        strict: args.strict,
    };
    let bar = Bar::new("embedding");
    let scored = evaluation.run(|| network.load_for_corpus(), &network.store().shared(&ranks), &bar)?;
    drop(bar);
    if !ranks.leads() {
        return Ok(());
    }
    network.note_silence();

    if let Some(path) = &args.scores {
        trials.trials = scored.kept.iter().map(|&at| trials.trials[at]).collect();
        write_scores(path, &trials, &scored.scores, args.force)?;
    }
    let test = TestSet::new(&network, &args.trials, &args.roots, heard, args.name, args.domain.map(Into::into));
    let evaluated = Evaluated::new(&network, test, scored.report);
    let for_verification = !args.cohort.center && heard.is_none();
    evaluated.keep(&network, for_verification.then_some(&*args.trials));
    if args.work.json { print_json(&evaluated) } else { print(&text(&evaluated)) }
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
