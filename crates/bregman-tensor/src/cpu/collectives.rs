//! Gradients between ranks, in memory: packed into one message, and taken out again.

use std::sync::{MutexGuard, PoisonError};

use super::Cpu;
use crate::{Collectives, GradientPart, PendingSum, Ranks, Result};

impl Collectives for Cpu {
    const SUMS_OVERLAP: bool = true;

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

    fn start_sum(&self, share: f32, parts: &mut [GradientPart<'_, Self>]) -> Result<Option<PendingSum>> {
        let mut message = self.messages().pop().unwrap_or_default();
        message.clear();
        for part in parts {
            match part.support {
                None => message.extend(part.gradient.iter().map(|g| share * g)),
                Some(theta) => on_support(theta, |at| message.push(share * part.gradient[at])),
            }
        }
        Ok(Some(self.ranks.start_sum(message)))
    }

    fn finish_sum(&self, sum: Option<PendingSum>, parts: &mut [GradientPart<'_, Self>]) -> Result<()> {
        let Some(sum) = sum else { return Ok(()) };
        let message = sum.wait()?;
        let mut rest = &message[..];
        for part in parts {
            match part.support {
                None => {
                    let own = rest.split_off(..part.gradient.len()).expect("a sum is as long as what was sent");
                    part.gradient.copy_from_slice(own);
                }
                Some(theta) => {
                    let mut taken = 0;
                    on_support(theta, |at| {
                        part.gradient[at] = rest[taken];
                        taken += 1;
                    });
                    rest = &rest[taken..];
                }
            }
        }
        assert!(rest.is_empty(), "a sum is as long as what was sent");
        self.messages().push(message);
        Ok(())
    }
}

impl Cpu {
    /// Memory of messages that have arrived, for the next ones: new memory would have to be cleared first.
    fn messages(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Weights that are looked at together: at 95 % zeros two in three of such pieces have none that is not zero.
const PIECE: usize = 8;

/// Calls `each` with the places of the weights that are not zero, in order.
#[inline(always)]
fn on_support(theta: &[f32], mut each: impl FnMut(usize)) {
    for (start, piece) in (0..).step_by(PIECE).zip(theta.chunks(PIECE)) {
        if piece.iter().fold(false, |any, &x| any | (x != 0.0)) {
            (start..).zip(piece).filter(|(_, x)| **x != 0.0).for_each(|(at, _)| each(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_ranks;
    use bregman_base::Buffer;

    fn buffer(values: &[f32]) -> Buffer {
        let mut buffer = Buffer::zeros(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    #[test]
    fn gradients_are_averaged_and_those_of_zero_weights_do_not_travel() {
        let theta = [0.0, 1.0, 0.0, -2.0];
        std::thread::scope(|scope| {
            for (ranks, share) in thread_ranks(2).into_iter().zip([0.25, 0.75]) {
                scope.spawn(move || {
                    let cpu = Cpu::new().with_ranks(ranks.clone());
                    let own = ranks.rank() as f32;
                    let (theta, mut on_support) = (buffer(&theta), buffer(&[9.0, own, 9.0, 2.0 * own]));
                    let mut all = buffer(&[1.0, own]);
                    let mut parts = [
                        GradientPart { gradient: &mut on_support, support: Some(&theta) },
                        GradientPart { gradient: &mut all, support: None },
                    ];
                    let sum = cpu.start_sum(share, &mut parts).unwrap();
                    cpu.finish_sum(sum, &mut parts).unwrap();
                    assert_eq!(&on_support[..], [9.0, 0.75, 9.0, 1.5]);
                    assert_eq!(&all[..], [1.0, 0.75]);
                });
            }
        });
    }
}
