//! Errors of the C interface: a status code for the program, a message for its user.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bregman_runtime::Error;

/// The result of a call. `bregman_error_message()` returns the reason of a failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BregmanStatus {
    /// Success.
    Ok = 0,
    /// An invalid pointer or length.
    Argument = 1,
    /// A file that cannot be read.
    File = 2,
    /// A file that is not a model, is corrupt, or needs a newer library.
    Format = 3,
    /// Audio that is too short, or not finite.
    Audio = 4,
    /// Any other failure, such as threads that cannot be started.
    Internal = 5,
}

/// Why a call failed.
pub(crate) struct CallError {
    status: BregmanStatus,
    message: String,
}

impl CallError {
    pub(crate) fn new(status: BregmanStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn null(argument: &str) -> Self {
        Self::new(BregmanStatus::Argument, format!("{argument} is NULL"))
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::File { .. } => BregmanStatus::File,
            Error::TooShort { .. } | Error::TooFewFrames { .. } | Error::NotFinite | Error::Features { .. } => {
                BregmanStatus::Audio
            }
            Error::Sliding { .. } => BregmanStatus::Argument,
            Error::Threads(_) => BregmanStatus::Internal,
            _ => BregmanStatus::Format,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs `work`; an error or a panic becomes a status and a message.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), CallError>) -> BregmanStatus {
    let panicked = |_| Err(CallError::new(BregmanStatus::Internal, "internal error: please report it"));
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked) {
        Ok(()) => BregmanStatus::Ok,
        Err(CallError { status, message }) => {
            let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
            // a thread that is ending has no message
            let _ = MESSAGE.try_with(|slot| slot.replace(message));
            status
        }
    }
}

/// The reason of the last failure on this thread, one sentence; empty if there was none. Valid until the next failure
/// on this thread.
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
    fn a_panic_becomes_a_status_and_each_thread_has_its_own_message() {
        assert_eq!(guard(|| panic!("a bug")), BregmanStatus::Internal);
        assert!(message().contains("internal error"));
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(guard(|| Err(CallError::null("model"))), BregmanStatus::Argument);
        assert_eq!(guard(|| Ok(())), BregmanStatus::Ok);
        assert_eq!(message(), "model is NULL", "success leaves the message alone");
    }

    #[test]
    fn a_message_containing_a_zero_byte_is_not_cut_short() {
        guard(|| Err(CallError::new(BregmanStatus::File, "a\0b")));
        assert_eq!(message(), "a b");
    }
}
