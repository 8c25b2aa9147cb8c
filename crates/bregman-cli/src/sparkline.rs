//! A curve in one line of text.

/// From the lowest level to the highest.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// `values` in at most `width` letters, each the mean of its share of them; `low` and less is the lowest level, `high`
/// and more the highest.
pub(crate) fn sparkline(values: &[f64], width: usize, [low, high]: [f64; 2]) -> String {
    let width = width.min(values.len());
    let letter = |at: usize| {
        let share = &values[at * values.len() / width..(at + 1) * values.len() / width];
        let mean = share.iter().sum::<f64>() / share.len() as f64;
        let level = (mean - low) / (high - low) * (LEVELS.len() - 1) as f64;
        LEVELS[level.round().clamp(0.0, (LEVELS.len() - 1) as f64) as usize]
    };
    (0..width).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_rises_and_falls_with_its_values_and_stays_within_its_levels() {
        assert_eq!(sparkline(&[0.8, 0.9, 1.0], 10, [0.8, 1.0]), "▁▅█");
        assert_eq!(sparkline(&[0.0, 2.0], 10, [0.8, 1.0]), "▁█");
        assert_eq!(sparkline(&[0.0, 0.0, 7.0, 7.0, 0.0, 0.0], 3, [0.0, 7.0]), "▁█▁");
        assert_eq!(sparkline(&[], 10, [0.0, 1.0]), "");
    }
}
