//! Layers that advance together over blocks of positions, each as far behind the one before as its kernel reaches, so
//! that a layer reads what is still in the cache. Layer by layer, maps that are larger than the cache go to memory and
//! back between any two layers.
//!
//! Block b of a layer needs the blocks b − reach ..= b + reach of the one before. Each thread therefore computes its
//! own share of the blocks, less `reach` on either side in every further layer; then all threads compute what is
//! missing between the shares, layer by layer:
//! ```text
//! layer 0   aaaaaaaaaaaa|bbbbbbbbbbbb
//! layer 1   aaaaaaaaaa  |  bbbbbbbbbb
//! layer 2   aaaaaaaa    |    bbbbbbbb
//! ```
//! A layer may write over what one before it has read: by the time that it comes to a block, those before it are done
//! with all that lies within their reach of it.

use std::ops::Range;

use super::Execution;

/// Layers at most.
pub(super) const MAX_LAYERS: usize = 16;

/// Blocks of a layer that are computed at a time.
const VISIT: usize = 4;

/// How layers advance.
#[derive(Clone, Copy)]
pub(super) struct Wave {
    pub(super) layers: usize,
    pub(super) blocks: usize,
    /// Blocks on either side that a block needs of the layer before.
    pub(super) reach: usize,
}

impl Wave {
    /// Whether each of `threads` threads has enough to do in a share of its own.
    pub(super) fn suits(self, threads: usize) -> bool {
        self.layers <= MAX_LAYERS && self.blocks / threads >= 2 * self.reach * self.layers + VISIT
    }

    /// Calls `work` for every layer and block.
    ///
    /// # Panics
    /// If it does not [suit](Wave::suits) the threads.
    pub(super) fn run(self, run: &mut Execution, number: impl Fn(usize) -> usize, work: impl Fn(usize, usize) + Sync) {
        let threads = run.threads();
        assert!(self.suits(threads), "shares that are too small");
        if threads == 1 {
            self.sweep(0, 1, |layer, blocks| {
                run.timed(number(layer), |_| blocks.for_each(|block| work(layer, block)));
            });
            return;
        }
        run.each(threads, |share| {
            self.sweep(share, threads, |layer, blocks| blocks.for_each(|block| work(layer, block)));
        });
        for layer in 1..self.layers {
            let side = layer * self.reach;
            run.each((threads - 1) * 2 * side, |task| {
                let border = self.begin(task / (2 * side) + 1, threads);
                work(layer, border - side + task % (2 * side));
            });
        }
    }

    fn begin(self, share: usize, shares: usize) -> usize {
        share * self.blocks / shares
    }

    /// What a thread computes of a layer by itself.
    fn own(self, layer: usize, share: usize, shares: usize) -> Range<usize> {
        let [begin, end] = [share, share + 1].map(|share| self.begin(share, shares));
        let side = layer * self.reach;
        begin + if share > 0 { side } else { 0 }..end - if share + 1 < shares { side } else { 0 }
    }

    /// Calls `visit` with the layers and blocks of a share, in an order in which all that a block needs is there.
    fn sweep(self, share: usize, shares: usize, mut visit: impl FnMut(usize, Range<usize>)) {
        let mut next = [0; MAX_LAYERS];
        (0..self.layers).for_each(|layer| next[layer] = self.own(layer, share, shares).start);
        let done = |layer: usize, next: &[usize; MAX_LAYERS]| next[layer] == self.own(layer, share, shares).end;
        while !done(self.layers - 1, &next) {
            for layer in 0..self.layers {
                let mut end = self.own(layer, share, shares).end.min(next[layer] + VISIT);
                if layer > 0 && !done(layer - 1, &next) {
                    end = end.min(next[layer - 1].saturating_sub(self.reach));
                }
                if next[layer] < end {
                    visit(layer, next[layer]..end);
                    next[layer] = end;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pulp::Arch;

    use super::*;
    use crate::team::Team;

    fn check(wave: Wave, threads: usize) {
        let Wave { layers, blocks, reach } = wave;
        let done: Vec<Vec<AtomicBool>> =
            (0..layers).map(|_| (0..blocks).map(|_| AtomicBool::new(false)).collect()).collect();
        let order = Mutex::new(Vec::new());
        let work = |layer: usize, block: usize| {
            let near = block.saturating_sub(reach)..(block + reach + 1).min(blocks);
            if layer > 0 {
                let ready = near.clone().all(|block| done[layer - 1][block].load(Ordering::SeqCst));
                assert!(ready, "layer {layer}, block {block}: what it needs is not there");
            }
            // what it writes may be what any earlier layer has read
            let free = done[..layer].iter().all(|done| near.clone().all(|block| done[block].load(Ordering::SeqCst)));
            assert!(free, "layer {layer}, block {block}: an earlier layer still reads there");
            assert!(!done[layer][block].swap(true, Ordering::SeqCst), "layer {layer}, block {block}: twice");
            order.lock().unwrap().push(layer);
        };
        let mut run = Execution { arch: Arch::Scalar, team: None, times: None };
        if threads == 1 {
            wave.run(&mut run, |layer| layer, work);
        } else {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            Team::of(&pool, |team| {
                wave.run(&mut Execution { arch: Arch::Scalar, team: Some(team), times: None }, |layer| layer, work)
            });
        }
        assert!(done.iter().flatten().all(|done| done.load(Ordering::SeqCst)), "{layers} layers, {threads} threads");
        let order = order.into_inner().unwrap();
        let last = order.iter().position(|&layer| layer + 1 == layers).unwrap();
        assert!(layers == 1 || order[last..].contains(&0), "layers follow each other one by one");
    }

    #[test]
    fn every_block_is_computed_once_and_after_what_it_needs() {
        for [layers, blocks, reach, threads] in
            [[1, 8, 1, 1], [3, 40, 2, 1], [7, 301, 4, 1], [7, 301, 4, 2], [9, 150, 2, 3], [16, 400, 1, 4]]
        {
            let wave = Wave { layers, blocks, reach };
            assert!(wave.suits(threads), "{layers} layers, {blocks} blocks, {threads} threads");
            check(wave, threads);
        }
    }

    #[test]
    fn small_shares_are_not_for_it() {
        assert!(!Wave { layers: 7, blocks: 100, reach: 4 }.suits(2));
        assert!(!Wave { layers: MAX_LAYERS + 1, blocks: 1000, reach: 1 }.suits(1));
    }
}
