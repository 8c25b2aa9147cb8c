//! Errors of commands: one line, a hint if there is one, exit code 2 for a user's mistake and 1 for a failure.

use std::io::ErrorKind;
use std::process::ExitCode;

use bregman_base::files::FileError;
use bregman_base::text::excerpt;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// A mistake that the user can correct.
    pub(crate) fn mistake(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()), code: 2 }
    }

    /// A failure that is not the user's mistake.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, code: 1 }
    }

    /// Prepends the file's name if the message does not contain it.
    pub(crate) fn in_file(mut self, path: &std::path::Path) -> Self {
        let name = path.display().to_string();
        if !self.message.contains(&name) {
            self.message = format!("{name}: {}", self.message);
        }
        self
    }

    /// Prints it to standard error.
    pub(crate) fn report(&self) -> ExitCode {
        // A file's name or content must neither turn one line into two nor write to the terminal.
        eprintln!("error: {}", excerpt(&self.message.replace(['\n', '\r'], " "), 2000));
        if let Some(hint) = &self.hint {
            eprintln!("hint:  {}", excerpt(hint, 2000));
        }
        ExitCode::from(self.code)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        // a name that cannot be written to is the user's mistake, a full disk is not
        let mistake =
            matches!(error.source.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::InvalidData);
        Self { message: error.to_string(), hint: None, code: if mistake { 2 } else { 1 } }
    }
}

impl From<bregman_speaker::Error> for Failure {
    fn from(error: bregman_speaker::Error) -> Self {
        let code = if error.is_user_mistake() { 2 } else { 1 };
        Self { message: error.to_string(), hint: error.hint().map(str::to_owned), code }
    }
}

impl From<bregman_train::Error> for Failure {
    fn from(error: bregman_train::Error) -> Self {
        let code = if error.is_user_mistake() { 2 } else { 1 };
        Self { message: error.to_string(), hint: error.hint(), code }
    }
}

impl From<bregman_runtime::Error> for Failure {
    fn from(error: bregman_runtime::Error) -> Self {
        use bregman_runtime::Error::{File, Format, TooShort, Version};
        let code = if matches!(error, File { .. } | Format(_) | Version { .. } | TooShort { .. }) { 2 } else { 1 };
        Self { message: error.to_string(), hint: None, code }
    }
}
