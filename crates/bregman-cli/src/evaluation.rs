//! What a network scored on a test set: printed, and of a run also kept in its folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use bregman_speaker::score::{EvaluationReport, Rates};
use bregman_speaker::{Degradation, Enrollments, ListedAudio, Trials};
use bregman_train::{EvaluationRecord, TestDomain, ThresholdRecord};
use serde::Serialize;

use crate::failure::Failure;
use crate::network::{NetworkSource, SpeakerModel};
use crate::output::note;

/// A test set.
pub(crate) struct TestSet {
    /// Its name in tables and charts.
    pub(crate) name: String,
    /// Whether it is of the training corpus, where that is known.
    pub(crate) domain: Option<TestDomain>,
}

impl TestSet {
    /// The trial list `list` of files under `roots`. Without a name it is called after the first root, the list and the
    /// conditions; without a domain, it is that of the training corpus if a root is that corpus or lies in it.
    pub(crate) fn new(
        network: &SpeakerModel,
        list: &Path,
        roots: &[PathBuf],
        heard: Degradation,
        name: Option<String>,
        domain: Option<TestDomain>,
    ) -> Self {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let word = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
        let named = || {
            let root = roots.first().map(|root| whole(root)).unwrap_or_default();
            format!("{} {} {heard}", word(root.file_stem()), word(list.file_stem())).trim().to_owned()
        };
        let within = |corpus: &Path| roots.iter().any(|root| whole(root).starts_with(whole(corpus)));
        let seen = match &network.source {
            NetworkSource::Checkpoint(trained) if within(&trained.corpus) => Some(TestDomain::In),
            NetworkSource::Checkpoint(_) => Some(TestDomain::Out),
            NetworkSource::File(_) => None,
        };
        Self { name: name.unwrap_or_else(named), domain: domain.or(seen) }
    }
}

/// The audio that the lists name under `roots`; says where its files have another extension than the names.
pub(crate) fn find_audio(
    roots: &[PathBuf],
    trials: &Trials,
    enrollments: Option<&Enrollments>,
) -> Result<ListedAudio, Failure> {
    if let Some(root) = roots.iter().find(|root| !root.exists()) {
        return Err(Failure::mistake(
            format!("{}: no such folder or manifest", root.display()),
            "--root is a folder that the names of the lists count from, or a manifest of their utterances",
        ));
    }
    let audio = ListedAudio::find(roots, trials, enrollments)?;
    for ([listed, stored], names) in audio.renamed() {
        note(
            "another extension",
            &format!("{names} names end in .{listed}, their files in .{stored}; the files are read"),
        );
    }
    Ok(audio)
}

/// What a network scored on a test set.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Evaluated {
    Checkpoint(EvaluationRecord),
    File(FileEvaluation),
}

/// What a model file scored on a test set.
#[derive(Debug, Serialize)]
pub(crate) struct FileEvaluation {
    test: String,
    domain: Option<TestDomain>,
    model: PathBuf,
    zeros_in_file: f64,
    #[serde(flatten)]
    report: EvaluationReport,
}

impl Evaluated {
    pub(crate) fn new(network: &SpeakerModel, test: TestSet, report: EvaluationReport) -> Self {
        match &network.source {
            NetworkSource::Checkpoint(trained) => Self::Checkpoint(EvaluationRecord {
                test: test.name,
                domain: test.domain.unwrap_or(TestDomain::Out),
                checkpoint: trained.checkpoint.path().to_owned(),
                step: trained.step,
                sparsity: trained.sparsity,
                report,
            }),
            NetworkSource::File(file) => Self::File(FileEvaluation {
                test: test.name,
                domain: test.domain,
                model: file.path.clone(),
                zeros_in_file: file.zeros_in_file(),
                report,
            }),
        }
    }

    /// The error rates.
    pub(crate) fn report(&self) -> &EvaluationReport {
        match self {
            Self::Checkpoint(record) => &record.report,
            Self::File(file) => &file.report,
        }
    }

    /// The network in a few words.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Checkpoint(record) => {
                format!("{}, {:.2} % sparse", record.checkpoint.display(), 100.0 * record.sparsity)
            }
            Self::File(file) => {
                format!("{}, {:.2} % zeros in the file", file.model.display(), 100.0 * file.zeros_in_file)
            }
        }
    }

    /// Keeps the evaluation of a run in its folder, and the threshold if it was found on `cosines_of`.
    pub(crate) fn keep(&self, network: &SpeakerModel, cosines_of: Option<&Path>) {
        let (Self::Checkpoint(record), NetworkSource::Checkpoint(trained)) = (self, &network.source) else { return };
        if let Err(error) = record.save(&trained.run()) {
            note("the evaluation is not kept", &error);
        }
        let Some(trials) = cosines_of else { return };
        let Rates { threshold, eer, .. } = *record.report.cosine.as_ref().unwrap_or(&record.report.rates);
        let threshold = ThresholdRecord { cosine: threshold, eer, trials: trials.to_owned(), network: network.name() };
        if let Err(error) = threshold.save(&trained.run()) {
            note("the threshold is not kept", &error);
        }
    }
}
