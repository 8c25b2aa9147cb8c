//! The exit codes: what a script learns from the end of the program. No other file knows their numbers.

use std::process::ExitCode;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done. `train`: finished; `verify`: the same speaker; `identify`: a known speaker.
    Done = 0,
    /// The machine or the run failed.
    Failed = 1,
    /// A mistake in the command line or in the input; clap ends with it too.
    Mistake = 2,
    /// `verify`: another speaker; `identify`: nobody that is known.
    No = 3,
    /// Stopped as asked; the same command continues (`train`, `sparsify`: with `--resume`).
    Interrupted = 4,
    /// Asked twice: left at once.
    Left = 130,
}

/// The codes in `bregman --help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done; train: finished, verify: the same speaker, identify: a known speaker
  1    the machine or the run failed
  2    a mistake in the command or its input
  3    verify: another speaker, identify: nobody that is known
  4    train, sparsify, sweep, demo: stopped by Ctrl-C, SIGTERM or SIGHUP, with a checkpoint to --resume from
  130  stopped by a second such signal, at once";

impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
