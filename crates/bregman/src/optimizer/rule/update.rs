//! What rules are made of: the contract of a rule, of the coefficients of its update, and what a macro derives from the
//! list of updates in `mod.rs`.

use super::Variant;
use crate::error::Result;

/// A rule's settings, and what follows from them.
pub(crate) trait UpdateRule {
    /// Name for messages and tables.
    fn name(&self) -> &'static str;

    /// Refuses settings out of range.
    fn check(&self) -> Result<()>;

    /// The update of step `step` (counted from 1) with learning rate `tau`.
    fn update(&self, step: u64, tau: f64) -> super::Update;

    /// Which of the moments it keeps.
    fn moments(&self) -> Moments;

    /// δ and the variant, where the update moves a dual p and θ = prox(p); otherwise it moves θ.
    fn mirror(&self) -> Option<(f64, Variant)> {
        None
    }

    /// The λ₀ the paper starts from; `None` for rules without a threshold, which train dense or under masks.
    fn default_lambda(&self) -> Option<f64>;

    /// The learning rate to start with.
    fn default_lr(&self) -> f64;
}

/// The moments a rule keeps for every weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moments {
    /// None.
    Neither,
    /// m: momentum or first moment.
    First,
    /// m and v, the second moment.
    Both,
}

impl Moments {
    /// m alone if there is momentum.
    pub(crate) fn first_if(momentum: f64) -> Self {
        if momentum > 0.0 { Moments::First } else { Moments::Neither }
    }
}

/// The coefficients of an update, all numbers worked out. The kernel's `case` of the same name does the same, field by
/// field (`bregman-tensor/src/cuda/kernels/step.cu`).
pub(crate) trait Advance: Copy + Send + Sync {
    /// Whether it reads a gradient.
    const READS_GRADIENT: bool = true;
    /// Whether it has a second moment.
    const SECOND_MOMENT: bool = false;

    /// The next x (the dual, or the weight itself) of one element, whose moments move on the way. A moment that is not
    /// kept comes in as 0.
    fn advance(self, x: f32, g: f32, m: &mut f32, v: &mut f32) -> f32;
}

/// x stays: a pass with it is the prox alone.
#[derive(Clone, Copy)]
pub(super) struct Rest;

impl Advance for Rest {
    const READS_GRADIENT: bool = false;

    #[inline(always)]
    fn advance(self, x: f32, _: f32, _: &mut f32, _: &mut f32) -> f32 {
        x
    }
}

/// Something to be done with the coefficients of an update, whichever it is.
pub(crate) trait UpdateVisitor {
    fn visit<U: Advance>(self, update: U);
}

/// Declares coefficients once for both sides: a struct of `f32` fields for the pass over slices, and the same struct in
/// C for kernels.
macro_rules! coefficients {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)+ }) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct $name {
            $($(#[$doc])* pub $field: f32,)+
        }

        impl $name {
            /// The same in C.
            pub(super) const IN_C: &str =
                concat!("struct ", stringify!($name), " { ", $("float ", stringify!($field), "; ",)+ "};\n");
        }
    };
}
pub(super) use coefficients;

/// From the list of updates: the enum, its dispatch, and its declaration in C.
macro_rules! updates {
    ($($(#[$doc:meta])* $field:ident: $kind:ident($coefficients:ident),)+) => {
        /// How a gradient moves the variable x of every element: the dual p, or θ itself where the rule keeps none. A
        /// gradient that is not finite counts as 0 (and is reported).
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum Update {
            /// Not at all: θ ← prox(p) alone.
            Rest,
            $($(#[$doc])* $kind($coefficients),)+
        }

        #[repr(u32)]
        enum Code { Rest, $($kind,)+ }

        impl Update {
            /// The number of this kind of update in [`Update::declarations`].
            pub fn code(&self) -> u32 {
                match self {
                    Update::Rest => Code::Rest as u32,
                    $(Update::$kind(_) => Code::$kind as u32,)+
                }
            }

            /// The coefficients as a kernel reads them.
            pub fn bytes(&self) -> &[u8] {
                match self {
                    Update::Rest => &[],
                    $(Update::$kind(coefficients) => bytemuck::bytes_of(coefficients),)+
                }
            }

            /// The size of `union Coefficients` in [`Update::declarations`].
            pub const MOST_BYTES: usize = {
                let mut most = 0;
                $(if size_of::<$coefficients>() > most { most = size_of::<$coefficients>(); })+
                most
            };

            /// All kinds of update and their coefficients, declared in C for a kernel: `enum class Update`, a struct
            /// for each, and `union Coefficients` of them.
            pub fn declarations() -> String {
                let structs = [$($coefficients::IN_C),+].concat();
                let kinds = ["Rest", $(stringify!($kind)),+].join(", ");
                let fields = [$(concat!(stringify!($coefficients), " ", stringify!($field), "; ")),+].concat();
                format!("{structs}enum class Update : unsigned {{ {kinds} }};\nunion Coefficients {{ {fields}}};\n")
            }

            #[inline(always)]
            pub(crate) fn dispatch(self, visitor: impl UpdateVisitor) {
                match self {
                    Update::Rest => visitor.visit(Rest),
                    $(Update::$kind(coefficients) => visitor.visit(coefficients),)+
                }
            }
        }
    };
}
pub(super) use updates;
