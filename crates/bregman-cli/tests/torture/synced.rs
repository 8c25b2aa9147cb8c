//! What a loss of power may take: nothing that a list declares complete.

use std::process::Command;

use crate::common::text;
use crate::trace::is_here;

#[test]
fn audio_is_on_disk_before_the_list_that_declares_it_complete() {
    if !is_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (voices, log) = (dir.path().join("voices"), dir.path().join("log"));
    let size = ["--speakers", "3", "--utterances", "2", "--held-out", "1", "--seconds", "0.2", "0.3"];
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-e", "trace=fsync,rename", "-o", text(&log)]);
    command.arg(env!("CARGO_BIN_EXE_bregman")).args(["synth", "--out", text(&voices)]).args(size);
    assert!(command.status().unwrap().success());
    let log = std::fs::read_to_string(log).unwrap();
    let (before, _) = log.split_once("/train.csv\") = 0").expect("it is renamed to its name");
    for speaker in ["s00000", "s00001", "s00002"].map(|name| voices.join(name)) {
        let files = std::fs::read_dir(&speaker).unwrap().map(|entry| entry.unwrap().path());
        for path in files.chain([speaker.clone()]) {
            assert!(before.contains(&format!("<{}>", path.display())), "{} is not synced", path.display());
        }
    }
}
