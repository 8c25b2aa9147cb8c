//! The operations: each case runs some of them on random numbers and keeps the results.

use bregman_tensor::constants::POOL_EPSILON;
use bregman_tensor::{
    Activation, Backend, Block, Conv, FilterbankTables, Margin, NormGradients, NormParams, NormStatistics, OutputStart,
    Relu, Shape, Spread, Storage, Tensor, Weight,
};

use crate::harness::{Random, exact, mostly_zero, poisoned, read_exact, tensor, values};

/// A backend, the random numbers of a case, and the results so far, each with its name.
pub(super) struct Cases<'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) random: Random,
    /// What is drawn from it.
    pub(super) numbers: fn(&mut Random, usize) -> Vec<f32>,
    pub(super) results: Vec<(String, Vec<f32>)>,
    /// Whether weights are mostly zeros.
    pub(super) sparse: bool,
}

impl<B: Backend> Cases<'_, B> {
    pub(super) fn numbers(&mut self, count: usize) -> Vec<f32> {
        (self.numbers)(&mut self.random, count)
    }

    pub(super) fn tensor(&mut self, shape: Shape) -> Tensor<B> {
        tensor(self.backend, shape, &self.numbers(shape.len()))
    }

    pub(super) fn poisoned(&self, shape: Shape) -> Tensor<B> {
        poisoned(self.backend, shape)
    }

    fn exact(&mut self, count: usize) -> B::Buffer {
        exact(self.backend, &self.numbers(count))
    }

    pub(super) fn keep(&mut self, name: &str, tensor: &Tensor<B>) {
        self.results.push((name.to_owned(), values(self.backend, tensor)));
    }

    pub(super) fn keep_exact(&mut self, name: &str, buffer: &B::Buffer, count: usize) {
        self.results.push((name.to_owned(), read_exact(self.backend, buffer, count)));
    }

    /// As [`Cases::products`], every other time with mostly zeros for a weight.
    pub(super) fn conv(&mut self, conv: Conv, input: Shape, outputs: usize, extra: usize) {
        self.sparse = !self.sparse;
        self.products(conv, input, outputs, extra);
    }

    /// The three products of a convolution. The input is a channel range of a tensor with `extra` channels more behind
    /// it.
    pub(super) fn products(&mut self, conv: Conv, input: Shape, outputs: usize, extra: usize) {
        let Conv { kernel, stride, dilation, .. } = conv;
        let name = |what: &str| {
            format!("{what} {kernel:?} stride {stride:?} dilation {dilation:?}, {input:?} → {outputs}, + {extra}")
        };
        let backend = self.backend;
        let output = conv.output(input, outputs);
        let before = 8;
        let wide = self.tensor(input.with_channels(before + input.channels + extra));
        let x = wide.channels(before..before + input.channels);
        // a column block of a wider matrix
        let (columns, taps) = (input.channels * conv.taps(), conv.taps());
        let block = Block { rows: outputs, stride: columns + taps, first: taps, columns, taps };
        let mut weight = self.numbers(outputs * block.stride);
        if self.sparse {
            mostly_zero(&mut weight);
        }
        let value = exact(backend, &weight);
        let mut copies = B::Copies::default();
        backend.refresh(&value, None, block, &mut copies).unwrap();
        let w = Weight { value: &value, mask: None, block, copies: &copies };
        let bias = self.exact(outputs);
        let mut y = self.poisoned(output);
        backend.conv_forward(&conv, x, w, OutputStart::Bias(&bias), y.view_mut()).unwrap();
        self.keep(&name("forward"), &y);
        backend.conv_forward(&conv, x, w, OutputStart::Keep, y.view_mut()).unwrap();
        self.keep(&name("forward adds"), &y);
        let dy = self.tensor(output);
        let mut dx = self.tensor(input);
        backend.conv_backward_input(&conv, w, dy.view(), true, dx.view_mut()).unwrap();
        self.keep(&name("input gradient adds"), &dx);
        backend.conv_backward_input(&conv, w, dy.view(), false, dx.view_mut()).unwrap();
        self.keep(&name("input gradient"), &dx);
        let mut dw = backend.alloc(outputs * block.stride, Storage::Exact).unwrap();
        backend.conv_backward_weight(&conv, x, dy.view(), block, &mut dw).unwrap();
        self.keep_exact(&name("weight gradient"), &dw, outputs * block.stride);
        let mut dw = exact(backend, &vec![7.0; outputs * block.stride]); // what a step before left there
        backend.conv_backward_support(&conv, x, dy.view(), w, &mut dw).unwrap();
        self.keep_exact(&name("weight gradient on the support"), &dw, outputs * block.stride);
        let mut db = backend.alloc(outputs, Storage::Exact).unwrap();
        backend.conv_backward_bias(dy.view(), &mut db).unwrap();
        self.keep_exact(&name("bias gradient"), &db, outputs);
        self.frozen_steps(&conv, x, &dy, block, weight, &name);
    }

    pub(super) fn norm(&mut self, shape: Shape, relu: Relu, with_residual: bool) {
        let name = |what: &str| format!("{what}, relu {relu:?}, residual {with_residual}, {shape:?}");
        let (backend, c) = (self.backend, shape.channels);
        let x = self.tensor(shape);
        // far from 0, so that rounding does not decide what the last ReLU lets pass
        let residual = with_residual.then(|| {
            let values: Vec<f32> =
                self.random.values(shape.len()).into_iter().map(|value| value + 6.0 * value.signum()).collect();
            tensor(backend, shape, &values)
        });
        let (scale, mut shift) = (self.exact(c), self.exact(c));
        if relu == Relu::After && !with_residual {
            let far: Vec<f32> = (0..c).map(|channel| if channel % 3 == 1 { -6.0 } else { 6.0 }).collect();
            backend.upload(&far, &mut shift).unwrap();
        }
        let [mut mean, mut inverse_std, mut running_mean] = std::array::from_fn(|_| self.exact(c));
        let mut running_variance = backend.alloc(c, Storage::Exact).unwrap();
        backend.upload(&vec![0.7; c], &mut running_variance).unwrap();
        let mut y = self.poisoned(shape);
        let norm = |fixed| NormParams { scale: &scale, shift: &shift, relu, fixed };
        let view = || residual.as_ref().map(Tensor::view);
        backend.norm_eval(x.view(), norm(true), &running_mean, &running_variance, view(), y.view_mut()).unwrap();
        self.keep(&name("norm of evaluation"), &y);
        let statistics = NormStatistics {
            mean: &mut mean,
            inverse_std: &mut inverse_std,
            running_mean: &mut running_mean,
            running_variance: &mut running_variance,
        };
        backend.norm_train(x.view(), norm(false), statistics, view(), y.view_mut()).unwrap();
        self.keep(&name("norm"), &y);
        for (what, buffer) in [
            ("mean", &mean),
            ("1/std", &inverse_std),
            ("running mean", &running_mean),
            ("running variance", &running_variance),
        ] {
            self.keep_exact(&name(what), buffer, c);
        }
        let slope = self.numbers(shape.len());
        for fixed in [false, true] {
            let name = |what: &str| name(&format!("{what}, fixed {fixed}"));
            let mut d = tensor(backend, shape, &slope);
            let mut dresidual = with_residual.then(|| self.poisoned(shape));
            let [mut dscale, mut dshift, mut dbias] =
                std::array::from_fn(|_| backend.alloc(c, Storage::Exact).unwrap());
            let into = NormGradients { scale: &mut dscale, shift: &mut dshift, bias: Some(&mut dbias) };
            let share = dresidual.as_mut().map(Tensor::view_mut);
            backend
                .norm_backward(x.view(), y.view(), norm(fixed), &mean, &inverse_std, d.view_mut(), share, into)
                .unwrap();
            self.keep(&name("norm gradient"), &d);
            if let Some(dresidual) = dresidual {
                self.keep(&name("residual gradient"), &dresidual);
            }
            self.keep_exact(&name("dγ"), &dscale, c);
            self.keep_exact(&name("dβ"), &dshift, c);
            if relu == Relu::Before || fixed {
                self.keep_exact(&name("dbias"), &dbias, c); // 0 in the other orders, up to rounding
            }
        }
    }

    pub(super) fn pointwise(&mut self, shape: Shape) {
        let backend = self.backend;
        let (a, b) = (self.tensor(shape.with_channels(shape.channels + 5)), self.tensor(shape));
        let mut y = self.poisoned(shape);
        backend.add(a.channels(2..2 + shape.channels), b.view(), y.view_mut()).unwrap();
        self.keep("add", &y);
        backend.accumulate(b.view(), y.view_mut()).unwrap();
        self.keep("accumulate", &y);
        backend.copy(a.channels(5..5 + shape.channels), y.view_mut()).unwrap();
        self.keep("copy", &y);
        for f in [Activation::Relu, Activation::Sigmoid] {
            backend.activate(f, y.view_mut()).unwrap();
            self.keep("activation", &y);
            let mut d = self.tensor(shape);
            backend.activate_backward(f, y.view(), d.view_mut()).unwrap();
            self.keep("activation gradient", &d);
        }
        self.results.push(("finite".to_owned(), vec![f32::from(u8::from(backend.all_finite(y.view()).unwrap()))]));
        let poison = self.poisoned(shape);
        self.results
            .push(("not finite".to_owned(), vec![f32::from(u8::from(backend.all_finite(poison.view()).unwrap()))]));
    }

    pub(super) fn pooling(&mut self, shape: Shape) {
        let backend = self.backend;
        let (x, dy) = (self.tensor(shape), self.tensor(shape));
        let moments = Shape::vector(2 * shape.channels * shape.height, shape.batch);
        let mut stats = self.poisoned(moments);
        let dstats = self.tensor(moments);
        let mut dx = self.tensor(shape);
        for spread in [Spread::Raised(0.0), Spread::Floored(0.5), Spread::Floored(1e-12), Spread::Raised(POOL_EPSILON)]
        {
            let name = |what: &str| format!("{what}, {spread:?}");
            backend.moments_forward(x.view(), spread, stats.view_mut()).unwrap();
            self.keep(&name("moments"), &stats);
            backend.moments_backward(x.view(), stats.view(), dstats.view(), spread, true, dx.view_mut()).unwrap();
            self.keep(&name("moments gradient adds"), &dx);
            backend.moments_backward(x.view(), stats.view(), dstats.view(), spread, false, dx.view_mut()).unwrap();
            self.keep(&name("moments gradient"), &dx);
            let (from, to) = (dstats.view(), dx.view_mut());
            backend.moments_backward_through_relu(x.view(), stats.view(), from, spread, to).unwrap();
            self.keep(&name("moments gradient through a ReLU"), &dx);
        }
        if shape.height > 1 {
            return;
        }
        let vector = Shape::vector(shape.channels, shape.batch);
        let mut mean = self.poisoned(vector);
        backend.mean_forward(x.view(), mean.view_mut()).unwrap();
        self.keep("mean", &mean);
        let (gate, dmean) = (self.tensor(vector), self.tensor(vector));
        let mut y = self.poisoned(shape);
        backend.gate_forward(x.view(), gate.view(), dy.view(), y.view_mut()).unwrap();
        self.keep("gate", &y);
        backend.gate_backward_gate(x.view(), dy.view(), mean.view_mut()).unwrap();
        self.keep("gate's gradient", &mean);
        backend.gate_backward_input(gate.view(), dmean.view(), dy.view(), y.view_mut()).unwrap();
        self.keep("gate input's gradient", &y);
        for context in [None, Some(&gate)] {
            let mut h = self.tensor(shape);
            backend.context_tanh(context.map(Tensor::view), h.view_mut()).unwrap();
            self.keep("tanh", &h);
            let mut d = self.tensor(shape);
            let mut dcontext = context.map(|_| self.poisoned(vector));
            backend.context_tanh_backward(h.view(), d.view_mut(), dcontext.as_mut().map(Tensor::view_mut)).unwrap();
            self.keep("tanh gradient", &d);
            if let Some(dcontext) = dcontext {
                self.keep("context gradient", &dcontext);
            }
        }
        let mut h = self.tensor(shape);
        backend.context_add(gate.view(), h.view_mut()).unwrap();
        self.keep("context added", &h);
        let mut dcontext = self.poisoned(vector);
        backend.context_add_backward(dy.view(), dcontext.view_mut()).unwrap();
        self.keep("gradient of the context added", &dcontext);
        if shape.width == 1 {
            return; // the softmax of a single logit has no gradient but rounding errors
        }
        for floor in [POOL_EPSILON, 1e-12, 0.5] {
            let name = |what: &str| format!("{what}, floor {floor}");
            let mut attention = self.tensor(shape);
            backend.attentive_forward(x.view(), attention.view_mut(), floor, stats.view_mut()).unwrap();
            self.keep(&name("attention"), &attention);
            self.keep(&name("attentive statistics"), &stats);
            let mut dlogits = self.poisoned(shape);
            let (found, slopes) = (stats.view(), dstats.view());
            backend
                .attentive_backward(x.view(), attention.view(), found, slopes, floor, dlogits.view_mut(), dx.view_mut())
                .unwrap();
            self.keep(&name("attention gradient"), &dlogits);
            self.keep(&name("attentive input's gradient"), &dx);
        }
    }

    pub(super) fn losses(&mut self, classes: usize, dim: usize, batch: usize) {
        let backend = self.backend;
        let x = self.tensor(Shape::vector(dim, batch));
        let mut unit = self.poisoned(x.shape());
        let mut lengths = self.exact(batch);
        backend.unit_forward(x.view(), unit.view_mut(), &mut lengths).unwrap();
        self.keep("unit", &unit);
        let mut d = self.tensor(x.shape());
        backend.unit_backward(unit.view(), &lengths, d.view_mut()).unwrap();
        self.keep("unit gradient", &d);
        let w = self.exact(classes * dim);
        let block = Block { rows: classes, stride: dim, first: 0, columns: dim, taps: 1 };
        let mut rows = self.exact(classes);
        backend.row_lengths(&w, block, &mut rows).unwrap();
        self.keep_exact("row lengths", &rows, classes);
        let mut labels = backend.alloc(batch, Storage::Exact).unwrap();
        backend.upload(&(0..batch).map(|b| (b * 7 % classes) as f32).collect::<Vec<_>>(), &mut labels).unwrap();
        let [mut radial, mut outcome] = [classes, 2].map(|count| backend.alloc(count, Storage::Exact).unwrap());
        for (margin, easy) in [(0.0, false), (0.2, false), (0.5, true), (2.5, false)] {
            let mut scores = self.tensor(Shape::vector(classes, batch));
            let margin = Margin { scale: 32.0, margin, easy };
            backend.margin_loss(margin, &rows, &labels, scores.view_mut(), &mut radial, &mut outcome).unwrap();
            self.keep("margin gradient", &scores);
            self.keep_exact("radial", &radial, classes);
            self.keep_exact("loss", &outcome, 2);
        }
        let mut dw = self.exact(classes * dim);
        backend.remove_radial(&w, &radial, block, &mut dw).unwrap();
        self.keep_exact("without radial", &dw, classes * dim);
        let mut scores = self.tensor(Shape::vector(classes, batch));
        backend.cross_entropy(&labels, scores.view_mut(), &mut outcome).unwrap();
        self.keep("cross-entropy gradient", &scores);
        self.keep_exact("cross-entropy", &outcome, 2);
        for limit in [1e9, 0.5] {
            let (mut a, mut b) = (self.exact(20_000), self.exact(3));
            let norm = backend.clip(&mut [&mut a, &mut b], limit).unwrap();
            self.results.push(("norm".to_owned(), vec![norm]));
            self.keep_exact("clipped", &a, 20_000);
            self.keep_exact("clipped", &b, 3);
        }
    }

    pub(super) fn samples(&mut self) {
        let (window, frequencies, bins) = (12, 7, 5);
        for (centred, origin, relative, top_db) in [(false, 0, true, None), (true, -6, false, Some(2.0))] {
            let tables = FilterbankTables {
                window,
                hop: 5,
                origin,
                centred,
                relative,
                frequencies,
                spectrum: self.random.values(window * 2 * frequencies),
                bins,
                mel: self.random.values(frequencies * bins).iter().map(|x| x.abs()).collect(),
                smallest: 1e-5,
                factor: 1.3,
                top_db,
            };
            let (batch, length) = (3, 91);
            let samples = self.random.values(batch * length);
            let mut x = self.poisoned(Shape::signal(bins, batch, tables.frames(length)));
            let filterbank = self.backend.filterbank(tables).unwrap();
            self.backend.write_samples(&filterbank, &samples, x.view_mut()).unwrap();
            self.keep("features of samples", &x);
            self.backend.write_samples_ahead(&filterbank, &samples, x.view_mut()).unwrap();
            self.keep("features of samples, ahead", &x);
        }
    }

    pub(super) fn inputs(&mut self) {
        let frames = self.random.values(3 * 7 * 10);
        for shape in [Shape::signal(10, 3, 7), Shape { channels: 1, batch: 3, height: 10, width: 7 }] {
            let mut x = self.poisoned(shape);
            self.backend.write_frames(&frames, x.view_mut()).unwrap();
            self.keep("frames", &x);
            let mut ahead = self.poisoned(shape);
            self.backend.write_frames_ahead(&frames, ahead.view_mut()).unwrap();
            self.keep("frames, ahead", &ahead);
        }
    }
}
