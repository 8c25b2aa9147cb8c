//! Any bytes as a trial list, an enrollment map, a score file and a file of turns: an error, or lists that fit a
//! manifest or do not.
#![no_main]

use std::path::Path;

use bregman_fuzz::{files, put};
use bregman_speaker::diarize::{DiarizationErrors, Rttm};
use bregman_speaker::score::read_scores;
use bregman_speaker::{Enrollments, Manifest, Trials};
use libfuzzer_sys::fuzz_target;

const MANIFEST: &str = "path,speaker\na/1.wav,a\na/2.wav,a\nb/1.flac,b\n";

fuzz_target!(|data: &[u8]| {
    let manifest = Manifest::parse(MANIFEST.as_bytes(), Path::new("m.csv"), Path::new("/")).expect("a manifest");
    let [trials, map] = files(data);
    let map = Enrollments::parse(map, Path::new("enroll.map")).ok();
    if let Ok(trials) = Trials::parse(trials, Path::new("trials.txt"))
        && let Ok(resolved) = trials.resolve(&manifest, map.as_ref())
    {
        assert_eq!(resolved.trials.len(), trials.trials.len());
    }
    if let Ok(text) = str::from_utf8(data)
        && let Ok(rttm) = Rttm::parse(text, Path::new("turns.rttm"))
    {
        let again = Rttm::parse(&rttm.text(), Path::new("again.rttm")).expect("what was written");
        for (_, turns) in &again.recordings {
            assert!(DiarizationErrors::between(turns, turns, 0.0).rate() == 0.0);
        }
    }
    if let Ok((scores, labels)) = read_scores(&put("scores.txt", data)) {
        assert!(scores.len() == labels.len() && scores.iter().all(|score| score.is_finite()));
    }
});
