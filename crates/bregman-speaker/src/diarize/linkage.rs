//! Agglomerative clustering with average linkage: the two groups whose members are most alike on average are joined,
//! again and again.
//!
//! The mean cosine between the members of two groups is the dot product of the groups' mean vectors, so a group is its
//! mean and its size, and nothing else of it is needed. Joins are found by nearest-neighbour chains in O(n²); they come
//! out in another order than by similarity, which sorting repairs since average linkage never makes a later join more
//! similar than the ones it is made of.

use rayon::prelude::*;

use crate::score::Embeddings;

/// More rows are first reduced in blocks of so many, since all pairs of a block are in memory.
const BLOCK: usize = 4096;
/// What a block of a long recording is reduced to.
const REDUCED: usize = BLOCK / 8;

/// When to stop joining.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stop {
    /// At so many groups of at least `least` rows; smaller ones are left out of the count. If there are never as many,
    /// at so many groups of any size.
    Groups {
        /// How many.
        count: usize,
        /// Rows of a group that counts.
        least: usize,
    },
    /// When no two groups have a mean cosine above it.
    Below(f64),
}

/// Vectors as one.
#[derive(Debug, Clone)]
struct Group {
    mean: Vec<f32>,
    size: f32,
}

/// The group of every row, numbered from 0 in the order of their first rows. Rows must have length 1.
pub(super) fn cluster(rows: &Embeddings, stop: Stop) -> Vec<usize> {
    let single = |row: usize| Group { mean: rows.row(row).to_vec(), size: 1.0 };
    let mut groups: Vec<Group> = (0..rows.len()).map(single).collect();
    let mut labels: Vec<usize> = (0..rows.len()).collect();
    while groups.len() > BLOCK {
        let (mut smaller, mut of_group) = (Vec::new(), Vec::new());
        for block in groups.chunks(BLOCK) {
            let joined = join(block, Stop::Groups { count: REDUCED.min(block.len()), least: 1 });
            of_group.extend(joined.iter().map(|label| smaller.len() + label));
            smaller.extend(means(block, &joined));
        }
        labels.iter_mut().for_each(|label| *label = of_group[*label]);
        groups = smaller;
    }
    let joined = join(&groups, stop);
    in_order(labels.into_iter().map(|label| joined[label]))
}

/// Numbers from 0 in the order of appearance.
pub(super) fn in_order(labels: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut known: Vec<usize> = Vec::new();
    let number = |label: usize| {
        known.iter().position(|&other| other == label).unwrap_or_else(|| {
            known.push(label);
            known.len() - 1
        })
    };
    labels.into_iter().map(number).collect()
}

/// The groups of the labels.
fn means(groups: &[Group], labels: &[usize]) -> Vec<Group> {
    let count = labels.iter().max().map_or(0, |&last| last + 1);
    let mut sums = vec![Group { mean: vec![0.0; groups.first().map_or(0, |g| g.mean.len())], size: 0.0 }; count];
    for (group, &label) in groups.iter().zip(labels) {
        let sum = &mut sums[label];
        sum.size += group.size;
        sum.mean.iter_mut().zip(&group.mean).for_each(|(sum, x)| *sum += group.size * x);
    }
    sums.iter_mut().for_each(|sum| sum.mean.iter_mut().for_each(|x| *x /= sum.size));
    sums
}

/// Joins groups until `stop`; the label of each.
fn join(groups: &[Group], stop: Stop) -> Vec<usize> {
    let mut joins = joins(groups);
    joins.sort_by(|a, b| b.similarity.total_cmp(&a.similarity)); // stable: of equal ones, the earlier is inside
    let wanted = match stop {
        Stop::Below(threshold) => joins.partition_point(|join| f64::from(join.similarity) > threshold),
        Stop::Groups { count, least } => last_with(groups, &joins, count, least as f32)
            .or_else(|| last_with(groups, &joins, count, 1.0))
            .unwrap_or(0),
    };
    let mut forest = Forest::new(groups);
    joins[..wanted].iter().for_each(|join| _ = forest.join(join));
    in_order((0..groups.len()).map(|at| forest.root(at)))
}

/// The most joins after which there are `count` groups of at least `least` rows.
fn last_with(groups: &[Group], joins: &[Join], count: usize, least: f32) -> Option<usize> {
    let mut forest = Forest::new(groups);
    let mut large = groups.iter().filter(|group| group.size >= least).count();
    let mut last = (large >= count).then_some(0);
    for (done, join) in (1..).zip(joins) {
        let [a, b, both] = forest.join(join).map(|size| usize::from(size >= least));
        large = large + both - a - b;
        if large >= count {
            last = Some(done);
        }
    }
    last
}

/// Which groups are one by now.
struct Forest {
    parent: Vec<usize>,
    size: Vec<f32>,
}

impl Forest {
    fn new(groups: &[Group]) -> Self {
        Self { parent: (0..groups.len()).collect(), size: groups.iter().map(|group| group.size).collect() }
    }

    fn root(&self, mut at: usize) -> usize {
        while self.parent[at] != at {
            at = self.parent[at];
        }
        at
    }

    /// Joins two; their sizes and that of both together.
    fn join(&mut self, join: &Join) -> [f32; 3] {
        let (a, b) = (self.root(join.a), self.root(join.b));
        let sizes = [self.size[a], self.size[b], self.size[a] + self.size[b]];
        // the smaller below the larger: paths stay short
        let (above, below) = if sizes[0] >= sizes[1] { (a, b) } else { (b, a) };
        self.parent[below] = above;
        self.size[above] = sizes[2];
        sizes
    }
}

/// Two groups that were joined, each by one of its members.
struct Join {
    a: usize,
    b: usize,
    similarity: f32,
}

/// All joins until one group is left.
fn joins(groups: &[Group]) -> Vec<Join> {
    let n = groups.len();
    let mut similar = vec![0f32; n * n];
    similar.par_chunks_mut(n.max(1)).enumerate().for_each(|(row, out)| {
        for (column, out) in out.iter_mut().enumerate() {
            *out = groups[row].mean.iter().zip(&groups[column].mean).map(|(a, b)| a * b).sum();
        }
    });
    let mut size: Vec<f32> = groups.iter().map(|group| group.size).collect();
    let mut active: Vec<usize> = (0..n).collect();
    let (mut chain, mut joins): (Vec<usize>, Vec<Join>) =
        (Vec::with_capacity(n), Vec::with_capacity(n.saturating_sub(1)));
    while active.len() > 1 {
        let Some(&end) = chain.last() else {
            chain.push(active[0]);
            continue;
        };
        let before = chain.len().checked_sub(2).map(|at| chain[at]);
        // of equally similar ones the last of the chain, so that the chain ends
        let mut nearest = before.unwrap_or_else(|| if active[0] == end { active[1] } else { active[0] });
        for &other in active.iter().filter(|&&other| other != end) {
            if similar[end * n + other] > similar[end * n + nearest] {
                nearest = other;
            }
        }
        if Some(nearest) != before {
            chain.push(nearest);
            continue;
        }
        chain.truncate(chain.len() - 2);
        let (a, b) = (end, nearest);
        joins.push(Join { a, b, similarity: similar[a * n + b] });
        active.retain(|&other| other != b);
        for &other in active.iter().filter(|&&other| other != a) {
            let mean = (size[a] * similar[a * n + other] + size[b] * similar[b * n + other]) / (size[a] + size[b]);
            (similar[a * n + other], similar[other * n + a]) = (mean, mean);
        }
        size[a] += size[b];
    }
    joins
}

#[cfg(test)]
mod tests {
    use bregman_base::Rng;
    use proptest::prelude::*;

    use super::*;

    /// `count` vectors around each of some directions, in turn.
    fn around(centres: usize, count: usize, spread: f64, seed: u64) -> Embeddings {
        let mut rng = Rng::keyed(&[seed]);
        let dim = 16;
        let directions: Vec<f32> = (0..centres * dim).map(|_| rng.normal() as f32).collect();
        let rows = (0..centres * count).flat_map(|row| {
            let centre = &directions[row % centres * dim..][..dim];
            centre.iter().map(|x| x + (spread * rng.normal()) as f32).collect::<Vec<_>>()
        });
        Embeddings::new(dim, rows.collect()).unwrap().normalize()
    }

    /// Joining the most similar pair, found by looking at all members of all pairs.
    fn plainly(rows: &Embeddings, stop: Stop) -> Vec<usize> {
        let mut groups: Vec<Vec<usize>> = (0..rows.len()).map(|row| vec![row]).collect();
        let dot = |a: usize, b: usize| rows.row(a).iter().zip(rows.row(b)).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        while groups.len() > 1 {
            let mut best = (f64::NEG_INFINITY, 0, 0);
            for a in 0..groups.len() {
                for b in 0..a {
                    let sum: f64 = groups[a].iter().flat_map(|&x| groups[b].iter().map(move |&y| dot(x, y))).sum();
                    let mean = sum / (groups[a].len() * groups[b].len()) as f64;
                    if mean > best.0 {
                        best = (mean, a, b);
                    }
                }
            }
            if matches!(stop, Stop::Groups { count, .. } if groups.len() <= count)
                || matches!(stop, Stop::Below(threshold) if best.0 <= threshold)
            {
                break;
            }
            let moved = groups.swap_remove(best.1);
            groups[best.2].extend(moved);
        }
        let label = |row: usize| groups.iter().position(|group| group.contains(&row)).unwrap();
        in_order((0..rows.len()).map(label))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn chains_find_what_a_search_of_all_pairs_finds(
            centres in 1..4usize, count in 1..8usize, seed in 0..1000u64, groups in 1..6usize, threshold in 0.0..0.9,
        ) {
            let rows = around(centres, count, 0.6, seed);
            for stop in [Stop::Groups { count: groups, least: 1 }, Stop::Below(threshold)] {
                prop_assert_eq!(cluster(&rows, stop), plainly(&rows, stop), "{:?}", stop);
            }
        }
    }

    #[test]
    fn speakers_are_found_by_count_and_by_threshold_in_long_recordings_too() {
        for count in [10, 1500] {
            let rows = around(3, count, 0.3, 1);
            let truth: Vec<usize> = (0..3 * count).map(|row| row % 3).collect();
            assert_eq!(cluster(&rows, Stop::Groups { count: 3, least: 1 }), truth);
            assert_eq!(cluster(&rows, Stop::Below(0.6)), truth);
        }
    }

    #[test]
    fn a_row_that_is_like_no_other_takes_no_speakers_place() {
        // instead of the first row, one that is opposite to both voices
        let mut values = around(2, 10, 0.3, 1).values().to_vec();
        (0..16).for_each(|i| values[i] = -(values[i] + values[16 + i]));
        let rows = Embeddings::new(16, values).unwrap().normalize();
        let labels = cluster(&rows, Stop::Groups { count: 2, least: 2 });
        let truth: Vec<usize> = (0..20).map(|row| if row == 0 { 0 } else { 1 + (row + 1) % 2 }).collect();
        assert_eq!(labels, truth);
        let all = cluster(&rows, Stop::Groups { count: 3, least: 11 });
        assert_eq!(all, truth, "no three groups are so large: any three");
    }

    #[test]
    fn nothing_and_one_row_are_clusters_too() {
        let none = Embeddings::new(2, Vec::new()).unwrap();
        assert!(cluster(&none, Stop::Groups { count: 2, least: 1 }).is_empty());
        let one = Embeddings::new(2, vec![1.0, 0.0]).unwrap();
        assert_eq!(cluster(&one, Stop::Groups { count: 3, least: 2 }), [0]);
        assert_eq!(cluster(&one, Stop::Below(0.5)), [0]);
    }
}
