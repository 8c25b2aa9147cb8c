//! `--device`: where to compute.

use bregman_train::{DeviceChoice, Error, FoundDevice};

use crate::failure::Failure;
use crate::output::say;
use crate::ranks;

/// The option of every command that computes with a network.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct DeviceArg {
    /// Where to compute: cpu, cuda, cuda:N (GPU number N), or auto (a GPU where there is one)
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub(crate) device: DeviceChoice,
}

impl DeviceArg {
    /// This machine's processor.
    pub(crate) const CPU: Self = Self { device: DeviceChoice::Cpu };

    /// The choice for programs that this rank starts: its own GPU.
    pub(crate) fn of_this_rank(self) -> Result<Self, Failure> {
        Ok(self.find()?.gpu().map_or(self, |number| Self { device: DeviceChoice::Cuda(number) }))
    }

    /// The device on this machine; of several ranks there, each has a GPU of its own. Where `auto` cannot use a GPU
    /// that is there, says why on standard error.
    pub(crate) fn find(self) -> Result<FoundDevice, Failure> {
        let of_rank = |found: FoundDevice| found.of_local_rank(ranks::local_rank());
        let found = self.device.find().and_then(of_rank).map_err(|error| {
            let error = Error::from(error);
            Failure::mistake(format!("--device {}: {error}", self.device), error.hint().unwrap_or_default())
        })?;
        if let Some(fallback) = found.fallback() {
            say(&format!("note: {fallback}"));
        }
        Ok(found)
    }
}
