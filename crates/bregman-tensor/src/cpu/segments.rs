//! Segments of a signal: a row of frames lies contiguous, and so do the values of its segments.

use rayon::prelude::*;

use super::Cpu;
use super::math::{SERIAL, simd, sum, sum_over};
use crate::{Result, Segments, View, ViewMut};

impl Segments for Cpu {
    fn segment_context(&self, x: View<Self>, length: usize, context: ViewMut<Self>) -> Result<()> {
        let (n, segments) = (x.shape.width, x.shape.segments(length));
        let rows = context.slice().par_chunks_mut(segments).zip(x.slice().par_chunks(n));
        rows.with_min_len(SERIAL.div_ceil(n)).for_each(|(context, x)| {
            let mut total = 0.0;
            for (context, x) in context.iter_mut().zip(x.chunks(length)) {
                let sum = simd!(sum(x, |x| x));
                total += sum;
                *context = sum / x.len() as f32;
            }
            let mean = total / n as f32;
            context.iter_mut().for_each(|context| *context += mean);
        });
        Ok(())
    }

    fn segment_context_backward(&self, dcontext: View<Self>, length: usize, dx: ViewMut<Self>) -> Result<()> {
        let (n, segments) = (dx.shape.width, dx.shape.segments(length));
        let rows = dx.slice().par_chunks_mut(n).zip(dcontext.slice().par_chunks(segments));
        rows.with_min_len(SERIAL.div_ceil(n)).for_each(|(dx, dcontext)| {
            let share = dcontext.iter().sum::<f32>() / n as f32;
            for (dx, dcontext) in dx.chunks_mut(length).zip(dcontext) {
                let add = share + dcontext / dx.len() as f32;
                simd!(dx.iter_mut().for_each(|dx| *dx += add));
            }
        });
        Ok(())
    }

    fn segment_gate(&self, x: View<Self>, gate: View<Self>, length: usize, y: ViewMut<Self>) -> Result<()> {
        let (n, segments) = (x.shape.width, x.shape.segments(length));
        let rows = y.slice().par_chunks_mut(n).zip(x.slice().par_chunks(n)).zip(gate.slice().par_chunks(segments));
        rows.with_min_len(SERIAL.div_ceil(n)).for_each(|((y, x), gate)| {
            for ((y, x), &gate) in y.chunks_mut(length).zip(x.chunks(length)).zip(gate) {
                simd!(y.iter_mut().zip(x).for_each(|(y, &x)| *y = gate * x));
            }
        });
        Ok(())
    }

    fn segment_gate_backward(
        &self,
        x: View<Self>,
        gate: View<Self>,
        dy: View<Self>,
        length: usize,
        dgate: ViewMut<Self>,
        dx: ViewMut<Self>,
    ) -> Result<()> {
        let (n, segments) = (x.shape.width, x.shape.segments(length));
        let (x, gate, dy) = (x.slice(), gate.slice(), dy.slice());
        let results = dx.slice().par_chunks_mut(n).zip(dgate.slice().par_chunks_mut(segments));
        let rows = results.zip(x.par_chunks(n)).zip(dy.par_chunks(n)).zip(gate.par_chunks(segments));
        rows.with_min_len(SERIAL.div_ceil(n)).for_each(|((((dx, dgate), x), dy), gate)| {
            let pieces = dx.chunks_mut(length).zip(x.chunks(length)).zip(dy.chunks(length));
            for (((dx, x), dy), (dgate, &gate)) in pieces.zip(dgate.iter_mut().zip(gate)) {
                *dgate = simd!(sum_over(x, dy, |x, dy| x * dy));
                simd!(dx.iter_mut().zip(dy).for_each(|(dx, &dy)| *dx = gate * dy));
            }
        });
        Ok(())
    }
}
