//! The rules: which optimizers there are, and which updates they are made of.
//!
//! A rule's file has its settings, the coefficients that follow from them at a step, and the update of one element with
//! these. To add one: its file, its lines here (`mod`, [`Rule`], `settings`, and `updates!` unless it shares another
//! rule's update), and the `case` of its update in the kernel.

mod adabreg;
mod adamw;
mod linbreg;
mod prox_sgd;
mod sgd;
mod soft_threshold;
mod update;

pub use adabreg::AdaBreg;
pub use adamw::{AdamCoefficients, AdamW};
pub use linbreg::{LinBreg, LinBregCoefficients};
pub use prox_sgd::ProxSgd;
pub use sgd::{Sgd, SgdCoefficients};
pub use soft_threshold::{Str, StrCoefficients};

use serde::{Deserialize, Serialize};

pub(super) use update::{Advance, Moments, UpdateVisitor};
use update::{Rest, UpdateRule, updates};

use crate::error::Result;

/// Which optimizer, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Rule {
    /// Linearised Bregman iterations.
    #[serde(rename = "linbreg")]
    LinBreg(LinBreg),
    /// Adam on the dual.
    #[serde(rename = "adabreg")]
    AdaBreg(AdaBreg),
    /// Proximal SGD.
    ProxSgd(ProxSgd),
    /// SGD on weights behind a threshold that is learnt.
    Str(Str),
    /// SGD with momentum: dense, or pruned under masks.
    Sgd(Sgd),
    /// AdamW: dense, or pruned under masks.
    #[serde(rename = "adamw")]
    AdamW(AdamW),
}

impl Rule {
    fn settings(&self) -> &dyn UpdateRule {
        match self {
            Rule::LinBreg(rule) => rule,
            Rule::AdaBreg(rule) => rule,
            Rule::ProxSgd(rule) => rule,
            Rule::Str(rule) => rule,
            Rule::Sgd(rule) => rule,
            Rule::AdamW(rule) => rule,
        }
    }
}

updates! {
    /// LinBreg.
    linbreg: LinBreg(LinBregCoefficients),
    /// AdaBreg on p, AdamW on θ.
    adam: Adam(AdamCoefficients),
    /// SGD and ProxSGD.
    sgd: Sgd(SgdCoefficients),
    /// STR.
    str: Str(StrCoefficients),
}

/// What happens to the duals when λ moves: nothing in the paper, two options of its appendix, and ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Nothing: p is kept, the next prox uses the new λ. The paper's method.
    Plain,
    /// p ← C(p, θ, λ, λ̃) after every change of λ, so that p stays a subgradient at θ.
    SubgradientCorrection,
    /// Where λ falls, p of the non-zero weights falls with it, so that their θ stays, and weights that a fall by more
    /// than half switches on start from almost 0; the rest as in `Plain`. Without this, θ grows by all that λ loses,
    /// which ruins a run that began with a λ₀ far too large.
    #[default]
    Steady,
    /// θ = prox_{βR}(p)/β with β = λ: Nesterov's dual averaging, which scales the whole elastic net.
    ProxRescaling,
}

impl Rule {
    /// Name for messages and tables.
    pub fn name(&self) -> &'static str {
        self.settings().name()
    }

    /// The λ₀ the paper starts from with this optimizer; `None` for the dense ones.
    pub fn default_lambda(&self) -> Option<f64> {
        self.settings().default_lambda()
    }

    /// The default learning rate of this optimizer (`docs/method.md`).
    pub fn default_lr(&self) -> f64 {
        self.settings().default_lr()
    }

    /// δ and the variant, for the optimizers that keep a dual.
    pub fn mirror(&self) -> Option<(f64, Variant)> {
        self.settings().mirror()
    }

    /// Whether it has no threshold: penalties and λ mean nothing to it, and it may train under masks.
    pub fn is_dense(&self) -> bool {
        self.default_lambda().is_none()
    }

    pub(super) fn update(&self, step: u64, tau: f64) -> Update {
        self.settings().update(step, tau)
    }

    pub(super) fn moments(&self) -> Moments {
        self.settings().moments()
    }

    pub(super) fn check(&self) -> Result<()> {
        self.settings().check()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn coefficients_lie_in_memory_as_their_declaration_in_c_says() {
        let c = Update::declarations();
        assert!(c.contains("struct LinBregCoefficients { float mu; float fresh; };"), "{c}");
        assert!(c.contains("enum class Update : unsigned { Rest, LinBreg, Adam, Sgd, Str };"), "{c}");
        assert!(c.contains("union Coefficients { LinBregCoefficients linbreg; AdamCoefficients adam; "), "{c}");
        assert_eq!(offset_of!(LinBregCoefficients, mu), 0);
        assert_eq!(offset_of!(LinBregCoefficients, fresh), 4);
        // every struct is its fields of four bytes, in the order of the declaration
        let rules = [
            Rule::LinBreg(LinBreg::default()),
            Rule::AdaBreg(AdaBreg::default()),
            Rule::ProxSgd(ProxSgd {}),
            Rule::Str(Str::default()),
            Rule::Sgd(Sgd::default()),
            Rule::AdamW(AdamW::default()),
        ];
        for update in rules.map(|rule| rule.update(3, 0.1)) {
            let shown = format!("{update:?}"); // Kind(Name { field: number, … })
            let (name, fields) = shown.split_once('(').unwrap().1.split_once(" { ").unwrap();
            let names: Vec<&str> = fields.split(", ").map(|field| field.split_once(':').unwrap().0).collect();
            let expected: String = names.iter().map(|field| format!("float {field}; ")).collect();
            assert!(c.contains(&format!("struct {name} {{ {expected}}};")), "{name}: {c}");
            assert_eq!(update.bytes().len(), 4 * names.len(), "{name}");
            assert!(update.bytes().len() <= Update::MOST_BYTES, "{name}");
        }
    }

    #[test]
    fn the_bytes_of_an_update_are_its_fields_in_order() {
        let update = Rule::Sgd(Sgd { momentum: 0.5, nesterov: true, weight_decay: 0.25 }).update(1, 2.0);
        let floats: Vec<f32> = update.bytes().as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect();
        assert_eq!(floats, [2.0, 0.5, 0.25, 1.0, 0.5], "tau, mu, decay, of_g, of_m");
        assert_eq!((update.code(), Update::Rest.code()), (3, 0));
    }
}
