//! The method, chapter by chapter.
/// Stability.
pub mod stability {}
