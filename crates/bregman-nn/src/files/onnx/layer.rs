//! A layer of a network as ONNX nodes, with all that comes before and after its products.

use bregman_network::{Extent, LayerKind, LayerSpec, Pointwise};

use super::graph::{Attribute, Attribute::Int, Attribute::Ints, Attribute::Text, OnnxGraph};

/// `after(W ∗ before(x) + b)`; of several inputs, `x` lists name and extent, a residual last.
pub(super) fn layer(graph: &mut OnnxGraph, spec: &LayerSpec, x: &[(&str, Extent)]) -> String {
    let (inputs, rest) = x.split_at(spec.inputs.len());
    let residual = rest.first().map(|(name, _)| *name);
    let inputs: Vec<(String, Extent)> = inputs
        .iter()
        .map(|&(name, extent)| (pointwise(graph, &spec.name, "input", &spec.before, name, None), extent))
        .collect();
    let sums = products(graph, spec, &inputs);
    pointwise(graph, &spec.name, "output", &spec.after, &sums, residual)
}

/// Applies all steps to `x`; names come from the layer, and from the norms.
fn pointwise(
    graph: &mut OnnxGraph,
    layer: &str,
    side: &str,
    steps: &[Pointwise],
    x: &str,
    residual: Option<&str>,
) -> String {
    steps.iter().fold(x.to_owned(), |x, step| {
        let named = |what: &str| format!("{layer}.{side}_{what}");
        match step {
            Pointwise::Norm(norm) => graph.norm(norm, &x),
            Pointwise::Residual => {
                graph.node(&named("sum"), "Add", &[&x, residual.expect("its layer has a residual")], &[])
            }
            Pointwise::Relu => graph.node(&named("relu"), "Relu", &[&x], &[]),
            Pointwise::Tanh => graph.node(&named("tanh"), "Tanh", &[&x], &[]),
            Pointwise::Sigmoid => graph.node(&named("sigmoid"), "Sigmoid", &[&x], &[]),
        }
    })
}

/// `W ∗ x + b`. What is constant over time among inputs that are not is multiplied once, with its own columns of W.
fn products(graph: &mut OnnxGraph, spec: &LayerSpec, inputs: &[(String, Extent)]) -> String {
    let name = &spec.name;
    let weight = graph.weight(&format!("{name}.weight"));
    let bias = if spec.bias { vec![graph.weight(&format!("{name}.bias"))] } else { Vec::new() };
    if inputs.iter().all(|(_, extent)| extent.step == inputs[0].1.step) {
        let x = match inputs {
            [(x, _)] => x.clone(),
            _ => graph.concat(&format!("{name}.inputs"), &inputs.iter().map(|(x, _)| x.as_str()).collect::<Vec<_>>()),
        };
        let vector = inputs[0].1.step.is_none() && spec.kind != LayerKind::Linear;
        if !vector {
            return product(graph, spec, name, &x, &weight, &bias);
        }
        let frame = graph.unsqueeze(&format!("{name}.frame"), &x, 2);
        let sums = product(graph, spec, name, &frame, &weight, &bias);
        return graph.flatten(&format!("{name}.vector"), &sums);
    }
    let mut first = 0;
    let mut sum: Option<String> = None;
    for (i, ((x, extent), columns)) in inputs.iter().zip(&spec.inputs).enumerate() {
        let named = |part: &str| format!("{name}.{part}{i}");
        let [from, to, axis] = [first, first + columns, 1].map(|at| graph.ints(&[at as i64]));
        let weight = graph.node(&named("columns"), "Slice", &[&weight, &from, &to, &axis], &[]);
        let x = if extent.step.is_none() { graph.unsqueeze(&named("frame"), x, 2) } else { x.clone() };
        let share = product(graph, spec, &named("share"), &x, &weight, if i == 0 { &bias } else { &[] });
        sum = Some(match sum {
            None => share,
            Some(sum) => graph.node(&named("sum"), "Add", &[&sum, &share], &[]),
        });
        first += columns;
    }
    sum.expect("a layer has inputs")
}

fn product(graph: &mut OnnxGraph, spec: &LayerSpec, name: &str, x: &str, weight: &str, bias: &[String]) -> String {
    let mirrored = spec.mirrored() as i64;
    let mut x = x.to_owned();
    if mirrored > 0 {
        let pads = graph.ints(&[0, 0, mirrored, 0, 0, mirrored]);
        x = graph.node(&format!("{name}.mirrored"), "Pad", &[&x, &pads], &[("mode", Text("reflect"))]);
    }
    let mut inputs = vec![&*x, weight];
    inputs.extend(bias.iter().map(String::as_str));
    let mut conv = |attributes: &[(&str, Attribute)]| graph.node(name, "Conv", &inputs, attributes);
    match spec.kind {
        LayerKind::Linear => graph.node(name, "Gemm", &inputs, &[("transB", Int(1))]),
        LayerKind::Conv1d { kernel, stride, dilation } => conv(&[
            ("dilations", Ints(&[dilation as i64])),
            ("pads", Ints(&[(dilation * (kernel / 2)) as i64 - mirrored; 2])),
            ("strides", Ints(&[stride as i64])),
        ]),
        LayerKind::Conv2d { kernel, stride } => {
            let [rows, columns] = kernel.map(|taps| taps as i64 / 2);
            let strides = stride.map(|stride| stride as i64);
            conv(&[("pads", Ints(&[rows, columns, rows, columns])), ("strides", Ints(&strides))])
        }
    }
}
