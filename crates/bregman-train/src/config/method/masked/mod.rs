//! Masks: what decides which weights may be non-zero, see [`bregman::topology`].

mod acdc;
mod exchanged;
mod pruned;
mod snip;
mod static_mask;

use bregman::{Rule, Topology};

pub use acdc::AcDcConfig;
pub use exchanged::{GraNetConfig, MestConfig, RigLConfig, SetConfig};
pub use pruned::{GradualConfig, OneShotConfig};
pub use snip::SnipConfig;
pub use static_mask::StaticConfig;

use crate::{Error, Result};

/// The run that masks are for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaskedRun {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) epochs: u64,
}

/// Settings of a method with masks.
pub(super) trait Masked {
    /// A few words for tables and bars, the sparsity follows: "RigL,".
    fn title(&self) -> &'static str;

    /// The sparsity asked for.
    fn target(&self) -> f64;

    /// The optimizer.
    fn rule(&self) -> Rule;

    /// The policy with these settings.
    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology>;

    /// [`Masked::topology`], with the setting's place in the recipe where one is refused.
    fn topology_of_recipe(&self, run: MaskedRun) -> Result<Topology> {
        self.topology(run).map_err(|error| match error {
            bregman::Error::Setting { field, value, expected } => {
                Error::Method(bregman::Error::Setting { field: format!("method.{field}"), value, expected })
            }
            error => Error::Method(error),
        })
    }
}
