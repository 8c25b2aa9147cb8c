//! Convolutions by cuDNN's graph interface. For every shape its candidates are timed once, on the real operands, and
//! the fastest is kept; with f32 operands a product over patches is timed too, and wins where it is faster. Where
//! results must repeat nothing is timed: the first candidate that promises it is taken.
//!
//! cuDNN says of every engine in notes what it does to numbers. In f32 those are left out that round operands: on this
//! side of the interface, TF32 is nothing else than an engine with tensor cores. Without them its engines for channels
//! last are slow on the whole (0.5 TFLOP/s forward with dilation, where patches reach 30), so that a run that must
//! repeat leaves f32 to the patches.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendNumericalNote_t as Note,
};
use cudarc::driver::sys as cuda;

use super::event::Event;
use super::gpu::Gpu;
use super::memory::Scratch;
use super::{Format, Rows};
use crate::{Conv, Error, Result, Shape};

/// How many of cuDNN's suggestions are looked at, and how often each is timed that is not far behind in its first run.
const CANDIDATES: usize = 16;
const REPEATS: usize = 3;
const FAR_BEHIND: f32 = 1.25;
/// No candidate may ask for more.
const WORKSPACE: i64 = 1 << 30;

/// Which of the three products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    Forward,
    Input,
    Weight,
}

/// All that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ConvKey {
    pass: Pass,
    /// kernel, stride, padding, dilation
    geometry: [[usize; 2]; 4],
    /// batch, channels, height, width
    input: [i64; 4],
    output: [i64; 4],
    strides: [i64; 2],
    format: Format,
}

struct ConvPlan {
    plan: Descriptor,
    workspace: usize,
}

/// cuDNN with the plans found so far.
pub(super) struct Cudnn {
    handle: sys::cudnnHandle_t,
    /// Whether f32 operands may be rounded to 10 bits of mantissa.
    tf32: bool,
    /// Whether two runs must give the same bits.
    repeatable: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    /// `None`: cuDNN has nothing for this shape.
    plans: HashMap<ConvKey, Option<ConvPlan>>,
    workspace: Scratch,
}

// SAFETY: a handle may move between threads, and the lock admits one at a time.
unsafe impl Send for Cudnn {}
// SAFETY: as above.
unsafe impl Sync for Cudnn {}

/// The operands of a convolution: x and y are the input's and output's side, or their gradients; w is `[out, taps, in]`
/// in their format.
pub(super) struct Operands {
    pub(super) x: Rows,
    pub(super) w: u64,
    pub(super) y: Rows,
}

impl Cudnn {
    /// cuDNN where it is installed.
    pub(super) fn open(device: &Gpu, tf32: bool) -> Option<Self> {
        device.bind().ok()?;
        // SAFETY: the library's initialisers have no preconditions; the handle is checked.
        unsafe {
            if !sys::is_culib_present() {
                return None;
            }
            let mut handle = std::ptr::null_mut();
            if sys::cudnnCreate(&mut handle) != sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
                return None;
            }
            sys::cudnnSetStream(handle, device.stream().cast());
            let inner = Mutex::new(Inner { plans: HashMap::new(), workspace: Scratch::new() });
            Some(Self { handle, tf32, repeatable: false, inner })
        }
    }

    /// From now on two runs give the same bits, or need not.
    pub(super) fn set_repeatable(&mut self, on: bool) {
        self.repeatable = on;
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).plans.clear();
    }

    /// Starts the convolution, overwriting its result; `false` where cuDNN has none for these operands, or none that is
    /// faster than `otherwise`.
    ///
    /// # Safety
    /// The operands must lie in live buffers and have these shapes.
    pub(super) unsafe fn run(
        &self,
        device: &Arc<Gpu>,
        pass: Pass,
        conv: &Conv,
        shapes: [Shape; 2],
        operands: &Operands,
        otherwise: impl FnMut() -> Result<()>,
    ) -> Result<bool> {
        device.bind()?;
        let sizes = |shape: Shape| [shape.batch, shape.channels, shape.height, shape.width].map(|size| size as i64);
        let key = ConvKey {
            pass,
            geometry: [conv.kernel, conv.stride, conv.padding, conv.dilation],
            input: sizes(shapes[0]),
            output: sizes(shapes[1]),
            strides: [i64::from(operands.x.stride), i64::from(operands.y.stride)],
            format: operands.x.format,
        };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { plans, workspace } = &mut *inner;
        let plan = match plans.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            // SAFETY: the caller's promise.
            Entry::Vacant(free) => free.insert(unsafe { self.search(device, &key, operands, otherwise, workspace)? }),
        };
        let Some(plan) = plan else { return Ok(false) };
        let scratch = workspace.at_least(device, plan.workspace.max(16))?.pointer();
        // SAFETY: the caller's promise.
        unsafe { self.execute(plan, operands, scratch) }.map_err(failed)?;
        Ok(true)
    }

    /// Times the candidates. Each run overwrites the result, so trying is harmless.
    ///
    /// # Safety
    /// As [`Cudnn::run`].
    unsafe fn search(
        &self,
        device: &Arc<Gpu>,
        key: &ConvKey,
        operands: &Operands,
        mut otherwise: impl FnMut() -> Result<()>,
        workspace: &mut Scratch,
    ) -> Result<Option<ConvPlan>> {
        if self.repeatable && key.format == Format::F32 && !self.tf32 {
            return Ok(None);
        }
        let timer = || Event::new(cuda::CUevent_flags::CU_EVENT_DEFAULT);
        let (begin, end) = (timer()?, timer()?);
        // the time to beat, and what beats it; and the least of a single run, which has the host's share in it
        let mut best: (f32, Option<ConvPlan>) = (f32::INFINITY, None);
        let mut once = f32::INFINITY;
        if key.format == Format::F32 && !self.repeatable {
            otherwise()?;
            begin.record(device.stream())?;
            for _ in 0..REPEATS {
                otherwise()?;
            }
            end.record(device.stream())?;
            end.wait()?;
            best.0 = end.since(&begin)? / REPEATS as f32;
            once = best.0;
        }
        for plan in self.candidates(key).unwrap_or_default() {
            let scratch = workspace.at_least(device, plan.workspace.max(16))?.pointer();
            let run = |times: usize| -> Result<Option<f32>> {
                begin.record(device.stream())?;
                for _ in 0..times {
                    // SAFETY: the caller's promise.
                    if unsafe { self.execute(&plan, operands, scratch) }.is_err() {
                        return Ok(None);
                    }
                }
                end.record(device.stream())?;
                end.wait()?;
                Ok(Some(end.since(&begin)? / times as f32))
            };
            if run(1)?.is_none() {
                continue;
            }
            if self.repeatable {
                return Ok(Some(plan));
            }
            let Some(time) = run(1)?.filter(|&time| time <= FAR_BEHIND * once) else { continue };
            once = once.min(time);
            if let Some(time) = run(REPEATS)?.filter(|&time| time < best.0) {
                best = (time, Some(plan));
            }
        }
        Ok(best.1)
    }

    /// Plans for cuDNN's suggestions, those that can be built.
    fn candidates(&self, key: &ConvKey) -> std::result::Result<Vec<ConvPlan>, sys::cudnnStatus_t> {
        let [kernel, stride, padding, dilation] = key.geometry.map(|pair| pair.map(|value| value as i64));
        let [_, inputs, ..] = key.input;
        let [_, outputs, ..] = key.output;
        let x = tensor(1, key.format, key.input, key.strides[0])?;
        let w = tensor(2, key.format, [outputs, inputs, kernel[0], kernel[1]], inputs)?;
        let y = tensor(3, key.format, key.output, key.strides[1])?;

        let mut conv = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        conv.set(
            Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
            Type::CUDNN_TYPE_DATA_TYPE,
            &[sys::cudnnDataType_t::CUDNN_DATA_FLOAT],
        )?;
        let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        conv.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?;
        conv.set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, Type::CUDNN_TYPE_INT64, &[2i64])?;
        for (name, pair) in [
            (Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding),
            (Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding),
            (Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation),
            (Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride),
        ] {
            conv.set(name, Type::CUDNN_TYPE_INT64, &pair)?;
        }
        conv.finalize()?;

        use Name as N;
        let (kind, [alpha, beta, description, ax, aw, ay]) = match key.pass {
            Pass::Forward => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                ],
            ),
            Pass::Input => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                ],
            ),
            Pass::Weight => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                ],
            ),
        };
        let mut operation = Descriptor::new(kind)?;
        operation.set(alpha, Type::CUDNN_TYPE_FLOAT, &[1f32])?;
        operation.set(beta, Type::CUDNN_TYPE_FLOAT, &[0f32])?;
        for (name, part) in [(description, &conv), (ax, &x), (aw, &w), (ay, &y)] {
            operation.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[part.0])?;
        }
        operation.finalize()?;

        let mut graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[self.handle])?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[operation.0])?;
        graph.finalize()?;

        let mut engines = Vec::new();
        for mode in
            [sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A, sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_FALLBACK]
        {
            if engines.is_empty() {
                engines = suggestions(&graph, mode)?;
                engines.retain(|engine| notes(engine).is_ok_and(|notes| self.admits(key.format, &notes)));
            }
        }

        let build = |engine: &Descriptor| {
            let mut plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
            plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[self.handle])?;
            plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[engine.0])?;
            plan.finalize()?;
            let mut workspace = [0i64];
            plan.get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Type::CUDNN_TYPE_INT64, &mut workspace)?;
            Ok((workspace[0] <= WORKSPACE).then_some(ConvPlan { plan, workspace: workspace[0] as usize }))
        };
        let built = engines.iter().filter_map(|engine: &Descriptor| {
            let plan: std::result::Result<Option<ConvPlan>, sys::cudnnStatus_t> = build(engine);
            plan.ok().flatten()
        });
        Ok(built.collect())
    }

    /// Whether an engine with these notes computes what was asked for.
    fn admits(&self, format: Format, notes: &[Note]) -> bool {
        let rounds = |note: &Note| match note {
            Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE => !self.tf32,
            Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS
            | Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION
            | Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 => true,
            _ => false,
        };
        let exact = format == Format::Bf16 || !notes.iter().any(rounds);
        exact && !(self.repeatable && notes.contains(&Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
    }

    /// # Safety
    /// As [`Cudnn::run`]; `scratch` has the plan's workspace.
    unsafe fn execute(
        &self,
        plan: &ConvPlan,
        operands: &Operands,
        scratch: u64,
    ) -> std::result::Result<(), sys::cudnnStatus_t> {
        let mut pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        let pointers = [operands.x.pointer, operands.w, operands.y.pointer].map(|pointer| pointer as *mut c_void);
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Type::CUDNN_TYPE_VOID_PTR, &pointers)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, &[1i64, 2, 3])?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Type::CUDNN_TYPE_VOID_PTR, &[scratch as *mut c_void])?;
        pack.finalize()?;
        // SAFETY: plan and pack are finalised; the pointers are the caller's promise.
        ok(unsafe { sys::cudnnBackendExecute(self.handle, plan.plan.0, pack.0) })
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).plans.clear();
        // SAFETY: created in `open`, destroyed once; an error on the way out has nobody to go to.
        unsafe { sys::cudnnDestroy(self.handle) };
    }
}

/// cuDNN's suggestions for an operation, those it expects most of first.
fn suggestions(
    graph: &Descriptor,
    mode: sys::cudnnBackendHeurMode_t,
) -> std::result::Result<Vec<Descriptor>, sys::cudnnStatus_t> {
    let mut heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    heuristics.set(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[graph.0])?;
    heuristics.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?;
    heuristics.finalize()?;
    let engines = (0..CANDIDATES).map(|_| Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    let mut engines = engines.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut handles: Vec<sys::cudnnBackendDescriptor_t> = engines.iter().map(|engine| engine.0).collect();
    let found =
        heuristics.get(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut handles)?;
    engines.truncate(found);
    Ok(engines)
}

/// What an engine does to numbers.
fn notes(configuration: &Descriptor) -> std::result::Result<Vec<Note>, sys::cudnnStatus_t> {
    let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    configuration.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut [engine.0])?;
    let mut notes = [Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE; 16];
    let count = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE, &mut notes)?;
    Ok(notes[..count].to_vec())
}

/// A tensor, channels last: `sizes` are batch, channels, height, width, and positions lie `stride` values apart.
fn tensor(
    id: i64,
    format: Format,
    sizes: [i64; 4],
    stride: i64,
) -> std::result::Result<Descriptor, sys::cudnnStatus_t> {
    let [_, _, height, width] = sizes;
    let kind = match format {
        Format::F32 => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
        Format::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
    };
    let mut tensor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[kind])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Type::CUDNN_TYPE_INT64, &sizes)?;
    tensor.set(
        Name::CUDNN_ATTR_TENSOR_STRIDES,
        Type::CUDNN_TYPE_INT64,
        &[height * width * stride, 1, width * stride, stride],
    )?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Type::CUDNN_TYPE_INT64, &[id])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Type::CUDNN_TYPE_INT64, &[16i64])?;
    tensor.finalize()?;
    Ok(tensor)
}

/// Whether cuDNN's fast kernels take these operands: one format, channels in eights, every position on a 16-byte
/// boundary.
pub(super) fn suits(x: Rows, y: Rows) -> bool {
    x.format == y.format && x.is_wide() && y.is_wide()
}

fn ok(status: sys::cudnnStatus_t) -> std::result::Result<(), sys::cudnnStatus_t> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS { Ok(()) } else { Err(status) }
}

fn failed(status: sys::cudnnStatus_t) -> Error {
    Error::Device(format!("cuDNN: {status:?}"))
}

/// One of cuDNN's descriptors.
struct Descriptor(sys::cudnnBackendDescriptor_t);

impl Descriptor {
    fn new(kind: Kind) -> std::result::Result<Self, sys::cudnnStatus_t> {
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the place for the result is ours.
        ok(unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut descriptor) })?;
        Ok(Self(descriptor))
    }

    fn set<T: Copy>(&mut self, name: Name, kind: Type, values: &[T]) -> std::result::Result<(), sys::cudnnStatus_t> {
        // SAFETY: the values are as many as stated; cuDNN checks that attribute and type belong together.
        ok(unsafe { sys::cudnnBackendSetAttribute(self.0, name, kind, values.len() as i64, values.as_ptr().cast()) })
    }

    fn get<T: Copy>(&self, name: Name, kind: Type, values: &mut [T]) -> std::result::Result<usize, sys::cudnnStatus_t> {
        let mut count = 0;
        // SAFETY: as above, and no more values are written than there is room for.
        ok(unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                kind,
                values.len() as i64,
                &mut count,
                values.as_mut_ptr().cast(),
            )
        })?;
        Ok((count.max(0) as usize).min(values.len()))
    }

    fn finalize(&mut self) -> std::result::Result<(), sys::cudnnStatus_t> {
        // SAFETY: the descriptor is alive.
        ok(unsafe { sys::cudnnBackendFinalize(self.0) })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once.
        unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
