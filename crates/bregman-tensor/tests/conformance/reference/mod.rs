//! A backend that says what each operation means: plain loops over f64, no other thought. Every other backend must give
//! its numbers.
//!
//! Memory layout of an activation: `[batch, channels, height, width]`.

mod conv;
mod filterbank;
mod loss;
mod norm;
mod pointwise;
mod pooling;
mod reflection;
mod segments;

use std::sync::Mutex;

use bregman_tensor::{Block, Capture, Collectives, DeviceMemory, Error, Result, Shape, Storage, View, ViewMut};

/// The reference.
pub(crate) struct Reference {
    /// Maps are rounded to bf16 when they are stored, as on a GPU that trains in it. All else stays f64.
    bf16_maps: bool,
    relu_inputs: Mutex<Vec<Vec<Vec<f64>>>>,
}

impl Reference {
    /// f64 throughout.
    pub(crate) fn new() -> Self {
        Self { bf16_maps: false, relu_inputs: Mutex::default() }
    }

    /// With maps in bf16: what correct kernels of that format compute, up to the order of their sums.
    pub(crate) fn with_bf16_maps() -> Self {
        Self { bf16_maps: true, ..Self::new() }
    }

    /// The inputs of all ReLUs in training since the last call: of each, by channel.
    #[allow(dead_code, reason = "for tests of whole networks, which include this module")]
    pub(crate) fn take_relu_inputs(&self) -> Vec<Vec<Vec<f64>>> {
        std::mem::take(&mut self.relu_inputs.lock().unwrap())
    }

    /// Notes the inputs `x(b, c, p)` of a ReLU.
    fn note_relu(&self, shape: Shape, x: impl Fn(usize, usize, usize) -> f64) {
        let items = Shape { channels: 1, ..shape };
        let channel = |c| indices(items).map(|(b, _, p)| x(b, c, p)).collect();
        self.relu_inputs.lock().unwrap().push((0..shape.channels).map(channel).collect());
    }

    /// Ends an operation that has written `to`.
    fn store(&self, to: &mut ViewMut<Self>) -> Result<()> {
        if self.bf16_maps && to.shape.positions() > 1 {
            to.fill(|_, _, _, value| bf16(value));
        }
        Ok(())
    }
}

/// The nearest number with 8 bits of significand, of two the even one.
fn bf16(value: f64) -> f64 {
    let bits = (value as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

/// Where channel `c` of item `b` begins in a tensor of `of` channels.
fn start(first: usize, of: usize, shape: Shape, b: usize, c: usize) -> usize {
    (b * of + first + c) * shape.positions()
}

/// Reads of a view.
trait Read {
    /// The positions of a channel of an item.
    fn row(&self, b: usize, c: usize) -> &[f64];

    fn get(&self, b: usize, c: usize, p: usize) -> f64 {
        self.row(b, c)[p]
    }
}

impl Read for View<'_, Reference> {
    fn row(&self, b: usize, c: usize) -> &[f64] {
        &self.data[start(self.first, self.of, self.shape, b, c)..][..self.shape.positions()]
    }
}

impl Read for ViewMut<'_, Reference> {
    fn row(&self, b: usize, c: usize) -> &[f64] {
        &self.data[start(self.first, self.of, self.shape, b, c)..][..self.shape.positions()]
    }
}

/// Writes of a view.
trait Write: Read {
    /// The positions of a channel of an item.
    fn row_mut(&mut self, b: usize, c: usize) -> &mut [f64];

    fn set(&mut self, b: usize, c: usize, p: usize, value: f64) {
        self.row_mut(b, c)[p] = value;
    }

    /// Replaces every value by `f(batch, channel, position, value)`.
    fn fill(&mut self, f: impl Fn(usize, usize, usize, f64) -> f64);
}

impl Write for ViewMut<'_, Reference> {
    fn row_mut(&mut self, b: usize, c: usize) -> &mut [f64] {
        &mut self.data[start(self.first, self.of, self.shape, b, c)..][..self.shape.positions()]
    }

    fn fill(&mut self, f: impl Fn(usize, usize, usize, f64) -> f64) {
        for (b, c, p) in indices(self.shape) {
            self.set(b, c, p, f(b, c, p, self.get(b, c, p)));
        }
    }
}

/// Item, channel and position of every value.
fn indices(shape: Shape) -> impl Iterator<Item = (usize, usize, usize)> {
    let Shape { channels, batch, .. } = shape;
    let positions = shape.positions();
    (0..batch).flat_map(move |b| (0..channels).flat_map(move |c| (0..positions).map(move |p| (b, c, p))))
}

fn check_length(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

impl DeviceMemory for Reference {
    type Buffer = Vec<f64>;
    type Copies = ();
    type Late = Vec<f32>;

    fn alloc(&self, len: usize, _: Storage) -> Result<Vec<f64>> {
        Ok(vec![0.0; len])
    }

    fn bytes_per_value(&self, _: Storage) -> usize {
        size_of::<f64>()
    }

    fn upload(&self, from: &[f32], to: &mut Vec<f64>) -> Result<()> {
        if from.len() > to.len() {
            return Err(Error::Length { what: "upload", expected: to.len(), got: from.len() });
        }
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = f64::from(from));
        Ok(())
    }

    fn download(&self, from: &Vec<f64>, to: &mut [f32]) -> Result<()> {
        if to.len() > from.len() {
            return Err(Error::Length { what: "download", expected: from.len(), got: to.len() });
        }
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = from as f32);
        Ok(())
    }

    fn read_later(&self, from: &Vec<f64>, len: usize) -> Result<Vec<f32>> {
        let mut values = vec![0.0; len];
        self.download(from, &mut values)?;
        Ok(values)
    }

    fn arrived(&self, late: Vec<f32>) -> Result<Vec<f32>> {
        Ok(late)
    }

    fn write(&self, from: &[f32], mut to: ViewMut<Self>) -> Result<()> {
        check_length("write", to.shape.len(), from.len())?;
        let (channels, positions) = (to.shape.channels, to.shape.positions());
        to.fill(|b, c, p, _| f64::from(from[(b * channels + c) * positions + p]));
        self.store(&mut to)
    }

    fn write_frames(&self, from: &[f32], mut to: ViewMut<Self>) -> Result<()> {
        check_length("write", to.shape.len(), from.len())?;
        let Shape { channels, height, width, .. } = to.shape;
        to.fill(|b, c, p, _| {
            let (feature, frame) = (c * height + p / width, p % width);
            f64::from(from[(b * width + frame) * channels * height + feature])
        });
        self.store(&mut to)
    }

    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()> {
        check_length("read", from.shape.len(), to.len())?;
        for (to, (b, c, p)) in to.iter_mut().zip(indices(from.shape)) {
            *to = from.get(b, c, p) as f32;
        }
        Ok(())
    }

    fn refresh(&self, _: &Vec<f64>, _: Option<&Vec<f64>>, _: Block, (): &mut ()) -> Result<()> {
        Ok(())
    }
}

impl Collectives for Reference {
    type Support = ();
}

impl Capture for Reference {
    type Graph = ();
}
