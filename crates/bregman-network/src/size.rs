//! The sizes a network may have. Bounded above, so that a broken file cannot ask for all memory.

/// A setting out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {expected}")]
pub struct SizeError {
    /// The setting.
    pub field: &'static str,
    /// What it was.
    pub value: usize,
    /// What it may be.
    pub expected: &'static str,
}

/// `value` must be a multiple of `step` from `step` to `most`.
pub(crate) fn within(
    field: &'static str,
    value: usize,
    most: usize,
    step: usize,
    expected: &'static str,
) -> Result<(), SizeError> {
    let fine = (1..=most).contains(&value) && value.is_multiple_of(step);
    if fine { Ok(()) } else { Err(SizeError { field, value, expected }) }
}
