//! Epilogue: residual, ReLU and norm before the store.

use bregman_base::Disjoint;
use pulp::Simd;

use super::Input;

/// `y = norm(relu(sum + residual))`, all parts optional but the bias, with which a sum starts.
pub(crate) struct Epilogue<'a> {
    /// One per row.
    pub(crate) bias: &'a [f32],
    /// Added before the ReLU; lies as y does.
    pub(crate) residual: Option<Input<'a>>,
    /// Whether negative values become 0.
    pub(crate) relu: bool,
    /// Scale and shift per row, after the ReLU; both empty for none.
    pub(crate) norm: [&'a [f32]; 2],
}

impl Epilogue<'_> {
    pub(super) fn check(&self, rows: usize, y: Disjoint) {
        assert_eq!(self.bias.len(), rows, "one bias per row");
        assert!(
            self.norm.iter().all(|vector| vector.is_empty() || vector.len() == rows),
            "one scale and shift per row"
        );
        assert!(self.residual.is_none_or(|residual| residual.len() == y.len()), "a residual lies as y does");
    }

    /// Writes V vectors of `row` to `y`, which begins at `at` of its buffer.
    #[inline(always)]
    pub(super) fn write<S: Simd, const V: usize>(
        &self,
        simd: S,
        row: usize,
        sums: [S::f32s; V],
        at: usize,
        y: &mut [f32],
    ) {
        let (y, _) = S::as_mut_simd_f32s(y);
        // SAFETY: nothing writes it meanwhile, as the kernel's caller promises.
        let residual = self.residual.map(|residual| S::as_simd_f32s(unsafe { residual.part(at, V * S::F32_LANES) }).0);
        let norm =
            if self.norm[0].is_empty() { None } else { Some(self.norm.map(|vector| simd.splat_f32s(vector[row]))) };
        for (v, sum) in sums.into_iter().enumerate() {
            y[v] = self.value::<S>(simd, sum, residual.map(|residual| residual[v]), norm);
        }
    }

    /// Writes a vector of several rows to `y`, which begins at `at` of its buffer; `norm` is theirs.
    #[inline(always)]
    pub(super) fn write_vector<S: Simd>(
        &self,
        simd: S,
        sum: S::f32s,
        norm: Option<[S::f32s; 2]>,
        at: usize,
        y: &mut [f32],
    ) {
        // SAFETY: nothing writes it meanwhile, as the kernel's caller promises.
        let residual = self.residual.map(|residual| S::as_simd_f32s(unsafe { residual.part(at, S::F32_LANES) }).0[0]);
        S::as_mut_simd_f32s(y).0[0] = self.value::<S>(simd, sum, residual, norm);
    }

    #[inline(always)]
    fn value<S: Simd>(&self, simd: S, sum: S::f32s, residual: Option<S::f32s>, norm: Option<[S::f32s; 2]>) -> S::f32s {
        let mut value = sum;
        if let Some(residual) = residual {
            value = simd.add_f32s(value, residual);
        }
        if self.relu {
            value = simd.max_f32s(value, simd.splat_f32s(0.0));
        }
        if let Some([scale, shift]) = norm {
            value = simd.mul_add_e_f32s(value, scale, shift);
        }
        value
    }
}
