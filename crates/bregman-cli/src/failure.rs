//! Errors of commands: one line, a hint if there is one, and whether it was a user's mistake or a failure.

use std::io::ErrorKind;

use bregman_base::files::FileError;
use bregman_base::text::excerpt;

use crate::exit::Exit;
use crate::output::say;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    exit: Exit,
}

impl Failure {
    /// A mistake that the user can correct.
    pub(crate) fn mistake(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()), exit: Exit::Mistake }
    }

    /// A failure that is not the user's mistake.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit: Exit::Failed }
    }

    /// Prepends the file's name if the message does not contain it.
    pub(crate) fn in_file(mut self, path: &std::path::Path) -> Self {
        let name = path.display().to_string();
        if !self.message.contains(&name) {
            self.message = format!("{name}: {}", self.message);
        }
        self
    }

    /// Prints it to standard error, after the name of whoever failed where there are several.
    pub(crate) fn report(&self, who: &str) -> Exit {
        // A file's name or content must neither turn one line into two nor write to the terminal.
        say(&format!("{who}error: {}", excerpt(&self.message.replace(['\n', '\r'], " "), 2000)));
        if let Some(hint) = &self.hint {
            say(&format!("hint:  {}", excerpt(hint, 2000)));
        }
        self.exit
    }
}

fn exit(mistake: bool) -> Exit {
    if mistake { Exit::Mistake } else { Exit::Failed }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        // a name that cannot be written to is the user's mistake, a full disk is not
        use ErrorKind::{InvalidData, InvalidInput, NotFound, ResourceBusy};
        let mistake = matches!(error.source.kind(), NotFound | InvalidInput | InvalidData | ResourceBusy);
        Self { message: error.to_string(), hint: None, exit: exit(mistake) }
    }
}

impl From<bregman_speaker::Error> for Failure {
    fn from(error: bregman_speaker::Error) -> Self {
        let exit = exit(error.is_user_mistake());
        Self { message: error.to_string(), hint: error.hint().map(str::to_owned), exit }
    }
}

impl From<bregman_train::Error> for Failure {
    fn from(error: bregman_train::Error) -> Self {
        let exit = exit(error.is_user_mistake());
        Self { message: error.to_string(), hint: error.hint(), exit }
    }
}

impl From<bregman_runtime::Error> for Failure {
    fn from(error: bregman_runtime::Error) -> Self {
        use bregman_runtime::Error::{File, Format, TooFewFrames, TooShort, Version};
        let exit =
            exit(matches!(error, File { .. } | Format(_) | Version { .. } | TooShort { .. } | TooFewFrames { .. }));
        Self { message: error.to_string(), hint: None, exit }
    }
}
