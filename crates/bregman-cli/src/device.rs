//! `--device`: where to compute.

use std::fmt;
use std::str::FromStr;

use crate::failure::Failure;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceName {
    Auto,
    Cpu,
    Cuda(usize),
}

/// The option of every command that computes with a network.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct DeviceArg {
    /// Where to compute: cpu, cuda, cuda:N (GPU number N), or auto (a GPU where there is one)
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: DeviceName,
}

/// What it comes to on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda(usize),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number.map(Self::Cuda).ok_or_else(|| "expected cpu, cuda, cuda:N or auto".to_owned())
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl DeviceName {
    /// The place it names; `auto` is the first GPU that works, else the CPU.
    pub(crate) fn resolve(self) -> Result<Place, Failure> {
        match self {
            Self::Cpu => Ok(Place::Cpu),
            #[cfg(feature = "cuda")]
            Self::Auto if bregman_tensor::cuda::Cuda::is_present() => Ok(Place::Cuda(0)),
            Self::Auto => Ok(Place::Cpu),
            #[cfg(feature = "cuda")]
            Self::Cuda(ordinal) => Ok(Place::Cuda(ordinal)),
            #[cfg(not(feature = "cuda"))]
            Self::Cuda(_) => Err(Failure::mistake(
                "--device cuda: this program was built without CUDA",
                "build it with `cargo build --release -p bregman-cli --features cuda`, or use --device cpu",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_pytorch_does() {
        assert_eq!("cuda:3".parse(), Ok(DeviceName::Cuda(3)));
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for name in ["auto", "cpu", "cuda:2"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        assert!("gpu".parse::<DeviceName>().unwrap_err().contains("cuda:N"));
        assert_eq!(DeviceName::Cpu.resolve().ok(), Some(Place::Cpu));
    }
}
