//! The program under `strace`, which can kill it or fail its calls at any of its system calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{errors, text};

/// Calls that change what is on disk, or prepare it.
pub(crate) const CALLS: [&str; 10] =
    ["openat", "write", "rename", "fsync", "fdatasync", "ftruncate", "mkdir", "unlink", "linkat", "copy_file_range"];

/// Whether `strace` can be used here.
pub(crate) fn is_here() -> bool {
    let tried = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        bregman_skip::skip("strace", "strace is not installed, or may not trace");
    }
    works
}

/// The program under strace with these options, its calls written to `log`. Strace counts calls by thread.
pub(crate) fn traced(options: &[&str], log: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", text(log)]).args(options);
    command.arg(env!("CARGO_BIN_EXE_bregman")).args(args).env("RAYON_NUM_THREADS", "2").output().unwrap()
}

/// How often the busiest thread makes each call in an undisturbed run of the program.
pub(crate) fn calls(log: &Path, args: &[&str]) -> BTreeMap<&'static str, usize> {
    let output = traced(&["-e", &format!("trace={}", CALLS.join(","))], log, args);
    assert!(output.status.code().is_some_and(|code| [0, 3].contains(&code)), "{args:?}: {}", errors(&output));
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let text = std::fs::read_to_string(log).unwrap();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let made = CALLS.into_iter().find(|call| rest.trim_start().starts_with(&format!("{call}(")));
        if let Some(call) = made {
            *counts.entry((call, thread)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((call, _), count) in counts {
        let entry: &mut usize = most.entry(call).or_default();
        *entry = count.max(*entry);
    }
    most
}
