//! Structs that kernels read and write, declared once for both sides.

/// From one list of fields, each with its type in Rust and in C: the struct here, and its declaration for the kernels.
/// A field of padding has to be written down where C would add one; `bytemuck` refuses the struct otherwise.
macro_rules! kernel_struct {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $rust:ty = $c:literal,)+ }) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
        pub(super) struct $name {
            $($(#[$doc])* pub(super) $field: $rust,)+
        }

        impl $name {
            /// The same in C.
            pub(super) const IN_C: &str =
                concat!("struct ", stringify!($name), " { ", $($c, " ", stringify!($field), "; ",)+ "};\n");

            /// Type in C and place of every field, and the size of all.
            #[cfg(test)]
            pub(super) fn layout() -> (Vec<(&'static str, usize)>, usize) {
                (vec![$(($c, std::mem::offset_of!($name, $field))),+], size_of::<$name>())
            }
        }
    };
}
pub(super) use kernel_struct;

use bregman::Shrinkage;
use bregman::optimizer::Update;

use super::duals::DualJob;
use super::multi::Stretch;
use super::step_table::{BlockCount, StepJob, StepPlan};
use super::support::SupportStretch;

/// What the kernels over all tensors share with Rust, in C.
pub(super) fn declarations() -> String {
    let shrinkages = format!("enum class Shrinkage : unsigned {{ {} }};\n", Shrinkage::KINDS.join(", "));
    let structs = [Stretch::IN_C, SupportStretch::IN_C, StepJob::IN_C, StepPlan::IN_C, BlockCount::IN_C, DualJob::IN_C];
    let structs = structs.concat();
    [Update::declarations(), shrinkages, structs].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size of a type in C, which is its alignment too but for the union of coefficients.
    fn size(c: &str) -> (usize, usize) {
        match c {
            "double" | "u64" => (8, 8),
            pointer if pointer.ends_with('*') => (8, 8),
            "u32" | "float" | "Update" | "Shrinkage" => (4, 4),
            "Coefficients" => (Update::MOST_BYTES, 4),
            other => panic!("{other} has no known size"),
        }
    }

    #[test]
    fn structs_lie_in_memory_as_a_c_compiler_lays_them_out() {
        for (name, (fields, bytes)) in [
            ("Stretch", Stretch::layout()),
            ("SupportStretch", SupportStretch::layout()),
            ("StepJob", StepJob::layout()),
            ("StepPlan", StepPlan::layout()),
            ("BlockCount", BlockCount::layout()),
            ("DualJob", DualJob::layout()),
        ] {
            let (mut end, mut widest) = (0usize, 1);
            for (c, offset) in fields {
                let (size, align) = size(c);
                assert_eq!(offset, end.next_multiple_of(align), "{name}: {c}");
                (end, widest) = (offset + size, widest.max(align));
            }
            assert_eq!(bytes, end.next_multiple_of(widest), "{name}");
        }
    }

    #[test]
    fn kernels_know_every_kind_of_update() {
        let kernel = include_str!("kernels/step.cu");
        let list = Update::declarations();
        let kinds = list.split("enum class Update : unsigned { ").nth(1).and_then(|rest| rest.split(" }").next());
        for kind in kinds.expect("an enum").split(", ").filter(|kind| *kind != "Rest") {
            assert!(kernel.contains(&format!("case Update::{kind}:")), "{kind} has no case in kernels/step.cu");
        }
    }
}
