//! How functions fail: a status for the program, a sentence for its user.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bregman_runtime::Error;

/// What became of a call. The reason of a failure is `bregman_error_message()`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BregmanStatus {
    /// It worked.
    Ok = 0,
    /// A pointer or a length that cannot be.
    Argument = 1,
    /// A file that cannot be read.
    File = 2,
    /// A file that is no model, was altered, or needs a newer library.
    Format = 3,
    /// Audio that is too short, or not finite.
    Audio = 4,
    /// Anything else, such as threads that cannot be started.
    Internal = 5,
}

/// Why a call failed.
pub(crate) struct Failure {
    status: BregmanStatus,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: BregmanStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn null(argument: &str) -> Self {
        Self::new(BregmanStatus::Argument, format!("{argument} is NULL"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::File { .. } => BregmanStatus::File,
            Error::TooShort { .. } | Error::NotFinite | Error::Features { .. } => BregmanStatus::Audio,
            Error::Threads(_) => BregmanStatus::Internal,
            _ => BregmanStatus::Format,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs `work`; a failure, and even a panic, becomes a status and a message.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failure>) -> BregmanStatus {
    let panicked = |_| Err(Failure::new(BregmanStatus::Internal, "internal error: please report it"));
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked) {
        Ok(()) => BregmanStatus::Ok,
        Err(Failure { status, message }) => {
            let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
            // a thread that is ending has no message any more
            let _ = MESSAGE.try_with(|slot| slot.replace(message));
            status
        }
    }
}

/// Why the last call that failed on this thread did: one sentence, empty if none has. Valid until the next failure on
/// this thread.
#[unsafe(no_mangle)]
pub extern "C" fn bregman_error_message() -> *const c_char {
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: the message is a C string until the next failure on this thread.
        unsafe { CStr::from_ptr(bregman_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_threads_have_messages_of_their_own() {
        assert_eq!(guard(|| panic!("a bug")), BregmanStatus::Internal);
        assert!(message().contains("internal error"));
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(guard(|| Err(Failure::null("model"))), BregmanStatus::Argument);
        assert_eq!(guard(|| Ok(())), BregmanStatus::Ok);
        assert_eq!(message(), "model is NULL", "success leaves the message alone");
    }

    #[test]
    fn a_message_with_a_zero_in_it_stays_whole() {
        guard(|| Err(Failure::new(BregmanStatus::File, "a\0b")));
        assert_eq!(message(), "a b");
    }
}
