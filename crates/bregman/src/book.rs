//! The method, chapter by chapter; start with [one step](step).

#[doc = include_str!("book/step.md")]
pub mod step {}

#[doc = include_str!("book/control.md")]
pub mod control {}

#[doc = include_str!("book/stability.md")]
pub mod stability {}

#[doc = include_str!("book/layers.md")]
pub mod layers {}

#[doc = include_str!("book/engine.md")]
pub mod engine {}
