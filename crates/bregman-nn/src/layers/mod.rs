//! Layers: `forward` next to `backward`, parameters as their description (`bregman-network`) names and shapes them.

pub(crate) mod attentive;
pub(crate) mod basic_block;
pub(crate) mod context_mask;
pub(crate) mod conv;
pub(crate) mod conv_norm;
pub(crate) mod dense_block;
pub(crate) mod norm;
pub(crate) mod res2;
pub(crate) mod residual_stack;
pub(crate) mod se_res2_block;
pub(crate) mod squeeze_excite;
pub(crate) mod temporal;
