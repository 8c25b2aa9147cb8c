//! What an optimizer remembers, in memory: all of it, or this rank's part where ranks divide it among them.
//!
//! Divided, every rank has some rows of every tensor: it steps the weights of these rows, then all ranks exchange the
//! weights. A step changes each weight, or each group of them, which lies within a row, by itself, so that nothing
//! depends on how the rows are divided. Masks, duals and moments are a rank's own until a checkpoint asks for all.

use std::borrow::Cow;
use std::ops::Range;

use bregman::optimizer::{
    Arrays, Correction, Counted, Deferred, DualKey, Duals, Engine, HostDuals, TensorState, TensorStep,
};
use bregman::select::Digit;
use bregman::{HostArrays, Param, Result};

use super::Buffer;
use crate::Ranks;

/// The arrays of an optimizer in this machine's memory.
#[derive(Debug)]
pub struct CpuArrays {
    own: HostArrays,
    division: Option<Division>,
    /// What the last pass counted.
    counted: Vec<Counted>,
}

/// Which values of every tensor are whose.
#[derive(Debug)]
struct Division {
    ranks: Ranks,
    /// By tensor, by rank.
    ranges: Vec<Vec<Range<usize>>>,
}

impl CpuArrays {
    /// All arrays.
    pub(super) fn whole(arrays: HostArrays) -> Self {
        Self { own: arrays, division: None, counted: vec![] }
    }

    /// This rank's part of the arrays of these parameters.
    pub(super) fn part(arrays: HostArrays, params: &[Param], ranks: &Ranks) -> Self {
        let of_param = |param: &Param| {
            let (rows, row, size) = (param.shape.first().copied().unwrap_or(1), param.row_len(), ranks.size());
            (0..size).map(|rank| rows * rank / size * row..rows * (rank + 1) / size * row).collect()
        };
        let division = Division { ranks: ranks.clone(), ranges: params.iter().map(of_param).collect() };
        let own = division.cut(arrays);
        Self { own, division: Some(division), counted: vec![] }
    }
}

impl Division {
    /// This rank's values of a tensor.
    fn own(&self, tensor: usize) -> Range<usize> {
        self.ranges[tensor][self.ranks.rank()].clone()
    }

    /// This rank's part of whole arrays.
    fn cut(&self, arrays: HostArrays) -> HostArrays {
        let cut = |(tensor, state): (usize, TensorState)| {
            let floats = |values: Vec<f32>| values.get(self.own(tensor)).unwrap_or_default().to_vec();
            let mask = state.mask.get(self.own(tensor)).unwrap_or_default().to_vec();
            TensorState { p: floats(state.p), m: floats(state.m), v: floats(state.v), mask }
        };
        arrays.into_iter().enumerate().map(cut).collect()
    }

    /// Puts every rank's weights into place, of which this rank has stepped its own.
    fn exchange(&self, theta: &mut [&mut Buffer]) -> crate::Result<()> {
        let parts = theta.iter().enumerate().map(|(tensor, theta)| &theta[self.own(tensor)]);
        let own: Vec<u8> = parts.flat_map(bytemuck::cast_slice::<f32, u8>).copied().collect();
        for (rank, message) in self.ranks.gather(&own)?.iter().enumerate() {
            let mut rest = &message[..];
            for (theta, ranges) in theta.iter_mut().zip(&self.ranges) {
                let part = &mut theta[ranges[rank].clone()];
                let bytes = rest.split_off(..size_of_val(part)).expect("every rank sends all of its rows");
                bytemuck::cast_slice_mut(part).copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// The whole of one array of a tensor, whose parts follow each other by rank; empty where the tensor has none.
    fn gather<T: bytemuck::Pod>(&self, own: &[T]) -> crate::Result<Vec<T>> {
        let all = self.ranks.gather(bytemuck::cast_slice(own))?.concat();
        Ok(all.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    fn gather_mask(&self, own: &[bool]) -> crate::Result<Vec<bool>> {
        let own: Vec<u8> = own.iter().map(|&kept| u8::from(kept)).collect();
        Ok(self.gather(&own)?.into_iter().map(|kept| kept != 0).collect())
    }
}

impl Arrays for CpuArrays {
    fn fetch(&self) -> Result<Cow<'_, [TensorState]>> {
        let Some(division) = &self.division else { return self.own.fetch() };
        let whole = |own: &TensorState| -> crate::Result<TensorState> {
            let [p, m, v] = [division.gather(&own.p)?, division.gather(&own.m)?, division.gather(&own.v)?];
            Ok(TensorState { p, m, v, mask: division.gather_mask(&own.mask)? })
        };
        Ok(Cow::Owned(self.own.iter().map(whole).collect::<crate::Result<_>>()?))
    }

    fn replace(&mut self, arrays: HostArrays) -> Result<()> {
        self.own = match &self.division {
            Some(division) => division.cut(arrays),
            None => arrays,
        };
        Ok(())
    }

    fn mask(&self, tensor: usize) -> Result<Cow<'_, [bool]>> {
        match &self.division {
            None => self.own.mask(tensor),
            Some(division) => Ok(Cow::Owned(division.gather_mask(&self.own[tensor].mask)?)),
        }
    }

    fn duals(&mut self, keys: Vec<DualKey>) -> Result<impl Duals + '_> {
        let ranks = self.division.as_ref().map_or(Ranks::ALONE, |division| division.ranks.clone());
        let own = HostDuals::new(self.own.iter().map(|state| &*state.p).collect(), keys);
        Ok(CpuDuals { own, ranks })
    }
}

impl Engine<Buffer> for CpuArrays {
    fn pass(&mut self, theta: &mut [&mut Buffer], grads: &[&Buffer], steps: &[TensorStep]) -> Result<Vec<Counted>> {
        let Some(division) = &self.division else { return self.own.pass(theta, grads, steps) };
        let mut parts: Vec<&mut [f32]> =
            theta.iter_mut().enumerate().map(|(tensor, theta)| &mut theta[division.own(tensor)]).collect();
        let grads: Vec<&[f32]> = grads.iter().enumerate().map(|(tensor, grad)| &grad[division.own(tensor)]).collect();
        let mut counted = self.own.pass(&mut parts, &grads, steps)?;
        division.exchange(theta)?;
        division.add_counts(&mut counted)?;
        Ok(counted)
    }

    fn correct(&mut self, theta: &[&Buffer], corrections: &[Option<Correction>]) -> Result<()> {
        let Some(division) = &self.division else { return self.own.correct(theta, corrections) };
        let parts: Vec<&[f32]> = theta.iter().enumerate().map(|(tensor, theta)| &theta[division.own(tensor)]).collect();
        self.own.correct(&parts, corrections)
    }

    fn set_mask(&mut self, tensor: usize, mask: &[bool], theta: &mut Buffer) -> Result<()> {
        let Some(division) = &self.division else { return self.own.set_mask(tensor, mask, theta) };
        let own = mask.get(division.own(tensor)).unwrap_or_default();
        theta.iter_mut().zip(mask).filter(|(_, kept)| !**kept).for_each(|(x, _)| *x = 0.0);
        self.own.set_mask(tensor, own, &mut theta[division.own(tensor)])
    }

    fn len(values: &Buffer) -> usize {
        values.len()
    }

    fn read(values: &Buffer) -> Result<Cow<'_, [f32]>> {
        Ok(Cow::Borrowed(values))
    }
}

/// Passes are over when they return.
impl Deferred<Buffer> for CpuArrays {
    fn launch(&mut self, theta: &mut [&mut Buffer], grads: &[&Buffer], steps: &[TensorStep]) -> Result<()> {
        self.counted = self.pass(theta, grads, steps)?;
        Ok(())
    }

    fn settle(&mut self) -> Result<Vec<Counted>> {
        Ok(std::mem::take(&mut self.counted))
    }
}

impl Division {
    /// What all ranks counted, from what this one counted in its rows.
    fn add_counts(&self, counted: &mut [Counted]) -> crate::Result<()> {
        let mut sums: Vec<f64> =
            counted.iter().flat_map(|counted| [counted.zeros as f64, counted.sum_squares]).collect();
        self.ranks.sum(&mut sums)?;
        let own = counted.iter().enumerate().find_map(|(tensor, counted)| {
            let (at, value) = counted.non_finite?;
            Some((tensor as u64, (self.own(tensor).start + at) as u64, value))
        });
        let message = own.map_or_else(Vec::new, |(tensor, at, value)| {
            [&tensor.to_le_bytes()[..], &at.to_le_bytes(), &value.to_le_bytes()].concat()
        });
        let found = self.ranks.gather(&message)?;
        for (counted, sums) in counted.iter_mut().zip(sums.chunks_exact(2)) {
            *counted = Counted { zeros: sums[0] as u64, sum_squares: sums[1], non_finite: None };
        }
        for message in found.iter().filter(|message| !message.is_empty()) {
            let number = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().expect("eight bytes")) as usize;
            let value = f32::from_le_bytes(message[16..].try_into().expect("four bytes"));
            counted[number(0)].non_finite.get_or_insert((number(8), value));
        }
        Ok(())
    }
}

/// Duals of which each rank has its part: counts are added.
struct CpuDuals<'a> {
    own: HostDuals<'a>,
    ranks: Ranks,
}

impl Duals for CpuDuals<'_> {
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> Result<()> {
        if self.ranks.is_alone() {
            return self.own.histogram(tensors, digit, bins);
        }
        let mut own = vec![0; bins.len()];
        self.own.histogram(tensors, digit, &mut own)?;
        let mut sums: Vec<f64> = own.into_iter().map(|count| count as f64).collect();
        self.ranks.sum(&mut sums)?;
        bins.iter_mut().zip(sums).for_each(|(bin, sum)| *bin += sum as u64);
        Ok(())
    }

    fn live_at(&self, tensors: &[usize], lambda: f64) -> Result<u64> {
        let mut count = [self.own.live_at(tensors, lambda)? as f64];
        self.ranks.sum(&mut count)?;
        Ok(count[0] as u64)
    }
}
