// The layers of one run: bars at the end, a heat map over epochs, groups of layers, norms.

const ROW = 17;
// Cividis: perceptually uniform, also for colour-blind readers.
const CIVIDIS = [
  [0, 32, 77],
  [0, 52, 110],
  [39, 68, 108],
  [69, 85, 107],
  [94, 101, 110],
  [119, 119, 119],
  [146, 138, 118],
  [174, 157, 109],
  [203, 178, 94],
  [232, 200, 70],
  [255, 233, 69],
];
function heat(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1),
    low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const between = (value, channel) => Math.round(value + (at - low) * (CIVIDIS[low + 1][channel] - value));
  return `rgb(${CIVIDIS[low].map(between).join(",")})`;
}

const withLayers = () => state.runs.filter((run) => run.layers.layers.length);
const layerRun = () =>
  withLayers().find((run) => run.name === state.layersOf) ??
  visible().find((run) => run.layers.layers.length) ??
  withLayers()[0];
const shortName = (layer) => layer.name.replace(/\.weight$/, "");
const size = (layer) => layer.shape.reduce((product, side) => product * side, 1);
const densityScale = () => state.layerScale === "density";
// Position of a layer on the axis, 0 to 1: its zeros, or its non-zero weights over four powers of ten.
const position = (sparsity) =>
  densityScale() ? (sparsity >= 1 ? 0 : Math.max(0, 1 + Math.log10(1 - sparsity) / 4)) : sparsity;

class LayerFigure extends Figure {
  get run() {
    return layerRun();
  }
  empty() {
    return "No epoch has ended yet: the layers are not known.";
  }
  margin() {
    return 14 + 5.7 * Math.min(40, Math.max(...this.run.layers.layers.map((layer) => shortName(layer).length)));
  }
  names(left) {
    return this.run.layers.layers.map((layer, at) =>
      svg(
        "text",
        {
          x: left - 8,
          y: 14 + at * ROW + 4,
          "text-anchor": "end",
          "font-size": 10.5,
          fill: layer.zero_since ? "var(--warn)" : "var(--soft)",
        },
        shortName(layer).slice(-40),
      ),
    );
  }
  // The row under the pointer.
  follow(drawing, show) {
    drawing.addEventListener("pointermove", (event) => {
      const area = drawing.getBoundingClientRect(),
        [x, y] = [event.clientX - area.left, event.clientY - area.top],
        row = Math.floor((y - 5) / ROW);
      const layer = this.run.layers.layers[row],
        content = layer && show(layer, x);
      if (content) this.readout(x, y, ...content);
      else this.tip.hidden = true;
    });
    drawing.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    return drawing;
  }
  facts(layer) {
    const zero = layer.zero_since
      ? html("div", { style: "color:var(--warn)" }, `all zero since epoch ${layer.zero_since}`)
      : "";
    return [
      html("b", null, shortName(layer)),
      html(
        "div",
        null,
        `${layer.shape.join(" × ")} = ${format.count(size(layer))} weights, ${format.count(layer.nonzero)} non-zero`,
      ),
      zero,
    ];
  }
}

class Bars extends LayerFigure {
  rows() {
    return [
      ["layer", "shape", "weights", "non-zero", "sparsity", "norm", "all zero since epoch"],
      ...this.run.layers.layers.map((layer) => [
        layer.name,
        layer.shape.join("x"),
        size(layer),
        layer.nonzero,
        layer.sparsity.at(-1),
        layer.norm.at(-1),
        layer.zero_since,
      ]),
    ];
  }
  draw(width) {
    if (!this.run) return null;
    const { layers } = this.run.layers,
      height = 14 + layers.length * ROW + 34,
      left = this.margin(),
      right = width - 58,
      bottom = 6 + layers.length * ROW;
    const at = (share) => left + (right - left) * share,
      ticks = densityScale() ? [0.0001, 0.001, 0.01, 0.1, 1] : [0, 0.25, 0.5, 0.75, 1];
    const place = (tick) => at(densityScale() ? 1 + Math.log10(tick) / 4 : tick);
    const target = given(this.run.target) ? at(position(this.run.target)) : null;
    const bar = (layer, row) => {
      const sparsity = layer.sparsity.at(-1),
        end = at(position(sparsity)),
        y = 6 + row * ROW,
        zero = layer.zero_since !== null;
      const text = zero
        ? "all zero"
        : densityScale()
          ? `${Number((100 * (1 - sparsity)).toPrecision(3))} %`
          : format.percent(sparsity);
      return [
        svg("rect", { x: left, y: y + 1, width: right - left, height: ROW - 4, fill: "var(--grid)" }),
        svg("rect", {
          class: "bar",
          x: left,
          y: y + 1,
          width: Math.max(0, end - left),
          height: ROW - 4,
          fill: zero ? "var(--warn)" : this.run.color,
        }),
        svg("text", { x: right + 6, y: y + 11, "font-size": 10.5, fill: zero ? "var(--warn)" : "var(--soft)" }, text),
      ];
    };
    const drawing = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.title },
      this.names(left),
      layers.map(bar),
      target === null
        ? null
        : [
            svg("line", {
              x1: target,
              x2: target,
              y1: 2,
              y2: bottom,
              stroke: "var(--good)",
              "stroke-width": 1.5,
              "stroke-dasharray": "5 3",
            }),
          ],
      ticks.map((tick) =>
        svg("text", { ...AXIS, x: place(tick), y: bottom + 16, "text-anchor": "middle" }, label.percent(tick)),
      ),
      svg(
        "text",
        { ...AXIS, x: (left + right) / 2, y: bottom + 32, "text-anchor": "middle" },
        (densityScale() ? "non-zero weights, % (logarithmic)" : "zeros, %") +
          (target === null ? "" : " · dashed: the target of the network"),
      ),
    );
    return this.follow(drawing, (layer) => [
      ...this.facts(layer),
      html("div", null, `zeros ${format.percent(layer.sparsity.at(-1))}, norm ${format.number(layer.norm.at(-1))}`),
    ]);
  }
}

class HeatMap extends LayerFigure {
  rows() {
    const { epoch, layers } = this.run.layers;
    return [
      ["layer", ...epoch.map((number) => `epoch ${number}`)],
      ...layers.map((layer) => [layer.name, ...layer.sparsity]),
    ];
  }
  draw(width) {
    if (!this.run) return null;
    const { epoch, layers } = this.run.layers,
      height = 14 + layers.length * ROW + 34,
      left = this.margin(),
      right = width - 8,
      bottom = 6 + layers.length * ROW;
    const cell = (right - left) / epoch.length;
    const row = (layer, at) => {
      const parts = [];
      // Neighbouring cells of one colour become one rectangle.
      for (let from = 0; from < epoch.length;) {
        const color = given(layer.sparsity[from])
          ? heat(Math.round(100 * position(layer.sparsity[from])) / 100)
          : "none";
        let to = from + 1;
        while (
          to < epoch.length &&
          given(layer.sparsity[to]) &&
          heat(Math.round(100 * position(layer.sparsity[to])) / 100) === color
        )
          to++;
        parts.push(
          svg("rect", {
            class: "cell",
            x: left + from * cell,
            y: 6 + at * ROW,
            width: (to - from) * cell + 0.3,
            height: ROW - 2,
            fill: color,
          }),
        );
        from = to;
      }
      if (layer.zero_since !== null) {
        const since = Math.max(
          0,
          epoch.findIndex((number) => number >= layer.zero_since),
        );
        parts.push(
          svg("line", {
            x1: left + since * cell,
            x2: right,
            y1: 5 + at * ROW + ROW / 2,
            y2: 5 + at * ROW + ROW / 2,
            stroke: "var(--c1)",
            "stroke-width": 2,
          }),
        );
      }
      return parts;
    };
    const stride = Math.ceil(28 / cell),
      ticks = epoch.map((number, at) =>
        at % stride === 0
          ? svg("text", { ...AXIS, x: left + (at + 0.5) * cell, y: bottom + 16, "text-anchor": "middle" }, number)
          : null,
      );
    const ramp = Array.from({ length: 24 }, (_, at) =>
      svg("rect", { x: left + at * 4, y: bottom + 24, width: 4.2, height: 8, fill: heat(at / 23) }),
    );
    const [from, to] = densityScale() ? ["≤ 0.01 % non-zero", "100 % non-zero"] : ["0 % zeros", "100 % zeros"];
    const key = svg(
      "text",
      { ...AXIS, "font-size": 10.5, x: left + 104, y: bottom + 32 },
      `${from} to ${to}${this.run.allZero.length ? ", orange: all zero" : ""}`,
    );
    const drawing = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.title },
      this.names(left),
      layers.map(row),
      ticks,
      ramp,
      key,
      svg("text", { ...AXIS, x: left - 8, y: bottom + 16, "text-anchor": "end" }, "epoch"),
    );
    return this.follow(drawing, (layer, x) => {
      const at = Math.floor((x - left) / cell);
      return at < 0 || at >= epoch.length
        ? this.facts(layer)
        : [
            ...this.facts(layer),
            html(
              "div",
              null,
              `epoch ${epoch[at]}: zeros ${format.percent(layer.sparsity[at])}, norm ${format.number(layer.norm[at])}`,
            ),
          ];
    });
  }
}

function layerCharts() {
  const groups = () =>
    (layerRun()?.epochs.groups ?? []).map((group, at) => ({
      run: null,
      name: group.name,
      color: `var(--c${at % COLORS})`,
      dash: DASHES[Math.floor(at / COLORS) % DASHES.length],
      x: layerRun().epochs.epoch,
      y: group.sparsity,
      dots: true,
    }));
  const norms = () =>
    (layerRun()?.layers.layers ?? []).map((layer, at) => ({
      run: null,
      name: shortName(layer),
      color: `var(--c${at % COLORS})`,
      dash: DASHES[Math.floor(at / COLORS) % DASHES.length],
      thin: true,
      x: layerRun().layers.epoch,
      y: layer.norm,
    }));
  const x = { label: "epoch", kind: "linear", tick: label.number, format: String };
  const empty = "No epoch has ended yet: the layers are not known.";
  return [
    new Bars("layers", "Sparsity of each layer at the end"),
    new HeatMap("heat", "Sparsity of each layer over epochs"),
    new Chart(
      "groups",
      "Sparsity of groups of layers",
      { x, y: { ...share, kind: "linear", label: "zeros, %", ceiling: 1.02 }, series: groups, group: "epochs", empty },
      { hint: "by the first part of their names" },
    ),
    new Chart(
      "norms",
      "Norm of each layer",
      { x, y: { kind: "log", label: "norm" }, series: norms, group: "epochs", empty },
      {},
    ),
  ];
}
