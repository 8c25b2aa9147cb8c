//! The method.
