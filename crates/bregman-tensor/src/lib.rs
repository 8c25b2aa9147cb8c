//! Arrays on a device and the kernels over them (DESIGN.md).

mod cpu;

pub use cpu::kernels;
