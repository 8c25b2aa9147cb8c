//! The program under `strace`, which can kill it or fail its calls at any of its system calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::{errors, text};
use crate::run::Place;

/// Calls that change what is on disk, or prepare it.
pub(crate) const CALLS: [&str; 11] = [
    "openat",
    "write",
    "rename",
    "fsync",
    "fdatasync",
    "ftruncate",
    "mkdir",
    "unlink",
    "unlinkat",
    "linkat",
    "copy_file_range",
];

/// Whether `strace` can be used here.
pub(crate) fn is_here() -> bool {
    let tried = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        bregman_skip::skip("strace", "strace is not installed, or may not trace");
    }
    works
}

/// What happens to the program at a call that some thread makes for the so-manieth time.
#[derive(Debug)]
pub(crate) enum Injection<'a> {
    /// Calls are only written down.
    Nothing,
    /// The call fails with this error, and with `true` so do all that follow.
    Error(&'a str, &'a str, usize, bool),
    /// The program is killed.
    Kill(&'a str, usize),
}

/// The program under strace, its calls written to [`log`].
pub(crate) fn traced(place: &Place, injection: &Injection, args: &[&str]) -> Output {
    let inject = match injection {
        Injection::Nothing => None,
        Injection::Error(call, error, number, lasting) => {
            let others = if *lasting { "+" } else { "" };
            Some(format!("inject={call}:error={error}:when={number}{others}"))
        }
        Injection::Kill(call, number) => Some(format!("inject={call}:signal=SIGKILL:when={number}")),
    };
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={}", CALLS.join(",")), "-o", text(&log(place))]);
    if !matches!(injection, Injection::Kill(..)) {
        // stopped at these calls only, it runs at almost its full speed; but then signals are not delivered
        command.arg("--seccomp-bpf");
    }
    command.args(inject.iter().flat_map(|inject| ["-e", inject]));
    command.arg(env!("CARGO_BIN_EXE_bregman")).args(args).env("RAYON_NUM_THREADS", place.threads.to_string());
    command.output().unwrap()
}

fn log(place: &Place) -> PathBuf {
    place.dir.path().join("trace")
}

/// The calls that an undisturbed run of the program makes, each numbered from 1 in its thread. A number under which
/// some thread opens a file for reading is left out: audio that cannot be read changes what a command writes.
pub(crate) fn calls(place: &Place, args: &[&str]) -> BTreeMap<&'static str, BTreeSet<usize>> {
    let output = traced(place, &Injection::Nothing, args);
    assert!(output.status.success(), "{args:?}: {}", errors(&output));
    let (mut made, mut found, mut reads) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for line in std::fs::read_to_string(log(place)).unwrap().lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some(call) = CALLS.into_iter().find(|call| rest.trim_start().starts_with(&format!("{call}("))) else {
            continue;
        };
        let number: &mut usize = made.entry((call, thread.to_owned())).or_default();
        *number += 1;
        let writes = ["O_CREAT", "O_WRONLY", "O_RDWR"].iter().any(|flag| rest.contains(flag));
        if call == "openat" && !writes {
            reads.insert(*number);
        }
        found.entry(call).or_insert_with(BTreeSet::new).insert(*number);
    }
    if let Some(opened) = found.get_mut("openat") {
        opened.retain(|number| !reads.contains(number));
    }
    found
}
