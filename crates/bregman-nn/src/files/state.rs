//! A model's state as named tensors, under the names of PyTorch's `state_dict`.

use bregman::Param;
use bregman_tensor::Backend;

use crate::{Array, Checkpoint, Error, Result, TrainableModel, Values};

impl<B: Backend> TrainableModel<B> {
    /// All parameters and batch-norm statistics.
    pub fn state(&self) -> Result<Checkpoint> {
        let read = |buffer: &B::Buffer, shape: &[usize]| -> Result<Array> {
            let mut values = vec![0.0; shape.iter().product()];
            self.backend().download(buffer, &mut values)?;
            Ok(Array { shape: shape.to_vec(), values: Values::F32(values) })
        };
        let mut checkpoint = Checkpoint::default();
        for parameter in self.params().all() {
            let Param { name, shape, .. } = &parameter.param;
            checkpoint.tensors.insert(name.clone(), read(&parameter.value, shape)?);
        }
        for norm in self.params().norms() {
            let mut insert = |part: &str, array| checkpoint.tensors.insert(format!("{}.{part}", norm.name), array);
            insert("running_mean", read(&norm.running_mean, &[norm.channels])?);
            insert("running_var", read(&norm.running_variance, &[norm.channels])?);
            insert("num_batches_tracked", Array { shape: Vec::new(), values: Values::I64(vec![norm.batches as i64]) });
        }
        Ok(checkpoint)
    }

    /// Replaces all parameters and statistics. The checkpoint must have exactly the model's tensors, by name and shape;
    /// `num_batches_tracked` may be absent, or floating point, as in WeSpeaker's averages of several checkpoints. On an
    /// error the model is unchanged.
    pub fn load(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let own = self.state()?;
        for (name, array) in &own.tensors {
            let counter = matches!(array.values, Values::I64(_));
            let Some(found) = checkpoint.tensors.get(name) else {
                if counter {
                    continue;
                }
                return Err(Error::Missing { tensor: name.clone() });
            };
            if found.shape != array.shape || !counter && matches!(found.values, Values::I64(_)) {
                return Err(Error::Shape {
                    tensor: name.clone(),
                    expected: array.shape.clone(),
                    got: found.shape.clone(),
                });
            }
        }
        if let Some(name) = checkpoint.tensors.keys().find(|name| !own.tensors.contains_key(*name)) {
            return Err(Error::Extra { tensor: name.clone() });
        }
        self.fill(checkpoint)
    }

    fn fill(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let (backend, params) = self.parts_mut();
        let floats = |name: &str| match &checkpoint.tensors[name].values {
            Values::F32(values) => values.as_slice(),
            Values::I64(_) => unreachable!("formats were compared"),
        };
        for parameter in params.all_mut() {
            backend.upload(floats(&parameter.param.name), &mut parameter.value)?;
        }
        for norm in params.norms_mut() {
            backend.upload(floats(&format!("{}.running_mean", norm.name)), &mut norm.running_mean)?;
            backend.upload(floats(&format!("{}.running_var", norm.name)), &mut norm.running_variance)?;
            let counter = checkpoint.tensors.get(&format!("{}.num_batches_tracked", norm.name));
            norm.batches = match counter.map(|array| &array.values) {
                Some(Values::I64(count)) => count[0].max(0) as u64,
                Some(Values::F32(count)) => count[0].round() as u64,
                None => norm.batches,
            };
        }
        params.refresh(backend)
    }
}
