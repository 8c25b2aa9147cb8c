//! Memory that Python lends for the length of a call.

use bregman::{Error, Result};

/// Consecutive f32 values at an address: a tensor on the CPU, the part of one that this process has, or nothing.
///
/// The Python side makes these from tensors that it holds for as long as the call takes, contiguous and of 32-bit
/// floats (`bregman/torch/_storage.py`); `check_apart` sees to it that those written to do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lent {
    address: usize,
    /// Values at the address.
    len: usize,
    /// Values of the whole tensor, over all processes.
    whole: usize,
}

impl Lent {
    /// Nothing: the gradient of a tensor that got none, a moment that is not kept.
    pub(crate) const NOTHING: Self = Self { address: 0, len: 0, whole: 0 };

    /// All of a tensor.
    pub(crate) fn new(address: usize, len: usize) -> Self {
        Self { address, len, whole: len }
    }

    /// A part of a tensor of `whole` values.
    pub(crate) fn part(self, whole: usize) -> Self {
        Self { whole, ..self }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.address == 0
    }

    /// Address and length.
    #[cfg(feature = "cuda")]
    pub(crate) fn place(self) -> (usize, usize) {
        (self.address, self.len)
    }

    pub(crate) fn address(self) -> usize {
        self.address
    }

    pub(crate) fn whole(self) -> usize {
        self.whole
    }

    /// The values.
    #[allow(unsafe_code)]
    pub(crate) fn values<'a>(self) -> &'a [f32] {
        if self.len == 0 || self.is_nothing() {
            return &[];
        }
        // SAFETY: the Python side lends a live tensor of `len` floats, which nobody writes during the call: it holds a
        // reference, and the caller of `values` keeps the slice no longer than the call.
        unsafe { std::slice::from_raw_parts(self.address as *const f32, self.len) }
    }

    /// The values, to be written.
    #[allow(unsafe_code)]
    pub(crate) fn values_mut<'a>(self) -> &'a mut [f32] {
        if self.len == 0 || self.is_nothing() {
            return &mut [];
        }
        // SAFETY: as in `values`; that no two slices of a call overlap is checked by `check_apart`, and each is taken
        // once.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut f32, self.len) }
    }
}

/// Refuses memory that is lent twice, as two parameters over one storage would be: both would be written at once.
pub(crate) fn check_apart<'a>(lent: impl Iterator<Item = (&'a str, Lent)>) -> Result<()> {
    let mut all: Vec<(usize, usize, &str)> = lent
        .filter(|(_, lent)| !lent.is_nothing() && lent.len > 0)
        .map(|(name, lent)| (lent.address, lent.address + 4 * lent.len, name))
        .collect();
    all.sort_unstable();
    match all.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        None => Ok(()),
        Some(pair) => {
            let (a, b) = (pair[0].2, pair[1].2);
            let problem = format!("parameters `{a}` and `{b}` share memory: give the optimizer one of them");
            Err(Error::Engine { problem })
        }
    }
}
