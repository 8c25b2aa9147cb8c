//! Which device to compute on: what was asked for, and what this machine has.

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "cuda")]
use crate::cuda::probe;
use crate::{Error, Ranks, Result};

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU where there is one that works, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU of this number, from 0.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
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

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// The result of a [`DeviceChoice`] on this machine; no device is opened yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDevice {
    gpu: Option<usize>,
    fallback: Option<String>,
    ranks: Ranks,
}

impl FoundDevice {
    /// The CPU, which is always there.
    pub const CPU: Self = Self { gpu: None, fallback: None, ranks: Ranks::ALONE };

    /// As one of several ranks.
    pub fn with_ranks(self, ranks: Ranks) -> Self {
        Self { ranks, ..self }
    }

    /// Of several ranks on one machine, each a GPU of its own, where a GPU was found and none was asked for by a number
    /// above 0.
    ///
    /// # Errors
    /// Fewer GPUs than ranks.
    pub fn of_local_rank(self, number: usize) -> Result<Self> {
        match self.gpu {
            Some(0) if number > 0 => Ok(Self { gpu: Some(gpu_of_local_rank(number, probe)?), ..self }),
            _ => Ok(self),
        }
    }

    /// The ranks, of which the device will be one.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The number of the GPU; `None` for the CPU.
    pub fn gpu(&self) -> Option<usize> {
        self.gpu
    }

    /// Why `auto` left a GPU of this machine alone, in one sentence.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }
}

impl DeviceChoice {
    /// Looks for the device. `auto` always finds one: a GPU that cannot be used is named in
    /// [`FoundDevice::fallback`], and the CPU is found instead.
    ///
    /// # Errors
    /// Why a GPU that was asked for by number cannot be used.
    pub fn find(self) -> Result<FoundDevice> {
        self.find_with(probe)
    }

    fn find_with(self, probe: impl Fn(usize) -> Result<()>) -> Result<FoundDevice> {
        let gpu = |ordinal| FoundDevice { gpu: Some(ordinal), ..FoundDevice::CPU };
        match self {
            Self::Cpu => Ok(FoundDevice::CPU),
            Self::Cuda(ordinal) => probe(ordinal).map(|()| gpu(ordinal)),
            Self::Auto => Ok(match probe(0) {
                Ok(()) => gpu(0),
                Err(error) if error.means_no_gpu() => FoundDevice::CPU,
                Err(error) => {
                    FoundDevice { fallback: Some(format!("{error}; the CPU is used instead")), ..FoundDevice::CPU }
                }
            }),
        }
    }
}

/// The GPU of the rank of this number on its machine: that of its number, or the only one that the process sees, as
/// Slurm's `--gpus-per-task=1` has it. NCCL refuses two ranks on one GPU.
pub(crate) fn gpu_of_local_rank(number: usize, probe: impl Fn(usize) -> Result<()>) -> Result<usize> {
    match probe(number) {
        Err(Error::NoGpu { present: 1, .. }) => probe(0).map(|()| 0),
        found => found.map(|()| number),
    }
}

#[cfg(not(feature = "cuda"))]
fn probe(_: usize) -> Result<()> {
    Err(Error::NotBuilt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_pytorch_does() {
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for name in ["auto", "cpu", "cuda:2"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        assert!("gpu".parse::<DeviceChoice>().unwrap_err().contains("cuda:N"));
    }

    #[test]
    fn auto_takes_a_gpu_that_works_and_says_why_it_leaves_one_that_does_not() {
        let auto = |probe: fn(usize) -> Result<()>| DeviceChoice::Auto.find_with(probe).unwrap();
        assert_eq!(auto(|_| Ok(())).gpu(), Some(0));
        assert_eq!(auto(|_| Err(Error::NoDriver)), FoundDevice::CPU);
        assert_eq!(auto(|ordinal| Err(Error::NoGpu { ordinal, present: 0 })), FoundDevice::CPU);
        let unfit: [fn(usize) -> Result<()>; 3] = [
            |_| Err(Error::MissingLibrary { library: "libnvrtc.so.13" }),
            |_| Err(Error::GpuTooOld { name: "Tesla T4".to_owned(), found: [7, 5], needed: [8, 0] }),
            |_| Err(Error::DriverTooOld { found: [12, 4], needed: [13, 0] }),
        ];
        for (probe, word) in unfit.into_iter().zip(["libnvrtc.so.13", "Tesla T4", "driver"]) {
            let found = auto(probe);
            assert_eq!(found.gpu(), None);
            let sentence = found.fallback().unwrap();
            assert!(sentence.contains(word) && sentence.contains("CPU"), "{sentence}");
        }
    }

    #[test]
    fn a_gpu_that_was_asked_for_is_there_or_an_error() {
        assert_eq!(DeviceChoice::Cuda(2).find_with(|_| Ok(())).unwrap().gpu(), Some(2));
        let missing = DeviceChoice::Cuda(2).find_with(|ordinal| Err(Error::NoGpu { ordinal, present: 1 }));
        assert!(matches!(missing, Err(Error::NoGpu { ordinal: 2, present: 1 })));
        assert_eq!(DeviceChoice::Cpu.find_with(|_| unreachable!()).unwrap(), FoundDevice::CPU);
    }

    #[test]
    fn a_rank_takes_the_gpu_of_its_number_or_the_only_one_it_sees() {
        let sees = |present: usize| {
            move |ordinal: usize| if ordinal < present { Ok(()) } else { Err(Error::NoGpu { ordinal, present }) }
        };
        assert_eq!(gpu_of_local_rank(3, sees(4)).unwrap(), 3);
        assert_eq!(gpu_of_local_rank(3, sees(1)).unwrap(), 0, "srun --gpus-per-task=1");
        assert!(matches!(gpu_of_local_rank(3, sees(2)), Err(Error::NoGpu { ordinal: 3, present: 2 })));
        assert!(matches!(gpu_of_local_rank(0, sees(0)), Err(Error::NoGpu { ordinal: 0, present: 0 })));
    }
}
