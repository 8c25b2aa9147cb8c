//! Embeddings as the rows of one matrix, and averages of them.

use crate::{Error, Result};

/// Vectors of one length, row after row.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    dim: usize,
    values: Vec<f32>,
}

impl Embeddings {
    /// Rows of `dim` finite values.
    pub fn new(dim: usize, values: Vec<f32>) -> Result<Self> {
        if dim == 0 || !values.len().is_multiple_of(dim) {
            let value = format!("{} values in rows of {dim}", values.len());
            return Err(Error::Setting { field: "embeddings", value, expected: "a whole number of rows" });
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(Error::NotFinite(format!("embedding {}", at / dim))),
            None => Ok(Self { dim, values }),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Number of values in a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// All values, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.dim..][..self.dim]
    }

    /// These rows, in this order.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self { dim: self.dim, values: rows.iter().flat_map(|&row| self.row(row)).copied().collect() }
    }

    /// Scales every row to length 1; a row of zeros is unchanged and has cosine 0 with every vector.
    pub fn normalize(mut self) -> Self {
        for row in self.values.chunks_exact_mut(self.dim) {
            let length = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
            if length > 0.0 {
                row.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
            }
        }
        self
    }

    /// The mean of all rows.
    pub fn mean(&self) -> Vec<f32> {
        weighted_sum(self, (0..self.len()).map(|row| (row, 1.0 / self.len() as f64)))
    }

    /// Subtracts `mean` from every row.
    pub fn subtract(mut self, mean: &[f32]) -> Self {
        assert_eq!(mean.len(), self.dim, "the mean has the length of a row");
        self.values.chunks_exact_mut(self.dim).for_each(|row| row.iter_mut().zip(mean).for_each(|(x, m)| *x -= m));
        self
    }

    /// One row of length 1 per group: the mean of the group's rows, each weighted by `weight(row)`.
    ///
    /// With rows of length 1 and durations as weights this is multi-session enrollment; with equal weights and the
    /// utterances of a speaker as group, an AS-norm cohort.
    pub fn averages(&self, groups: &[Vec<usize>], weight: impl Fn(usize) -> f64) -> Self {
        let average = |rows: &Vec<usize>| {
            let total: f64 = rows.iter().map(|&row| weight(row)).sum();
            weighted_sum(self, rows.iter().map(|&row| (row, weight(row) / total)))
        };
        Self { dim: self.dim, values: groups.iter().flat_map(average).collect() }.normalize()
    }
}

fn weighted_sum(embeddings: &Embeddings, rows: impl Iterator<Item = (usize, f64)>) -> Vec<f32> {
    let mut sum = vec![0.0f64; embeddings.dim];
    for (row, weight) in rows {
        sum.iter_mut().zip(embeddings.row(row)).for_each(|(sum, &x)| *sum += weight * f64::from(x));
    }
    sum.into_iter().map(|x| x as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_sessions_have_more_weight_in_an_enrollment() {
        let sessions = Embeddings::new(2, vec![1.0, 0.0, 0.0, 1.0]).unwrap();
        let seconds = [3.0, 4.0];
        let model = sessions.averages(&[vec![0, 1], vec![1]], |row| seconds[row]);
        for (ours, expected) in model.values().iter().zip([0.6, 0.8, 0.0, 1.0]) {
            assert!((ours - expected).abs() < 1e-6, "{model:?}");
        }
    }

    #[test]
    fn only_matrices_of_finite_numbers_are_accepted() {
        assert!(matches!(Embeddings::new(3, vec![0.0; 4]), Err(Error::Setting { .. })));
        assert_eq!(
            Embeddings::new(2, vec![0.0, 1.0, f32::NAN, 0.0]).unwrap_err().to_string(),
            "embedding 1 is not a finite number"
        );
        let zero = Embeddings::new(2, vec![0.0, 0.0]).unwrap().normalize();
        assert_eq!(zero.row(0), [0.0, 0.0]);
    }
}
