//! Gradients between ranks, in memory: packed into one message, and taken out again.

use std::sync::{MutexGuard, PoisonError};

use rayon::prelude::*;

use super::{Buffer, Cpu};
use crate::{Collectives, PendingSum, Ranks, Result, SupportPart};

impl Collectives for Cpu {
    const SUMS_OVERLAP: bool = true;

    /// By parameter: the places in it, or all of it.
    type Support = Vec<Option<Vec<u32>>>;

    fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    fn join_norms(&mut self) -> Result<()> {
        self.joint_norms = !self.ranks.is_alone();
        Ok(())
    }

    fn divide_optimizer(&mut self) -> Result<()> {
        self.divides_optimizer = !self.ranks.is_alone();
        Ok(())
    }

    fn start_sum(&self, share: f32, gradients: &mut [&mut Buffer]) -> Result<Option<PendingSum>> {
        let mut message = self.message();
        gradients.iter().for_each(|gradient| message.extend(gradient.iter().map(|g| share * g)));
        Ok(Some(self.ranks.start_sum(message)))
    }

    fn finish_sum(&self, sum: Option<PendingSum>, gradients: &mut [&mut Buffer]) -> Result<()> {
        let Some(sum) = sum else { return Ok(()) };
        let message = sum.wait()?;
        let mut rest = &message[..];
        for gradient in gradients {
            let sums = take(&mut rest, gradient.len());
            gradient.copy_from_slice(sums);
        }
        self.read(message);
        Ok(())
    }

    fn find_support(&self, parts: &[SupportPart<'_, Self>], support: &mut Vec<Option<Vec<u32>>>) -> Result<()> {
        support.resize_with(parts.len(), || None);
        support.par_iter_mut().zip(parts.par_iter()).for_each(|(places, part)| match part.support {
            Some(support) => find_nonzeros(support, places.get_or_insert_default()),
            None => *places = None,
        });
        Ok(())
    }

    fn sum_support(
        &self,
        share: f32,
        parts: &mut [SupportPart<'_, Self>],
        support: &Vec<Option<Vec<u32>>>,
    ) -> Result<()> {
        let mut message = self.message();
        for (part, places) in parts.iter().zip(support) {
            match places {
                None => message.extend(part.gradient.iter().map(|g| share * g)),
                Some(places) => message.extend(places.iter().map(|&at| share * part.gradient[at as usize])),
            }
        }
        let message = self.ranks.start_sum(message).wait()?;
        let mut rest = &message[..];
        for (part, places) in parts.iter_mut().zip(support) {
            match places {
                None => {
                    let sums = take(&mut rest, part.gradient.len());
                    part.gradient.copy_from_slice(sums);
                }
                Some(places) => {
                    let sums = places.iter().zip(take(&mut rest, places.len()));
                    sums.for_each(|(&at, &sum)| part.gradient[at as usize] = sum);
                }
            }
        }
        self.read(message);
        Ok(())
    }
}

/// The next values of a message.
fn take<'a>(rest: &mut &'a [f32], len: usize) -> &'a [f32] {
    rest.split_off(..len).expect("a sum is as long as what was sent")
}

impl Cpu {
    /// Memory for a message: that of one that has arrived, since new memory would have to be cleared first.
    fn message(&self) -> Vec<f32> {
        let mut message = self.messages().pop().unwrap_or_default();
        message.clear();
        message
    }

    /// Keeps the memory of a message that has been read.
    fn read(&self, message: Vec<f32>) {
        self.messages().push(message);
    }

    fn messages(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places that are looked at together: at 95 % zeros two in three of such pieces have none that is not zero.
const PIECE: usize = 8;

/// Puts the places of the values that are not zero into `places`, in order.
fn find_nonzeros(values: &[f32], places: &mut Vec<u32>) {
    places.clear();
    for (start, piece) in (0u32..).step_by(PIECE).zip(values.chunks(PIECE)) {
        if piece.iter().fold(false, |any, &x| any | (x != 0.0)) {
            places.extend((start..).zip(piece).filter(|(_, x)| **x != 0.0).map(|(at, _)| at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_ranks;

    fn buffer(values: &[f32]) -> Buffer {
        let mut buffer = Buffer::zeros(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    #[test]
    fn gradients_are_averaged_and_those_of_zero_weights_do_not_travel() {
        std::thread::scope(|scope| {
            for (ranks, share) in thread_ranks(2).into_iter().zip([0.25, 0.75]) {
                scope.spawn(move || {
                    let cpu = Cpu::new().with_ranks(ranks.clone());
                    let own = ranks.rank() as f32;
                    let mut gradients = [buffer(&[3.0]), buffer(&[1.0, own])];
                    let mut both: Vec<&mut Buffer> = gradients.iter_mut().collect();
                    let sum = cpu.start_sum(share, &mut both).unwrap();
                    cpu.finish_sum(sum, &mut both).unwrap();
                    assert_eq!([&gradients[0][..], &gradients[1][..]], [&[3.0][..], &[1.0, 0.75]]);

                    let (theta, mut sparse) = (buffer(&[0.0, 1.0, 0.0, -2.0]), buffer(&[9.0, own, 9.0, 2.0 * own]));
                    let mut all = buffer(&[1.0, own]);
                    let mut parts = [
                        SupportPart { gradient: &mut sparse, support: Some(&theta) },
                        SupportPart { gradient: &mut all, support: None },
                    ];
                    let mut support = Vec::new();
                    cpu.find_support(&parts, &mut support).unwrap();
                    assert_eq!(support, [Some(vec![1, 3]), None]);
                    cpu.sum_support(share, &mut parts, &support).unwrap();
                    assert_eq!(&sparse[..], [9.0, 0.75, 9.0, 1.5]);
                    assert_eq!(&all[..], [1.0, 0.75]);
                });
            }
        });
    }
}
