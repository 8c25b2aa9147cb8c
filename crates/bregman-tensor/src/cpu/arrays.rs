//! What an optimizer remembers, in memory: all of it, or this rank's part where ranks divide it among them.
//!
//! Divided, every rank has some rows of every tensor: it steps the weights of these rows, then all ranks exchange the
//! weights. A step changes each weight, or each group of them, which lies within a row, by itself, so that nothing
//! depends on how the rows are divided. Masks, duals and moments are a rank's own until a checkpoint asks for all.

use std::borrow::Cow;
use std::ops::Range;

use bregman::optimizer::{Arrays, Correction, Counted, DualKey, Duals, Engine, HostDuals, TensorState, TensorStep};
use bregman::select::Digit;
use bregman::{HostArrays, Param, Result};

use super::Buffer;
use crate::Ranks;

/// The arrays of an optimizer in this machine's memory.
#[derive(Debug)]
pub struct CpuArrays {
    own: HostArrays,
    division: Option<Division>,
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
        Self { own: arrays, division: None }
    }

    /// This rank's part of the arrays of these parameters.
    pub(super) fn part(arrays: HostArrays, params: &[Param], ranks: &Ranks) -> Self {
        let of_param = |param: &Param| {
            let (rows, row, size) = (param.shape.first().copied().unwrap_or(1), param.row_len(), ranks.size());
            (0..size).map(|rank| rows * rank / size * row..rows * (rank + 1) / size * row).collect()
        };
        let division = Division { ranks: ranks.clone(), ranges: params.iter().map(of_param).collect() };
        let own = division.cut(arrays);
        Self { own, division: Some(division) }
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

    /// Every rank's values of some tensors, from this rank's own, put where they belong.
    fn exchange(&self, own: &[u8], size: usize, mut put: impl FnMut(usize, Range<usize>, &[u8])) -> crate::Result<()> {
        for (rank, message) in self.ranks.gather(own)?.iter().enumerate() {
            let mut rest = &message[..];
            for (tensor, ranges) in self.ranges.iter().enumerate() {
                let range = ranges[rank].clone();
                let values = rest.split_off(..rest.len().min(size * range.len())).expect("at most all of it");
                put(tensor, range, values);
            }
        }
        Ok(())
    }

    /// The whole of one array of every tensor; empty where a tensor has none.
    fn gather<T: Copy + Default + bytemuck::Pod>(&self, own: &[&[T]]) -> crate::Result<Vec<Vec<T>>> {
        // a tensor without this array sends zeros, and all ranks agree on which tensors those are
        let absent: Vec<bool> =
            own.iter().enumerate().map(|(tensor, own)| own.is_empty() && !self.own(tensor).is_empty()).collect();
        let mut message = Vec::new();
        for (tensor, own) in own.iter().enumerate() {
            if absent[tensor] {
                message.resize(message.len() + size_of::<T>() * self.own(tensor).len(), 0);
            } else {
                message.extend_from_slice(bytemuck::cast_slice(own));
            }
        }
        let mut whole: Vec<Vec<T>> =
            self.ranges.iter().map(|ranges| vec![T::default(); ranges.last().map_or(0, |last| last.end)]).collect();
        self.exchange(&message, size_of::<T>(), |tensor, range, bytes| {
            bytemuck::cast_slice_mut(&mut whole[tensor][range]).copy_from_slice(bytes);
        })?;
        let present = self.ranks.gather(&absent.iter().map(|&absent| u8::from(absent)).collect::<Vec<u8>>())?;
        for (tensor, whole) in whole.iter_mut().enumerate() {
            if present.iter().any(|of_rank| of_rank[tensor] == 1) {
                whole.clear();
            }
        }
        Ok(whole)
    }
}

impl Arrays for CpuArrays {
    fn fetch(&self) -> Result<Cow<'_, [TensorState]>> {
        let Some(division) = &self.division else { return self.own.fetch() };
        let floats =
            |array: fn(&TensorState) -> &[f32]| division.gather(&self.own.iter().map(array).collect::<Vec<_>>());
        let [p, m, v] = [floats(|state| &state.p)?, floats(|state| &state.m)?, floats(|state| &state.v)?];
        let kept: Vec<Vec<u8>> =
            self.own.iter().map(|state| state.mask.iter().map(|&kept| u8::from(kept)).collect()).collect();
        let masks = division.gather(&kept.iter().map(Vec::as_slice).collect::<Vec<&[u8]>>())?;
        let state = |(((p, m), v), mask): (((_, _), _), Vec<u8>)| {
            let mask = mask.into_iter().map(|kept| kept != 0).collect();
            TensorState { p, m, v, mask }
        };
        Ok(Cow::Owned(p.into_iter().zip(m).zip(v).zip(masks).map(state).collect()))
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
            Some(_) => Ok(Cow::Owned(self.fetch()?[tensor].mask.clone())),
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
        let message: Vec<u8> = parts.iter().flat_map(|part| bytemuck::cast_slice::<f32, u8>(part)).copied().collect();
        division.exchange(&message, size_of::<f32>(), |tensor, range, bytes| {
            bytemuck::cast_slice_mut(&mut theta[tensor][range]).copy_from_slice(bytes);
        })?;
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
