//! The best one-to-one assignment of rows to columns.

/// For every row of a matrix of gains its column, so that the sum of gains is the largest there is; each column is
/// given once, and rows that are left without one get `None`.
///
/// The Hungarian method with potentials: O(n² m).
pub(super) fn assign(gains: &[Vec<f64>]) -> Vec<Option<usize>> {
    let rows = gains.len();
    let columns = gains.first().map_or(0, Vec::len);
    // every row needs a column: those above `columns` stand for none
    let width = columns.max(rows);
    let cost = |row: usize, column: usize| if column < columns { -gains[row][column] } else { 0.0 };
    let (mut row_potential, mut column_potential) = (vec![0.0; rows], vec![0.0; width]);
    let mut row_of: Vec<Option<usize>> = vec![None; width];
    for new in 0..rows {
        // the shortest path, in reduced costs, from the new row to a free column
        let (mut distance, mut before) = (vec![f64::INFINITY; width], vec![None; width]);
        let mut reached = vec![false; width];
        let (mut row, mut from) = (new, None);
        let free = loop {
            let mut nearest = None;
            for column in (0..width).filter(|&column| !reached[column]) {
                let reduced = cost(row, column) - row_potential[row] - column_potential[column];
                if reduced < distance[column] {
                    (distance[column], before[column]) = (reduced, from);
                }
                if nearest.is_none_or(|nearest: usize| distance[column] < distance[nearest]) {
                    nearest = Some(column);
                }
            }
            let Some(nearest) = nearest else { unreachable!("there are as many columns as rows") };
            let step = distance[nearest];
            row_potential[new] += step;
            for column in 0..width {
                if reached[column] {
                    column_potential[column] -= step;
                    if let Some(row) = row_of[column] {
                        row_potential[row] += step;
                    }
                } else {
                    distance[column] -= step;
                }
            }
            reached[nearest] = true;
            match row_of[nearest] {
                Some(next) => (row, from) = (next, Some(nearest)),
                None => break nearest,
            }
        };
        let mut column = free;
        while let Some(previous) = before[column] {
            row_of[column] = row_of[previous];
            column = previous;
        }
        row_of[column] = Some(new);
    }
    let mut assigned = vec![None; rows];
    for (column, row) in row_of.iter().enumerate().take(columns) {
        if let Some(row) = row {
            assigned[*row] = Some(column);
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest sum of gains, by trying everything.
    fn best(gains: &[Vec<f64>], taken: &mut Vec<usize>) -> f64 {
        let Some((first, rest)) = gains.split_first() else { return 0.0 };
        let mut most = best(rest, taken);
        for (column, gain) in first.iter().enumerate() {
            if !taken.contains(&column) {
                taken.push(column);
                most = most.max(gain + best(rest, taken));
                taken.pop();
            }
        }
        most
    }

    fn matrix() -> impl Strategy<Value = Vec<Vec<f64>>> {
        (1..5usize, 0..6usize).prop_flat_map(|(rows, columns)| {
            prop::collection::vec(prop::collection::vec((0..20u8).prop_map(f64::from), columns), rows)
        })
    }

    proptest! {
        #[test]
        fn no_other_assignment_gains_more(gains in matrix()) {
            let assigned = assign(&gains);
            let mut columns: Vec<usize> = assigned.iter().flatten().copied().collect();
            columns.sort_unstable();
            columns.dedup();
            prop_assert_eq!(columns.len(), assigned.iter().flatten().count(), "each column once");
            let gained: f64 = assigned.iter().zip(&gains).filter_map(|(column, row)| column.map(|c| row[c])).sum();
            prop_assert!((gained - best(&gains, &mut Vec::new())).abs() < 1e-9, "{:?}: {}", assigned, gained);
        }
    }
}
