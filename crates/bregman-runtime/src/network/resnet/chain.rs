//! The layers of a stage that [advance together](Wave), for stages whose maps are larger than the cache.

use bregman_base::Disjoint;

use super::super::maps::{Map, Shape};
use super::super::wave::{MAX_LAYERS, Wave};
use super::super::{Conv, Execution};
use super::ResNet;
use super::plane::{Plane, PlaneConv};
use crate::kernels::{Epilogue, Offsets};

/// The convolutions of a stage, all of them plain sums, without the splitting into phases.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a> {
    shape: Shape,
    wave: Wave,
    links: [Option<Link<'a>>; MAX_LAYERS],
    /// The map with the output.
    pub(super) output: usize,
}

/// `y = relu(conv(x) + residual)` of maps of a stage.
#[derive(Clone, Copy)]
struct Link<'a> {
    plain: PlaneConv<'a>,
    /// None for what the stage begins with.
    x: Option<usize>,
    residual: Option<usize>,
    y: usize,
}

/// Bytes of a map beyond which a stage's layers [advance together](Wave): below, it stays in the second-level cache.
const LARGE: usize = 1 << 20;
/// Bytes that layers which advance together may have between the first of them and the last, for the same reason.
const SPAN: usize = 3 << 18;

impl ResNet {
    /// The convolutions of a stage, if they are faster together.
    pub(super) fn chain<'a>(
        &'a self,
        run: &Execution,
        planes: &[Plane; 4],
        offsets: &'a [Offsets],
        stage: usize,
    ) -> Option<Chain<'a>> {
        let (plane, channels) = (planes[stage], self.stages[stage].channels);
        let (mut links, mut count, mut current) = ([None; MAX_LAYERS], 0, 0);
        let mut add = |conv: &'a Conv, x: Option<usize>, residual: Option<usize>, y: usize| {
            let plain = PlaneConv { conv, offsets: &offsets[conv.layer], plane };
            *links.get_mut(count)? = Some(Link { plain, x, residual, y });
            count += 1;
            conv.weights.winograd().is_none().then_some(())
        };
        if stage == 0 {
            add(&self.stem, None, None, current)?;
        }
        for block in self.blocks.iter().filter(|block| block.stage == stage) {
            if block.strided {
                add(&block.first, None, None, 1)?;
                add(block.shortcut.as_ref()?, None, None, 0)?;
                add(&block.second, Some(1), Some(0), 2)?;
                current = 2;
            } else {
                add(&block.first, Some(current), None, 1)?;
                add(&block.second, Some(1), Some(current), 2 - current)?;
                current = 2 - current;
            }
        }
        let block = links[0].as_ref()?.plain.conv.weights.block();
        let blocks = plane.positions().div_ceil(block);
        let wave = Wave { layers: count, blocks, reach: (plane.pitch + 1).div_ceil(block) };
        let shape = plane.shape(channels);
        let span = 4 * (count + 1) * (plane.pitch + 1 + block) * channels;
        let pays = 4 * shape.length > LARGE && span <= SPAN && wave.suits(run.threads());
        pays.then_some(Chain { shape, wave, links, output: current })
    }
}

impl Chain<'_> {
    /// From what the stage begins with to the map of its output.
    pub(super) fn run(&self, run: &mut Execution, first: &[f32], maps: &mut [Map; 3]) {
        let arch = run.arch;
        let maps = maps.each_mut().map(|map| Disjoint::new(map.rows_to_write(self.shape)));
        let link = |layer: usize| self.links[layer].as_ref().expect("as many as layers");
        self.wave.run(
            run,
            |layer| link(layer).plain.conv.layer,
            |layer, block| {
                let Link { plain, x, residual, y } = *link(layer);
                let x = x.map_or(first.into(), |x| maps[x].into());
                let epilogue = Epilogue { residual: residual.map(|map| maps[map].into()), ..plain.conv.epilogue(None) };
                // SAFETY: each call has its own positions of y; all that reads a map there has been computed, or comes
                // later, in the order of `Wave`.
                unsafe { plain.block(arch, block, x, &epilogue, maps[y]) };
            },
        );
    }
}
