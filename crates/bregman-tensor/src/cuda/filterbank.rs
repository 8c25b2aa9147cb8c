//! Features from samples: gathered frames times the spectrum's matrix, powers times the mel filters, logarithm, floor
//! and mean. In f32 throughout, whatever the precision of the network: a quiet bin beside a loud one needs the digits.

use std::sync::{Mutex, PoisonError};

use super::gemm::{Gemm, GemmProduct, Operand};
use super::gpu::Stream;
use super::memory::Scratch;
use super::transfer;
use super::{Cuda, DeviceBuffer, Format, grid};
use crate::{Error, FilterbankTables, Filterbanks, Result, ViewMut};

/// Frames that are transformed at once: what passes between the products stays near the cache.
const ROWS: usize = 1 << 15;

/// A filterbank on the GPU.
pub struct Filterbank {
    tables: FilterbankTables,
    spectrum: DeviceBuffer,
    mel: DeviceBuffer,
    compute: Mutex<Working>,
    copy: Mutex<Working>,
}

/// What belongs to the work of one stream.
struct Working {
    gemm: Gemm,
    frames: Scratch,
    spectrum: Scratch,
    power: Scratch,
    features: Scratch,
}

impl Filterbanks for Cuda {
    type Filterbank = Filterbank;

    fn filterbank(&self, tables: FilterbankTables) -> Result<Filterbank> {
        let placed = |values: &[f32]| -> Result<DeviceBuffer> {
            let mut buffer = DeviceBuffer::zeros(&self.device, size_of_val(values))?;
            buffer.upload(values)?;
            Ok(buffer)
        };
        let (spectrum, mel) = (placed(&tables.spectrum)?, placed(&tables.mel)?);
        self.device.wait()?; // either stream may use them from now on
        let working = || -> Result<Mutex<Working>> {
            let empty = Scratch::new;
            let gemm = Gemm::new(&self.device, false)?;
            Ok(Mutex::new(Working { gemm, frames: empty(), spectrum: empty(), power: empty(), features: empty() }))
        };
        Ok(Filterbank { tables, spectrum, mel, compute: working()?, copy: working()? })
    }

    fn write_samples(&self, filterbank: &Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        write_samples(self, filterbank, from, to, Stream::Compute)
    }

    fn write_samples_ahead(&self, filterbank: &Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        write_samples(self, filterbank, from, to, Stream::Copy)
    }
}

/// `d [rows × columns] = a [rows × inner] · b [inner × columns]`, all row-major.
fn product([rows, columns, inner]: [usize; 3], a: u64, b: u64, d: u64) -> GemmProduct {
    GemmProduct {
        size: [columns, rows, inner],
        a: Operand { pointer: b, leading: columns, transposed: false },
        b: Operand { pointer: a, leading: inner, transposed: false },
        operands: Format::F32,
        d,
        leading: columns,
        result: Format::F32,
        add: false,
        bias: None,
    }
}

/// Fills `to` with the features of utterances of equal length.
fn write_samples(cuda: &Cuda, filterbank: &Filterbank, from: &[f32], to: ViewMut<Cuda>, on: Stream) -> Result<()> {
    let &FilterbankTables { window, hop, origin, relative, frequencies, bins, smallest, factor, top_db, .. } =
        &filterbank.tables;
    let (batch, frames) = (to.shape.batch, to.shape.width);
    let length = from.len() / batch;
    let expected = batch * filterbank.tables.frames(length) * bins;
    if to.shape.len() != expected || from.len() != batch * length {
        return Err(Error::Length { what: "features of samples", expected, got: to.shape.len() });
    }
    let mut scratch = cuda.scratch();
    let (stream, samples) = transfer::stage(cuda, &mut scratch, from, on)?;
    let working = if on == Stream::Copy { &filterbank.copy } else { &filterbank.compute };
    let Working { gemm, frames: gathered, spectrum, power, features } =
        &mut *working.lock().unwrap_or_else(PoisonError::into_inner);
    let device = &cuda.device;
    let features = features.at_least(device, batch * frames * bins * 4)?.pointer();
    let step = (ROWS / frames).clamp(1, batch);
    for first in (0..batch).step_by(step) {
        let items = step.min(batch - first);
        let rows = items * frames;
        let gathered = gathered.at_least(device, step * frames * window * 4)?.pointer();
        let spectrum = spectrum.at_least(device, step * frames * 2 * frequencies * 4)?.pointer();
        let power = power.at_least(device, step * frames * frequencies * 4)?.pointer();
        let count = (rows * window) as u64;
        let launch = device
            .kernel("gather_frames")
            .on(stream)
            .arg(samples + (first * length * 4) as u64)
            .arg(length as u32)
            .arg(frames as u32);
        let launch = launch
            .arg(window as u32)
            .arg(hop as u32)
            .arg(origin as i32)
            .arg(u32::from(relative))
            .arg(gathered)
            .arg(count);
        let energies = features + (first * frames * bins * 4) as u64;
        // SAFETY: all buffers have room for these rows, the samples for these items; a filterbank's matrices have the
        // sizes that its tables state.
        unsafe {
            launch.run(grid(count), [256, 1], 0)?;
            let product_with = |[columns, inner]: [usize; 2], a, b, d| {
                gemm.run_on(device, stream, &product([rows, columns, inner], a, b, d))
            };
            product_with([2 * frequencies, window], gathered, filterbank.spectrum.pointer(), spectrum)?;
            let count = (rows * frequencies) as u64;
            let launch =
                device.kernel("power_spectrum").on(stream).arg(spectrum).arg(frequencies as u32).arg(power).arg(count);
            launch.run(grid(count), [256, 1], 0)?;
            product_with([bins, frequencies], power, filterbank.mel.pointer(), energies)?;
        }
    }
    let launch =
        device.kernel("log_mel").on(stream).arg(features).arg(frames as u32).arg(bins as u32).arg(smallest).arg(factor);
    // SAFETY: a block per utterance.
    unsafe { launch.arg(top_db.unwrap_or(f32::INFINITY)).run([batch as u32, 1], [256, 1], 0)? };
    transfer::from_frames(cuda, stream, features, to)?;
    if on == Stream::Copy { device.wait_for_copies() } else { Ok(()) }
}
