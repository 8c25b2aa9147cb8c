//! What a test does where this machine lacks what it needs: [`skip`] it, in the open.
//!
//! A skipped test passes, and test runners hide what a passing test prints. So each skip is also a line of the file
//! named by `BREGMAN_SKIPS`, which `tools/test` and `.ci/run` make and sum up in their last lines
//! (`tools/skip/summary`). `BREGMAN_REQUIRE=gpu,chromium` turns skips for want of these into failures. The things a
//! machine may lack are listed in `tools/skip/needs`; scripts call `tools/skip/skip`, which does the same.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Environment variable: the file that collects one line `need⇥test⇥why` per skip.
pub const SKIPS: &str = "BREGMAN_SKIPS";

/// Environment variable: the needs, separated by commas, whose absence is a failure.
pub const REQUIRE: &str = "BREGMAN_REQUIRE";

/// Records that the calling test is skipped because this machine lacks `need`; the test then returns.
///
/// # Panics
/// If `BREGMAN_REQUIRE` names `need`, if it names something that is not in `tools/skip/needs`, if `need` is not in
/// there, and if the record cannot be written.
pub fn skip(need: &str, why: impl Display) {
    let why = why.to_string().replace(['\n', '\t'], " ");
    record(need, &why, &std::env::var(REQUIRE).unwrap_or_default(), std::env::var_os(SKIPS));
}

/// Skips a test for want of a GPU: what `Cuda::open_or_skip` and its like are given.
///
/// # Panics
/// As [`skip`].
pub fn no_gpu(why: &impl Display) {
    skip("gpu", why);
}

/// The program of that variable, or else the first of `names` that says its version; `None`, and a recorded skip, where
/// none does.
///
/// # Panics
/// If the variable names what is not a program. And as [`skip`].
pub fn program_or_skip(need: &str, variable: &str, names: &[&str]) -> Option<PathBuf> {
    let says_version =
        |program: &PathBuf| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if let Some(named) = std::env::var_os(variable).map(PathBuf::from) {
        assert!(says_version(&named), "{variable} is {}, which does not run", named.display());
        return Some(named);
    }
    let program = names.iter().map(PathBuf::from).find(says_version);
    if program.is_none() {
        skip(need, format!("no {} (install it, or name it in {variable})", names[0]));
    }
    program
}

/// A browser for tests of pages: the one in `CHROMIUM`, or Chromium or Chrome on the `PATH`.
///
/// # Panics
/// As [`program_or_skip`].
pub fn chromium_or_skip() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    program_or_skip("chromium", "CHROMIUM", &names)
}

fn record(need: &str, why: &str, required: &str, file: Option<OsString>) {
    assert!(known(need), "`{need}` is not in tools/skip/needs");
    for required in required.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        assert!(known(required), "{REQUIRE} names `{required}`, which is not in tools/skip/needs");
        assert!(required != need, "{REQUIRE} names `{need}`, and it is missing: {why}");
    }
    println!("skipped: {why}");
    if let Some(path) = file {
        let line = format!("{need}\t{}\t{why}\n", test());
        // one write of a short line to a file opened for appending: processes do not interleave
        let written = OpenOptions::new().create(true).append(true).open(&path);
        written.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file named by BREGMAN_SKIPS");
    }
}

fn known(need: &str) -> bool {
    include_str!("../needs").lines().any(|line| line.split_whitespace().next() == Some(need))
}

/// The test runner names the thread of a test after it.
fn test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(call: impl FnOnce() + std::panic::UnwindSafe) -> String {
        *std::panic::catch_unwind(call).expect_err("a panic").downcast::<String>().expect("a message")
    }

    #[test]
    fn a_skip_is_a_line_with_what_where_and_why() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("skips");
        record("gpu", "no driver", "node, chromium", Some(file.clone().into()));
        record("node", "no node", "", Some(file.clone().into()));
        let here = "tests::a_skip_is_a_line_with_what_where_and_why";
        assert_eq!(std::fs::read_to_string(file).unwrap(), format!("gpu\t{here}\tno driver\nnode\t{here}\tno node\n"));
    }

    #[test]
    fn what_is_required_or_unknown_fails() {
        let missing = refusal(|| record("gpu", "no driver", "node,gpu", None));
        assert!(missing.contains("no driver"), "{missing}");
        let misspelt = refusal(|| record("gpu", "no driver", "chromuim", None));
        assert!(misspelt.contains("`chromuim`"), "{misspelt}");
        let unlisted = refusal(|| record("gpus", "no driver", "", None));
        assert!(unlisted.contains("`gpus`"), "{unlisted}");
    }
}
