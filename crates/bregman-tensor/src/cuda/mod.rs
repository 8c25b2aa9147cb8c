//! The CUDA backend: cuBLASLt and cuDNN for the products, our own kernels for all between them.
//!
//! Memory layout of an activation: `[batch, height, width, channels]`. Products then have their operands in the order
//! that tensor cores like best, eight channels of a position are one 16-byte access, and some channels of a tensor are
//! only a matter of a stride. Maps are bf16 where [`Precision::Bf16`] is asked for; values without positions (pooled
//! statistics, gates, embeddings, scores) are a thousandth of the memory and stay f32, as do weights, their gradients,
//! statistics and duals.
//!
//! | file | what it does |
//! | --- | --- |
//! | `conv`, `gemm`, `cudnn` | products and convolutions |
//! | `conv_norm` | a convolution that finds the sums of the norm behind it |
//! | `narrow` | convolutions of few channels, on tensor cores by our own kernels (`tensor.cu`, `narrow.cu`) |
//! | `stem` | the convolution of a single channel, likewise |
//! | `norm`, `pointwise`, `pooling`, `segments`, `reflection`, `loss` | our own kernels, in `kernels/*.cu` |
//! | `filterbank` | features from samples |
//! | `multi`, `duals` | all tensors at once: clipping, a controller's questions |
//! | `step`, `step_table` | the optimizer's step, and what its kernel reads and writes |
//! | `nccl`, `support` | between GPUs: gradients, or those of non-zero weights alone, and what ranks agree on |
//! | `lent` | the optimizer's step on memory of others |
//! | `layout` | structs that kernels and Rust share |
//! | `driver`, `gpu`, `launch` | whether a GPU can be used; one that is open, and how its kernels are launched |
//! | `program`, `cache` | the kernels, compiled |
//! | `memory`, `pinned`, `transfer`, `event` | its memory, copies to and from it, and when they are done |
//! | `graph` | a whole step captured as a CUDA graph and replayed |
//!
//! The libraries are loaded at run time: a program with this backend starts on a machine without a GPU, and
//! [`Cuda::open`] says what is missing.

mod cache;
mod conv;
mod conv_norm;
mod cudnn;
mod driver;
mod duals;
mod event;
mod filterbank;
mod gemm;
mod gpu;
mod graph;
mod launch;
mod layout;
mod lent;
mod loss;
mod memory;
mod multi;
mod narrow;
mod nccl;
mod norm;
mod pinned;
mod pointwise;
mod pooling;
mod program;
mod reflection;
mod segments;
mod stem;
mod step;
mod step_table;
mod support;
mod transfer;

pub(crate) use driver::probe;
pub use filterbank::Filterbank;
pub use graph::CapturedStep;
pub use lent::StepDevice;
pub use memory::DeviceBuffer;
pub use nccl::NcclRanks;
pub use pinned::LateValues;
pub use step::DeviceArrays;
pub use support::DeviceSupport;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bregman::{HostArrays, Param};
use cudnn::Cudnn;
use event::Event;
use gemm::Gemm;
use gpu::{Gpu, KernelVariant};
use launch::Launch;
use memory::{Scratch, Staging};
use multi::Stretches;
use nccl::SharedGradients;

use crate::{Device, Error, Open, Precision, Ranks, Result, Shape, View, ViewMut};

/// How a value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    F32,
    Bf16,
}

impl Format {
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// One NVIDIA GPU.
pub struct Cuda {
    device: Arc<Gpu>,
    gemm: Gemm,
    /// Convolutions with taps; without it they are laid out for products, which takes more memory and time.
    cudnn: Option<Cudnn>,
    precision: Precision,
    scratch: Mutex<CudaWorkspace>,
    /// How its gradients reach those of other GPUs.
    gradients: Option<SharedGradients>,
}

/// Memory that kernels share: each use is over, in the order of the stream, before the next begins.
struct CudaWorkspace {
    /// Column sums in parts, and what becomes of them.
    sums: Scratch,
    coefficients: Scratch,
    /// Patches of a convolution.
    columns: Scratch,
    /// A weight's gradient before its taps are put in order.
    gradient: Scratch,
    /// An operand in another format.
    converted: Scratch,
    bias: Scratch,
    /// Activations between host and device, and pinned memory on the host for them.
    staging: Scratch,
    pinned: Option<Staging>,
    /// The same for the copy stream.
    copy_staging: Scratch,
    copy_pinned: Option<Staging>,
    items: Scratch,
    counts: Scratch,
    stretches: Option<Stretches>,
    /// Pinned memory for values on their way to the host, used again and again.
    landings: Vec<LateValues>,
}

/// A weight with its taps in the order of our products, in the format of maps.
#[derive(Default)]
pub struct PackedWeight {
    packed: Option<DeviceBuffer>,
}

/// An activation as kernels see it.
#[derive(Clone, Copy)]
struct Rows {
    pointer: u64,
    stride: u32,
    rows: u64,
    channels: u32,
    format: Format,
}

impl Rows {
    fn variant(&self) -> KernelVariant {
        KernelVariant { format: self.format, wide: self.is_wide() }
    }

    fn is_wide(&self) -> bool {
        self.channels.is_multiple_of(8) && self.stride.is_multiple_of(8) && self.pointer.is_multiple_of(16)
    }

    /// The widest variant that fits all of these.
    fn variant_with(&self, others: &[Rows]) -> KernelVariant {
        debug_assert!(others.iter().all(|other| other.format == self.format), "one format per kernel");
        KernelVariant { format: self.format, wide: self.is_wide() && others.iter().all(Rows::is_wide) }
    }
}

impl Cuda {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// No driver, no such GPU, a library that is missing, a GPU or driver that is too old: each an
    /// [`Error`] of its own.
    pub fn open(ordinal: usize, precision: Precision) -> Result<Self> {
        let device = Arc::new(Gpu::open(ordinal)?);
        let gemm = Gemm::new(&device, precision != Precision::F32)?;
        let cudnn = Cudnn::open(&device, precision != Precision::F32);
        let empty = Scratch::new;
        let scratch = CudaWorkspace {
            sums: empty(),
            coefficients: empty(),
            columns: empty(),
            gradient: empty(),
            converted: empty(),
            bias: empty(),
            staging: empty(),
            pinned: None,
            copy_staging: empty(),
            copy_pinned: None,
            items: empty(),
            counts: empty(),
            stretches: None,
            landings: vec![],
        };
        Ok(Self { device, gemm, cudnn, precision, scratch: Mutex::new(scratch), gradients: None })
    }

    /// For tests: GPU 0, or `None` where this machine has no GPU; `skip` is then told why. It is also told where cuDNN
    /// is missing, which leaves its convolutions untested: the GPU then computes them in another way.
    ///
    /// # Panics
    /// A GPU that is there and cannot be opened.
    pub fn open_or_skip(precision: Precision, skip: impl Fn(&Error)) -> Option<Self> {
        match Self::open(0, precision) {
            Ok(cuda) => {
                if cuda.lacks_cudnn() {
                    skip(&Error::MissingLibrary { library: "libcudnn.so.9" });
                }
                Some(cuda)
            }
            Err(error) if error.means_no_gpu() => {
                skip(&error);
                None
            }
            Err(error) => panic!("the GPU of this machine cannot be opened: {error}"),
        }
    }

    /// Waits until all work so far is done: for timing.
    ///
    /// # Errors
    /// Whatever went wrong in that work.
    pub fn synchronize(&self) -> Result<()> {
        self.device.wait()
    }

    /// Bytes of GPU memory in use, by everybody.
    ///
    /// # Errors
    /// A lost device.
    pub fn memory_in_use(&self) -> Result<usize> {
        self.device.bind()?;
        let (free, total) = cudarc::driver::result::mem_get_info().map_err(driver::driver)?;
        Ok(total - free)
    }

    /// Whether its convolutions have to do without cuDNN.
    fn lacks_cudnn(&self) -> bool {
        self.cudnn.is_none()
    }

    fn scratch(&self) -> MutexGuard<'_, CudaWorkspace> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_format(&self) -> Format {
        if self.precision == Precision::Bf16 { Format::Bf16 } else { Format::F32 }
    }

    /// Values without positions are f32.
    fn format(&self, shape: Shape) -> Format {
        if shape.positions() == 1 { Format::F32 } else { self.map_format() }
    }

    fn rows(&self, view: View<Self>) -> Rows {
        let format = self.format(view.shape);
        Rows {
            pointer: view.data.pointer() + (view.first * format.bytes()) as u64,
            stride: view.of as u32,
            rows: view.shape.plane() as u64,
            channels: view.shape.channels as u32,
            format,
        }
    }

    fn rows_mut(&self, view: &ViewMut<Self>) -> Rows {
        self.rows(View { data: view.data, first: view.first, of: view.of, shape: view.shape })
    }

    /// Launches over `rows` × `channels`: a thread for each group of channels, at least four rows for each thread, and
    /// more once every processor has several blocks.
    ///
    /// # Safety
    /// As [`Launch::run`].
    unsafe fn over_rows(&self, launch: Launch, variant: KernelVariant, rows: u64, channels: u32) -> Result<()> {
        let columns = channels / variant.lanes();
        let x = columns.next_power_of_two().min(128);
        let y = 256 / x;
        let columns = columns.div_ceil(x);
        let strips =
            rows.div_ceil(u64::from(y) * 4).clamp(1, u64::from((self.device.processors * 16).div_ceil(columns))) as u32;
        // SAFETY: the caller's promise.
        unsafe { launch.run([columns, strips], [x, y], 0) }
    }

    /// The grid of a column sum: a row of threads for the columns, up to 32, and rows in as many parts as keep the GPU
    /// busy.
    fn sum_grid(&self, variant: KernelVariant, rows: u64, channels: u32) -> ([u32; 2], [u32; 2], u32) {
        let columns = channels / variant.lanes();
        let x = columns.next_power_of_two().min(32);
        let (columns, y) = (columns.div_ceil(x), 256 / x);
        let parts =
            rows.div_ceil(u64::from(y) * 4).clamp(1, u64::from((self.device.processors * 3).div_ceil(columns))) as u32;
        ([columns, parts], [x, y], 256 * variant.lanes() * 4)
    }

    /// Launches over the positions of every item (or of every row of it): see `kernels/pooling.cu`.
    ///
    /// # Safety
    /// As [`Launch::run`].
    unsafe fn over_items(
        &self,
        launch: Launch,
        variant: KernelVariant,
        items: usize,
        channels: u32,
        floats_per_lane: u32,
    ) -> Result<()> {
        let columns = (channels / variant.lanes()).div_ceil(32);
        // SAFETY: the caller's promise.
        unsafe { launch.run([columns, items as u32], [32, 8], 32 * 8 * variant.lanes() * 4 * floats_per_lane) }
    }
}

impl Device for Cuda {
    type Arrays = DeviceArrays;

    const PRECISION: Precision = Precision::Bf16;

    fn precision(&self) -> Precision {
        self.precision
    }

    /// Number and name of the GPU: `cuda:0 (NVIDIA H200)`.
    fn description(&self) -> String {
        let without = if self.lacks_cudnn() { ", without cuDNN: convolutions take more memory and time" } else { "" };
        format!("cuda:{} ({}{without})", self.device.context.ordinal(), self.device.name)
    }

    /// cuDNN then takes the first engine whose results repeat, and times none. All else repeats anyway: cuBLASLt's
    /// choice follows from shapes alone, and our kernels add in a fixed order.
    fn set_deterministic(&mut self, on: bool) {
        if let Some(cudnn) = &mut self.cudnn {
            cudnn.set_repeatable(on);
        }
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn place(&self, arrays: HostArrays, _: &[Param]) -> Result<DeviceArrays> {
        self.place_arrays(&arrays)
    }
}

/// How GPU number `ordinal` is opened, as one of several ranks or alone.
pub(crate) fn opener(ordinal: usize, ranks: Ranks) -> impl Open<Cuda> {
    move |precision: Option<Precision>| Cuda::open(ordinal, precision.unwrap_or(Cuda::PRECISION))?.with_ranks(&ranks)
}

/// Threads that join the parts of 32 columns: see `STRIPS` in kernels/norm.cu.
const JOIN: [u32; 2] = [32, 32];

/// Blocks for a kernel that walks over `count` values in steps of its grid.
fn grid(count: u64) -> [u32; 2] {
    [count.div_ceil(256).min(1 << 20) as u32, 1]
}
