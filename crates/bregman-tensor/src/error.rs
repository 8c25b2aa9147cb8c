//! What can go wrong on a device.

/// Everything a backend can fail with. Shape mismatches inside a layer are our own bugs and panic instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A host slice does not have the size of the device array it is copied to or from.
    #[error("{what}: expected {expected} values, got {got}")]
    Length {
        /// What was being copied.
        what: &'static str,
        /// The device array's size.
        expected: usize,
        /// The host slice's size.
        got: usize,
    },
    /// The cargo feature `cuda` is off.
    #[error("this program was built without CUDA")]
    NotBuilt,
    /// The driver's library is missing.
    #[error("libcuda.so could not be loaded: there is no NVIDIA driver on this machine")]
    NoDriver,
    /// Fewer GPUs than that.
    #[error("there is no GPU number {ordinal}: this machine has {present}")]
    NoGpu {
        /// The number asked for, from 0.
        ordinal: usize,
        /// GPUs on this machine.
        present: usize,
    },
    /// A library of the CUDA toolkit is missing.
    #[error("{library} could not be loaded")]
    MissingLibrary {
        /// Its file name.
        library: &'static str,
    },
    /// The driver is older than the CUDA libraries.
    #[error("the NVIDIA driver supports CUDA {}, but {} or newer is needed", version(*found), version(*needed))]
    DriverTooOld {
        /// Major and minor version of CUDA that the driver supports.
        found: [i32; 2],
        /// The oldest that the libraries need.
        needed: [i32; 2],
    },
    /// The GPU lacks instructions that the kernels use.
    #[error("{name} has compute capability {}, but {} or newer is needed", version(*found), version(*needed))]
    GpuTooOld {
        /// What the GPU calls itself.
        name: String,
        /// Its compute capability.
        found: [i32; 2],
        /// The lowest that works.
        needed: [i32; 2],
    },
    /// The device's memory is full.
    #[error("out of GPU memory{}", memory(*asked, *free))]
    OutOfMemory {
        /// Bytes of the allocation that failed, where it was one of ours.
        asked: Option<usize>,
        /// Bytes that are free.
        free: Option<usize>,
    },
    /// The device stopped working; nothing on it can be used any more.
    #[error("the GPU was lost ({reason})")]
    Lost {
        /// The driver's name for it.
        reason: String,
    },
    /// Other processes that train the same network have ended.
    #[error("other ranks of this training have ended")]
    RanksGone,
    /// The device or a library refused for another reason.
    #[error("device: {0}")]
    Device(String),
}

fn version([major, minor]: [i32; 2]) -> String {
    format!("{major}.{minor}")
}

fn memory(asked: Option<usize>, free: Option<usize>) -> String {
    let mebibytes = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    match (asked, free) {
        (Some(asked), Some(free)) => format!(": {} asked for, {} free", mebibytes(asked), mebibytes(free)),
        (Some(asked), None) => format!(": {} asked for", mebibytes(asked)),
        (None, Some(free)) => format!(": {} free", mebibytes(free)),
        (None, None) => String::new(),
    }
}

impl Error {
    /// What the user of the program can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotBuilt => {
                "build it with `cargo build --release -p bregman-cli --features cuda`, or use --device cpu"
            }
            Self::NoDriver => "use --device cpu",
            Self::NoGpu { .. } => "nvidia-smi lists the GPUs of this machine; or use --device cpu",
            Self::MissingLibrary { .. } => {
                "install CUDA 13 or add its lib folder to LD_LIBRARY_PATH; or use --device cpu"
            }
            Self::DriverTooOld { .. } => "update the NVIDIA driver, or use --device cpu",
            Self::GpuTooOld { .. } => "use --device cpu",
            Self::OutOfMemory { .. } => "a smaller train.batch or shorter cuts need less",
            Self::Lost { .. } => "checkpoints are intact: resume once it is back, or on --device cpu",
            Self::RanksGone => "the last checkpoint is whole: start all ranks again with --resume",
            Self::Length { .. } | Self::Device(_) => return None,
        })
    }

    /// Whether this machine or program simply has no GPU to use, rather than one that does not work.
    pub fn means_no_gpu(&self) -> bool {
        matches!(self, Self::NotBuilt | Self::NoDriver | Self::NoGpu { .. })
    }

    /// Whether the device cannot be used on this machine at all: asking for it was a mistake.
    pub fn is_unavailable(&self) -> bool {
        let unfit = matches!(self, Self::MissingLibrary { .. } | Self::DriverTooOld { .. } | Self::GpuTooOld { .. });
        self.means_no_gpu() || unfit
    }
}

/// The result of every backend call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// So that arrays on a device can answer an optimizer.
impl From<Error> for bregman::Error {
    fn from(error: Error) -> Self {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        bregman::Error::Engine { problem: format!("{error}{hint}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_names_what_was_found_and_what_is_needed() {
        let says = |error: Error, words: &[&str]| {
            let text = format!("{error}; {}", error.hint().unwrap_or_default());
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        says(Error::NotBuilt, &["without CUDA", "--features cuda"]);
        says(Error::NoDriver, &["libcuda.so", "NVIDIA driver", "--device cpu"]);
        says(Error::NoGpu { ordinal: 3, present: 2 }, &["no GPU number 3", "has 2", "nvidia-smi"]);
        says(Error::MissingLibrary { library: "libnvrtc.so.13" }, &["libnvrtc.so.13", "LD_LIBRARY_PATH"]);
        says(Error::DriverTooOld { found: [12, 4], needed: [13, 0] }, &["12.4", "13.0", "driver"]);
        let name = "Tesla T4".to_owned();
        says(Error::GpuTooOld { name, found: [7, 5], needed: [8, 0] }, &["Tesla T4", "7.5", "8.0"]);
        let full = Error::OutOfMemory { asked: Some(3 << 20), free: Some(1 << 19) };
        says(full, &["3.0 MiB asked for", "0.5 MiB free", "train.batch"]);
        says(Error::Lost { reason: "CUDA_ERROR_LAUNCH_FAILED".to_owned() }, &["lost", "LAUNCH_FAILED", "resume"]);
    }

    #[test]
    fn a_gpu_that_does_not_work_is_not_an_absent_one() {
        assert!(Error::NoDriver.means_no_gpu() && Error::NoDriver.is_unavailable());
        let missing = Error::MissingLibrary { library: "libcublasLt.so.13" };
        assert!(!missing.means_no_gpu() && missing.is_unavailable());
        let full = Error::OutOfMemory { asked: None, free: None };
        assert!(!full.means_no_gpu() && !full.is_unavailable());
    }
}
