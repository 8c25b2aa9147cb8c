//! One error type for the crate: every variant names the parameter or the setting, and what was expected.

use thiserror::Error;

/// What can be wrong with settings, parameters and gradients handed to this crate.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Error {
    /// A setting outside its range.
    #[error("`{field}` is {value}, expected {expected}")]
    Setting {
        /// Dotted name of the setting.
        field: String,
        /// The value found.
        value: String,
        /// The accepted range.
        expected: &'static str,
    },

    /// A parameter without elements.
    #[error("parameter `{parameter}` is empty (shape {shape:?})")]
    EmptyParameter {
        /// Name of the parameter.
        parameter: String,
        /// Its declared shape.
        shape: Vec<usize>,
    },

    /// Two parameters with one name.
    #[error("parameter name `{parameter}` occurs twice")]
    DuplicateParameter {
        /// The repeated name.
        parameter: String,
    },

    /// A slice whose length does not fit the parameter's shape.
    #[error("parameter `{parameter}`: the {what} has {found} values, its shape asks for {expected}")]
    Length {
        /// Name of the parameter.
        parameter: String,
        /// Which slice: weight, gradient, dual …
        what: &'static str,
        /// Length asked for by the shape.
        expected: usize,
        /// Length found.
        found: usize,
    },

    /// A list with one entry per parameter that has too few or too many.
    #[error("{what}: {found} entries for {expected} parameters")]
    Count {
        /// Which list.
        what: &'static str,
        /// How many parameters there are.
        expected: usize,
        /// How many entries were given.
        found: usize,
    },

    /// NaN or infinity in a weight or a gradient.
    #[error("parameter `{parameter}`: {what}[{index}] is {value}, expected a finite number")]
    NonFinite {
        /// Name of the parameter.
        parameter: String,
        /// Which slice: weight or gradient.
        what: &'static str,
        /// Flat index of the first offender.
        index: usize,
        /// What stands there.
        value: f32,
    },

    /// NaN or infinity in the part of a gradient that another process has.
    #[error("parameter `{parameter}`: the gradient of another process is not finite")]
    NonFiniteElsewhere {
        /// Name of the parameter.
        parameter: String,
    },

    /// A group rule that no parameter falls into.
    #[error("group `{group}`: {reason}{}", hint(.near))]
    EmptyGroup {
        /// The pattern or the name of the rule.
        group: String,
        /// Why it is empty.
        reason: String,
        /// Parameter names close to the pattern.
        near: Vec<String>,
    },

    /// A pattern that cannot be read.
    #[error("pattern `{pattern}` is not a regular expression: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The parser's complaint.
        reason: String,
    },

    /// No parameter carries a penalty, so there is nothing a controller could steer.
    #[error("no parameter has a penalty: there is nothing to control")]
    NothingControlled,

    /// A budget that no choice of densities can meet.
    #[error("a sparsity of {target} is out of reach: the layer limits allow {lowest} to {highest}")]
    Budget {
        /// The sparsity asked for.
        target: f64,
        /// The lowest sparsity the ceilings allow.
        lowest: f64,
        /// The highest sparsity the floors allow.
        highest: f64,
    },

    /// A law that selects among the duals, with an optimizer that keeps none.
    #[error("the quantile law needs the duals of LinBreg or AdaBreg; without them take the multiplicative law")]
    NoDuals,

    /// A device that keeps the arrays refused.
    #[error("{problem}")]
    Engine {
        /// What it said.
        problem: String,
    },

    /// Something that needs another kind of optimizer.
    #[error("{what} needs {needs}, the optimizer is {optimizer}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What it would need.
        needs: &'static str,
        /// What is there.
        optimizer: &'static str,
    },
}

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

fn hint(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

/// `Err` naming `field` unless `ok`: the one place where settings are refused.
pub(crate) fn require(ok: bool, field: &str, value: impl std::fmt::Display, expected: &'static str) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::Setting { field: field.into(), value: value.to_string(), expected }) }
}
