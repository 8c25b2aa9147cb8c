//! Versions 1 and 2 of the body of a model file. In version 2 the header has the range of inputs.
//!
//! ```text
//!  0  length of the header   u64, little-endian like everything
//!  8  header                 JSON: architecture, front end, threshold, and per layer its encoding and lengths
//!     payload                layer after layer: positions, values, bias, and where there is a norm after a ReLU its
//!                            scale and shift (f32), and where one comes before a ReLU of the input its scale and shift
//! ```

use std::collections::HashMap;

use bregman_network::LayerSpec;
use serde::{Deserialize, Serialize};

use super::envelope::cut;
use super::source::Part;
use super::{Contents, Layer, ModelFile, Positions, StoredLayer, Threshold, ValueFormat, positions};
use crate::{Architecture, Error, FrontEnd, Result};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    architecture: Architecture,
    front_end: FrontEnd,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<Threshold>,
    layers: Vec<Entry>,
}

/// One layer's lines in the header.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    positions: Positions,
    values: ValueFormat,
    /// Values stored.
    live: usize,
    /// Bytes of the positions.
    position_bytes: usize,
    /// Where the input lies, −range..=range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_range: Option<f32>,
}

/// The body of a model.
pub(super) fn write(model: &ModelFile, format: ValueFormat) -> Result<Vec<u8>> {
    model.architecture.check()?;
    let specs = model.architecture.layers();
    if specs.len() != model.layers.len() {
        return Err(Error::format(format!("{} layers, the architecture has {}", model.layers.len(), specs.len())));
    }
    let (mut entries, mut payload) = (Vec::new(), Vec::new());
    for (spec, layer) in specs.iter().zip(&model.layers) {
        entries.push(write_layer(spec, layer, format, &mut payload)?);
    }
    let header = Header {
        architecture: model.architecture,
        front_end: model.front_end.clone(),
        threshold: model.threshold.clone(),
        layers: entries,
    };
    let header = serde_json::to_vec(&header).map_err(|error| Error::format(error.to_string()))?;
    let mut body = (header.len() as u64).to_le_bytes().to_vec();
    body.extend(header);
    body.extend(payload);
    Ok(body)
}

fn write_layer(spec: &LayerSpec, layer: &Layer, format: ValueFormat, payload: &mut Vec<u8>) -> Result<Entry> {
    let (count, rows) = (spec.weights(), spec.outputs);
    let wrong = |problem: String| Error::tensor(&spec.name, problem);
    if layer.weight.len() != count {
        return Err(wrong(format!("{} weights, the shape {:?} needs {count}", layer.weight.len(), spec.shape())));
    }
    let vectors: Vec<&Vec<f32>> = layer.after_relu.iter().flatten().collect();
    let expected = if spec.norm_after_relu().is_some() { 2 } else { 0 };
    if layer.bias.len() != rows || vectors.len() != expected || vectors.iter().any(|vector| vector.len() != rows) {
        return Err(wrong(format!("bias, scale or shift is missing, extra or not of length {rows}")));
    }
    let (before, inputs): (Vec<&Vec<f32>>, _) = (layer.before.iter().flatten().collect(), norms_before(spec));
    if before.iter().map(|vector| vector.len()).sum::<usize>() != 2 * inputs {
        return Err(wrong(format!("scale and shift of the input are missing, extra or not of length {inputs}")));
    }
    let vectors: Vec<&Vec<f32>> = vectors.into_iter().chain(before).collect();
    if layer.weight.iter().chain(&layer.bias).chain(vectors.iter().copied().flatten()).any(|value| !value.is_finite()) {
        return Err(wrong("has a value that is not finite".to_owned()));
    }
    if let Some(range) = layer.input_range.filter(|&range| !is_range(range)) {
        return Err(wrong(format!("its input range is {range}, which must be a positive number")));
    }
    let (positions, position_bytes) = positions::encode(&layer.weight, format.bytes());
    let dense = positions == Positions::Dense;
    let live: Vec<usize> = (0..count).filter(|&at| dense || layer.weight[at] != 0.0).collect();
    let values: Vec<f32> = live.iter().map(|&at| layer.weight[at]).collect();
    payload.extend(&position_bytes);
    let (columns, from) = (count / rows, payload.len());
    let too_large = || wrong("has a value too large for half precision: export it as f32".to_owned());
    format.encode(&values, |i| live[i] / columns, rows, payload).ok_or_else(too_large)?;
    let mut bias: Vec<f64> = layer.bias.iter().map(|&bias| f64::from(bias)).collect();
    if let Some(mean) = &layer.input_mean {
        for (i, (&at, &value)) in live.iter().zip(&values).enumerate() {
            let stored = format.get(&payload[from..], rows, i, at / columns);
            bias[at / columns] += (f64::from(value) - f64::from(stored)) * f64::from(mean[at % columns]);
        }
    }
    payload.extend(bias.iter().flat_map(|&bias| (bias as f32).to_le_bytes()));
    vectors.into_iter().flatten().for_each(|value| payload.extend(value.to_le_bytes()));
    Ok(Entry {
        name: spec.name.clone(),
        positions,
        values: format,
        live: live.len(),
        position_bytes: position_bytes.len(),
        input_range: layer.input_range.filter(|_| format == ValueFormat::Int8),
    })
}

fn is_range(range: f32) -> bool {
    range.is_normal() && range > 0.0
}

/// Inputs that are normalised before a ReLU, and so have a scale and a shift in the file.
fn norms_before(spec: &LayerSpec) -> usize {
    if spec.norm_before_relu().is_some() { spec.inputs.iter().sum() } else { 0 }
}

/// The content of a body.
pub(super) fn read(body: Part<'_>) -> Result<Contents<'_>> {
    let mut payload = body;
    let length = payload.take(size_of::<u64>()).ok_or_else(cut)?.bytes()?;
    let length = u64::from_le_bytes(length[..].try_into().expect("eight bytes"));
    let header = usize::try_from(length).ok().and_then(|length| payload.take(length)).ok_or_else(cut)?;
    let header: Header =
        serde_json::from_slice(&header.bytes()?).map_err(|error| Error::format(format!("header: {error}")))?;
    header.architecture.check()?;
    let mut specs: HashMap<String, LayerSpec> =
        header.architecture.layers().into_iter().map(|spec| (spec.name.clone(), spec)).collect();
    let mut named = |entry: Entry| {
        let unknown = || Error::tensor(&entry.name, "is no layer of its architecture, or stands in the file twice");
        let spec = specs.remove(&entry.name).ok_or_else(unknown)?;
        split(spec, entry, &mut payload)
    };
    let layers = header.layers.into_iter().map(&mut named).collect::<Result<Vec<_>>>()?;
    if let Some(missing) = specs.keys().min() {
        return Err(Error::tensor(missing, "is missing"));
    }
    if payload.len() > 0 {
        return Err(Error::format(format!("{} bytes too many", payload.len())));
    }
    Ok(Contents { architecture: header.architecture, front_end: header.front_end, threshold: header.threshold, layers })
}

/// Takes a layer off the payload.
fn split<'a>(spec: LayerSpec, entry: Entry, payload: &mut Part<'a>) -> Result<StoredLayer<'a>> {
    let Entry { positions, values, live, position_bytes, input_range, .. } = entry;
    let wrong = |problem: String| Error::tensor(&spec.name, problem);
    if let Some(range) = input_range.filter(|&range| !is_range(range)) {
        return Err(wrong(format!("its input range is {range}, which must be a positive number")));
    }
    if input_range.is_some() && values != ValueFormat::Int8 {
        return Err(wrong(format!("has an input range, which only int8 weights may have; these are {values:?}")));
    }
    let (count, rows) = (spec.weights(), spec.outputs);
    if live > count {
        return Err(wrong(format!("{live} values for {count} weights")));
    }
    let vectors = if spec.norm_after_relu().is_some() { 3 } else { 1 };
    let numbers = vectors * rows + 2 * norms_before(&spec);
    let lengths = [Some(position_bytes), values.size(live, rows), ValueFormat::F32.size(numbers, 1)];
    let mut take = |length: Option<usize>| -> Result<_> {
        length.and_then(|length| payload.take(length)).ok_or_else(|| wrong("the file ends within it".to_owned()))
    };
    let [position_part, value_part, vector_part] = [take(lengths[0])?, take(lengths[1])?, take(lengths[2])?];
    Ok(StoredLayer { positions, values, live, input_range, position_part, value_part, vector_part, spec })
}
