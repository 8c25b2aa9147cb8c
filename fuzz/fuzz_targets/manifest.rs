//! Any bytes as a manifest, and as the two lists of a Kaldi folder: an error or utterances, which survive being written
//! and read again.
#![no_main]

use std::path::Path;

use bregman_fuzz::{files, folder, put};
use bregman_speaker::{Corpus, CorpusPart, Manifest, NameIndex, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(manifest) = Manifest::parse(data, Path::new("fuzz.csv"), folder()) {
        let index = NameIndex::new(&manifest);
        assert!(manifest.utterances.iter().all(|utterance| index.get(&utterance.id).is_some()));
        assert!(manifest.speakers().len() <= manifest.utterances.len());
        let _ = split(&manifest, 0.5, 1);
    }
    let [scp, speakers] = files(data);
    put("wav.scp", scp);
    put("utt2spk", speakers);
    let _ = Corpus::Kaldi.find(folder(), CorpusPart::All);
});
