//! How many speak: where clustering stops, and which clusters are no speakers.

use bregman_base::lanes::cosine;

use crate::score::Embeddings;

/// Where clustering stops, as a share of the similarity of neighbours.
const SHARE: f64 = 0.8;
/// Of the similarities of neighbours, sorted, the one that counts: some neighbours are two speakers.
const TYPICAL: f64 = 0.6;

/// The cosine from which on two groups of windows are one speaker.
///
/// Networks differ in how alike two windows of one voice are, and so do recordings. But neighbouring windows are mostly
/// of one voice, so how alike these are shows what to expect; groups that are much less alike are two speakers.
/// `apart` is the number of windows from one to the next that shares no sample with it.
pub(super) fn own_threshold(rows: &Embeddings, apart: usize) -> f64 {
    let mut neighbours: Vec<f64> = (apart..rows.len()).map(|at| cosine(rows.row(at - apart), rows.row(at))).collect();
    neighbours.sort_by(f64::total_cmp);
    let typical = neighbours.get((TYPICAL * neighbours.len() as f64) as usize).copied().unwrap_or(1.0);
    SHARE * typical
}

/// The mean of each cluster that is a speaker: the `wanted` largest ones if that is known, or else those of at least
/// `least` windows. The largest one is always a speaker.
pub(super) fn centres(rows: &Embeddings, labels: &[usize], least: usize, wanted: Option<usize>) -> Embeddings {
    let mut clusters = vec![Vec::new(); labels.iter().max().map_or(0, |&last| last + 1)];
    labels.iter().enumerate().for_each(|(row, &label)| clusters[label].push(row));
    clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.len()));
    let large = clusters.iter().filter(|cluster| cluster.len() >= least).count();
    clusters.truncate(wanted.unwrap_or(large).max(1));
    rows.averages(&clusters, |_| 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(angles: &[f64]) -> Embeddings {
        let values = angles.iter().flat_map(|angle| [angle.cos() as f32, angle.sin() as f32]).collect();
        Embeddings::new(2, values).unwrap()
    }

    #[test]
    fn the_threshold_follows_the_similarity_of_neighbours() {
        // two voices: 0 and 1.5, within 0.1 of each other
        let voices = [0.0, 0.1, 0.0, 0.1, 0.0, 0.1, 1.5, 1.4, 1.5, 1.4, 1.5, 1.4];
        let close = own_threshold(&rows(&voices), 1);
        assert!((close - SHARE * 0.1f64.cos()).abs() < 1e-3, "{close}");
        let loose = own_threshold(&rows(&voices.map(|angle| 8.0 * angle)), 1);
        assert!((loose - SHARE * 0.8f64.cos()).abs() < 1e-3, "{loose}");
        assert_eq!(own_threshold(&rows(&[0.0]), 2), SHARE);
    }

    #[test]
    fn small_clusters_are_no_speakers() {
        let rows = rows(&[0.0, 0.1, 0.05, 0.5, 1.5, 1.4, 1.45, 1.0]);
        let labels = [0, 0, 0, 1, 2, 2, 2, 3];
        let found = |least, wanted| {
            let centres = centres(&rows, &labels, least, wanted);
            (0..centres.len()).map(|at| (100.0 * centres.row(at)[1].atan2(centres.row(at)[0])).round()).collect()
        };
        let both: Vec<f32> = found(2, None);
        assert_eq!(both, [5.0, 145.0]);
        assert_eq!(found(1, None), [5.0, 145.0, 50.0, 100.0]);
        assert_eq!(found(9, None), [5.0], "the largest is one");
        assert_eq!(found(9, Some(3)), [5.0, 145.0, 50.0]);
    }
}
