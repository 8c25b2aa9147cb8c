//! Any bytes as a tar shard, alone and with an index before it: an error or audio, never a panic or a read elsewhere.
#![no_main]

use bregman_fuzz::{files, folder, put};
use bregman_speaker::{AudioSource, ShardCorpus};
use libfuzzer_sys::fuzz_target;

fn read() {
    if let Ok(corpus) = ShardCorpus::open(folder()) {
        for utterance in 0..corpus.manifest().utterances.len().min(4) {
            let (mut samples, whole) = (Vec::new(), corpus.whole(utterance));
            let part = corpus.append(utterance, 100..200, &mut samples);
            assert!(whole.is_err() || part.is_err() || samples.len() <= 100);
        }
    }
}

fuzz_target!(init: bregman_fuzz::codecs_may_panic(), |data: &[u8]| {
    let [index, shard] = files(data);
    put("00000.tar", shard);
    let index = put("index.csv", index);
    read();
    std::fs::remove_file(index).expect("it was written");
    read();
});
