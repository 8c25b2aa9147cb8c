//! What the method must know of a parameter: its name, its shape and the part it plays.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The part a parameter plays in its network. Only the first three are ever thresholded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Weight of a convolution, `[out, in, k]` or `[out, in, kh, kw]`.
    ConvWeight,
    /// Weight of a linear layer, `[out, in]`.
    LinearWeight,
    /// Weight of the classification head, `[classes, dim]`.
    Classifier,
    /// A bias.
    Bias,
    /// Scale or shift of a normalisation.
    Norm,
}

impl Role {
    /// Whether tensors of this role may carry a penalty.
    ///
    /// ```
    /// use bregman::Role;
    /// assert!(Role::Classifier.is_weight() && !Role::Norm.is_weight());
    /// ```
    pub fn is_weight(self) -> bool {
        matches!(self, Role::ConvWeight | Role::LinearWeight | Role::Classifier)
    }
}

/// Name, shape (row-major, output channels first) and role of one parameter tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    /// Unique dotted name, as in a `state_dict`.
    pub name: String,
    /// Shape, output channels first.
    pub shape: Vec<usize>,
    /// Role in the network.
    pub role: Role,
}

impl Param {
    /// A parameter description.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>, role: Role) -> Self {
        Self { name: name.into(), shape: shape.into(), role }
    }

    /// Number of elements.
    #[expect(clippy::len_without_is_empty, reason = "an empty parameter is refused by `check`")]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements that feed one output channel or neuron.
    pub fn row_len(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Elements of one `(out, in)` kernel; 1 for linear weights and 1×1 convolutions.
    pub fn kernel_len(&self) -> usize {
        self.shape.iter().skip(2).product()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.len() == 0 {
            Err(Error::EmptyParameter { parameter: self.name.clone(), shape: self.shape.clone() })
        } else {
            Ok(())
        }
    }

    pub(crate) fn check_len(&self, what: &'static str, found: usize) -> Result<()> {
        if found == self.len() {
            Ok(())
        } else {
            Err(Error::Length { parameter: self.name.clone(), what, expected: self.len(), found })
        }
    }

    /// The first NaN or infinity of `values`, as the error that names it.
    pub(crate) fn check_finite(&self, what: &'static str, values: &[f32]) -> Result<()> {
        match values.iter().position(|x| !x.is_finite()) {
            None => Ok(()),
            Some(index) => Err(Error::NonFinite { parameter: self.name.clone(), what, index, value: values[index] }),
        }
    }
}
