//! Each window to the nearest speaker, changes of speaker being rare.
//!
//! The labels of windows l₁, l₂, … are those of the largest sum of cosines between windows and their speakers, less a
//! price for every change within a stretch of speech (Viterbi).

use bregman_base::lanes::cosine;

use crate::score::Embeddings;

/// What a change of speaker costs, as a cosine.
const PRICE: f64 = 0.1;

/// The speaker of every window, `centres` being the speakers. `continues[i]` says whether window i + 1 is in the same stretch of speech as window i.
pub(super) fn smooth(rows: &Embeddings, centres: &Embeddings, continues: &[bool]) -> Vec<usize> {
    let speakers = centres.len();
    let mut best = vec![0f64; speakers];
    let mut came_from: Vec<Vec<usize>> = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        let leader = (0..speakers).max_by(|&a, &b| best[a].total_cmp(&best[b])).unwrap_or(0);
        let price = if row > 0 && continues[row - 1] { PRICE } else { 0.0 };
        let lead = best.get(leader).map_or(0.0, |best| best - price);
        let from: Vec<usize> = (0..speakers).map(|at| if best[at] >= lead { at } else { leader }).collect();
        let near = |speaker: usize| cosine(rows.row(row), centres.row(speaker));
        best = (0..speakers).map(|at| best[at].max(lead) + near(at)).collect();
        came_from.push(from);
    }
    let mut speaker = (0..speakers).max_by(|&a, &b| best[a].total_cmp(&best[b])).unwrap_or(0);
    let mut smoothed = vec![0; rows.len()];
    for row in (0..rows.len()).rev() {
        smoothed[row] = speaker;
        speaker = came_from[row][speaker];
    }
    smoothed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(angles: &[f64]) -> Embeddings {
        let values = angles.iter().flat_map(|angle| [angle.cos() as f32, angle.sin() as f32]).collect();
        Embeddings::new(2, values).unwrap()
    }

    #[test]
    fn a_window_between_two_voices_follows_its_neighbours_and_a_clear_one_does_not() {
        let voices = rows(&[0.0, 1.5]);
        // 0.8 is a little nearer to the second voice
        let unclear = rows(&[0.0, 0.0, 0.8, 0.0, 1.5, 1.5, 0.0, 0.0]);
        assert_eq!(smooth(&unclear, &voices, &[true; 7]), [0, 0, 0, 0, 1, 1, 0, 0]);
        assert_eq!(smooth(&unclear, &voices, &[false; 7]), [0, 0, 1, 0, 1, 1, 0, 0], "across pauses");
        let clear = rows(&[0.0, 0.0, 1.5, 0.0, 1.5, 1.5, 0.0, 0.0]);
        assert_eq!(smooth(&clear, &voices, &[true; 7]), [0, 0, 1, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn one_speaker_and_no_window() {
        assert_eq!(smooth(&rows(&[0.0, 3.0]), &rows(&[1.0]), &[true]), [0, 0]);
        assert!(smooth(&rows(&[]), &rows(&[1.0]), &[]).is_empty());
    }
}
