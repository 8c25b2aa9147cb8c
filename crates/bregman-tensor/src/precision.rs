//! The number format in which a network computes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number format of activations and of the operands of large products. Weights, their gradients, statistics and
/// sums are f32 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Single precision in memory; GPUs round the operands of products to 10 bits of mantissa. A CPU computes in f32.
    Tf32,
    /// Operands in bf16; on GPUs activations too. Vectors (linear layers, the classifier) stay f32: they cost little,
    /// and cosines need the digits.
    Bf16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::Bf16];

    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name() == text)
            .ok_or_else(|| "expected f32, tf32 or bf16".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        assert!("f64".parse::<Precision>().unwrap_err().contains("bf16"));
    }
}
