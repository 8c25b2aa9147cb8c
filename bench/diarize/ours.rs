//! Diarization error rates and real-time factors on conversations made from a corpus (see README.md).

use std::path::Path;
use std::time::Instant;

use bregman_bench::table;
use bregman_runtime::Model;
use bregman_speaker::diarize::{DiarizationErrors, DiarizeConfig, Mixture, MixtureConfig, diarize, speakers_of};
use bregman_speaker::open_corpus;
use bregman_speaker::score::Embedder;

/// Conversations have one to so many speakers.
const MOST_SPEAKERS: u64 = 6;

struct Network<'a>(&'a Model);

impl Embedder for Network<'_> {
    fn embed(&mut self, samples: &mut [f32]) -> Result<Vec<f32>, String> {
        self.0.embed(samples).map_err(|error| error.to_string())
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let usage = "bench/run diarize MANIFEST.csv CONVERSATIONS MODEL.breg…";
    let (Some(manifest), Some(Ok(count))) = (args.next(), args.next().map(|count| count.parse::<u64>())) else {
        eprintln!("usage: {usage}");
        std::process::exit(2)
    };
    let source = open_corpus(Path::new(&manifest), None).expect("a manifest");
    let conversation = |seed: u64| {
        let speakers = 1 + (seed % MOST_SPEAKERS) as usize;
        let config = MixtureConfig { speakers, ..MixtureConfig::default() };
        Mixture::draw(&*source, &config, seed).expect("a corpus of enough speakers")
    };
    let conversations: Vec<Mixture> = (0..count).map(conversation).collect();
    let rows: Vec<Vec<String>> =
        args.flat_map(|path| [true, false].map(|given| row(&path, &conversations, given))).collect();
    let total: f64 = conversations.iter().map(Mixture::seconds).sum();
    println!("{count} conversations of 1 to {MOST_SPEAKERS} speakers, {:.0} minutes\n", total / 60.0);
    let header =
        ["network, speakers", "DER", "missed", "false alarm", "confusion", "DER, collar", "count right", "RTF"];
    table(&header, &rows);
}

/// One network on all conversations, with the number of speakers given or found.
fn row(path: &str, conversations: &[Mixture], given: bool) -> Vec<String> {
    let model = Model::open(path).expect("a model file");
    let (mut exact, mut forgiving) = (Vec::new(), Vec::new());
    let (mut right, mut took, mut seconds) = (0, 0.0, 0.0);
    for Mixture { samples, truth } in conversations {
        let speakers = speakers_of(truth).len();
        let config = DiarizeConfig { speakers: given.then_some(speakers), ..DiarizeConfig::default() };
        let start = Instant::now();
        let found = diarize(samples, &config, || Ok(Network(&model)), &()).expect("a conversation");
        took += start.elapsed().as_secs_f64();
        seconds += samples.len() as f64 / 16e3;
        right += usize::from(speakers_of(&found.turns).len() == speakers);
        exact.push(DiarizationErrors::between(truth, &found.turns, 0.0));
        forgiving.push(DiarizationErrors::between(truth, &found.turns, 0.25));
    }
    let [exact, forgiving] = [exact, forgiving].map(|errors| errors.into_iter().sum::<DiarizationErrors>());
    let percent = |part: f64| format!("{:.1}", 100.0 * part);
    let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    vec![
        format!("{name}, {}", if given { "given" } else { "found" }),
        percent(exact.rate()),
        percent(exact.missed / exact.speech),
        percent(exact.false_alarm / exact.speech),
        percent(exact.confusion / exact.speech),
        percent(forgiving.rate()),
        format!("{right}/{}", conversations.len()),
        format!("{:.4}", took / seconds),
    ]
}
