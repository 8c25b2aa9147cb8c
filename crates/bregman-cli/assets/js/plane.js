// Two axes with ranges, ticks and labels. trace.js draws inside of them, chart.js handles the pointer.
//
// spec = { x, y: { label, kind, name, format, include }, series(), bands(), guides(), group, nearest: "x" | "xy",
//          noisy, note() }
// series = [{ run, name, color, dash, x: [], y: [], low: [], high: [], shape, colors: [], error: [[low, high]],
//             line: true }]

const zooms = {}; // by group of charts: { x: [low, high] } on the transformed axis
const AXIS = { "font-size": 11, fill: "var(--muted)" };

class Plane extends Figure {
  constructor(id, title, spec, options) {
    super(id, title, options);
    this.spec = spec;
    this.group = spec.group ?? id;
    this.zoomY = null;
    this.note = html("div", { class: "note" });
    this.element.append(this.note);
  }

  legend() {
    const seen = new Set();
    return this.shown
      .filter((one) => one.shape || !this.shown.some((other) => other.shape))
      .filter(({ name }) => !seen.has(name) && seen.add(name));
  }

  empty() {
    return this.spec.empty ?? super.empty();
  }

  rows() {
    if (this.spec.rows) return this.spec.rows();
    const { x, y } = this.spec,
      bands = this.shown.some((one) => one.low);
    const head = ["series", x.name ?? x.label, y.name ?? y.label, ...(bands ? ["lowest", "highest"] : [])];
    return [
      head,
      ...this.shown.flatMap((one) =>
        one.x.map((value, at) => [
          one.name,
          value,
          one.y[at],
          ...(bands ? [one.low?.[at] ?? one.y[at], one.high?.[at] ?? one.y[at]] : []),
        ]),
      ),
    ];
  }

  // The transformed range of an axis over some values.
  extent(kind, values, include, pad) {
    const { bend } = KINDS[kind];
    let low = Infinity,
      high = -Infinity;
    for (const value of values) {
      const bent = bend(value);
      if (!Number.isFinite(bent)) continue;
      if (bent < low) low = bent;
      if (bent > high) high = bent;
    }
    for (const value of include ?? []) {
      low = Math.min(low, bend(value));
      high = Math.max(high, bend(value));
    }
    if (low > high) return null;
    if (low === high) {
      const by = kind === "linear" ? Math.abs(low) * 0.1 || 1 : 0.3;
      return [low - by, high + by];
    }
    const margin = (high - low) * pad;
    return [low - margin, high + margin];
  }

  draw(width) {
    const { spec, height } = this,
      series = (this.shown = spec.series().filter((one) => one.y.some(given)));
    this.note.textContent = series.length ? (spec.note?.(series) ?? "") : "";
    if (!series.length) return null;
    const zoom = zooms[this.group] ?? {},
      inside = (value) => !zoom.x || (value >= zoom.x[0] && value <= zoom.x[1]);
    const xs =
      zoom.x ??
      this.extent(
        spec.x.kind,
        series.flatMap((one) => one.x),
        spec.x.include?.(series),
        spec.x.pad ?? 0.01,
      );
    const bendX = KINDS[spec.x.kind].bend,
      values = [];
    for (const one of series)
      for (let at = 0; at < one.x.length; at++)
        if (given(one.y[at]) && inside(bendX(one.x[at]))) {
          values.push(one.y[at]);
          if (one.low) values.push(one.low[at], one.high[at]);
          if (one.error?.[at]) values.push(...one.error[at]);
        }
    const include = zoom.x ? [] : (spec.y.include?.(series) ?? []);
    const ys = this.zoomY ?? this.extent(spec.y.kind, values, include, 0.05) ?? [0, 1];
    if (!zoom.x) limit(xs, spec.x);
    if (!this.zoomY) limit(ys, spec.y);

    const bottom = height - 38;
    const yTicks = new Scale(spec.y.kind, ys, [bottom, 10]).ticks(height / 50),
      yLabel = spec.y.tick ?? label.number,
      xLabel = spec.x.tick ?? label.number;
    const left = 24 + Math.max(...yTicks.map((tick) => yLabel(tick).length), 1) * 6.4,
      right = width - (spec.right ?? 10);
    const x = new Scale(spec.x.kind, xs, [left, right]),
      y = new Scale(spec.y.kind, ys, [bottom, 10]);
    Object.assign(this, { scaleX: x, scaleY: y, box: { left, right, top: 10, bottom } });
    const clip = `clip-${this.id}`;
    const grid = yTicks.map((tick) => [
      svg("line", { x1: left, x2: right, y1: y.at(tick), y2: y.at(tick), stroke: "var(--grid)" }),
      svg("text", { ...AXIS, x: left - 7, y: y.at(tick) + 4, "text-anchor": "end" }, yLabel(tick)),
    ]);
    const xTicks = x
      .ticks(Math.max(2, (right - left) / 90))
      .map((tick) => [
        svg("line", { x1: x.at(tick), x2: x.at(tick), y1: bottom, y2: bottom + 4, stroke: "var(--line)" }),
        svg("text", { ...AXIS, x: x.at(tick), y: bottom + 16, "text-anchor": "middle" }, xLabel(tick)),
      ]);
    const titles = [
      svg("text", { ...AXIS, x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, spec.x.label),
      svg(
        "text",
        { ...AXIS, x: 0, y: 0, "text-anchor": "middle", transform: `translate(10 ${(10 + bottom) / 2}) rotate(-90)` },
        spec.y.label,
      ),
    ];
    const plot = svg(
      "g",
      { "clip-path": `url(#${clip})` },
      (spec.bands?.(series) ?? []).map((band) => {
        const [top, low] = [y.at(band.high), y.at(band.low)];
        return svg("rect", {
          class: "band",
          x: left,
          width: right - left,
          y: Math.min(top, low),
          height: Math.max(1, Math.abs(low - top)),
          fill: "var(--good)",
          "fill-opacity": 0.13,
        });
      }),
      (spec.guides?.(series) ?? []).map((guide) => this.guide(guide)),
      series.map((one) => this.trace(one)),
      this.guideLabels(spec.guides?.(series) ?? []),
    );
    const overlay = svg("rect", {
      class: "overlay",
      x: left,
      y: 0,
      width: Math.max(0, right - left),
      height: bottom,
      fill: "transparent",
      style: "cursor:crosshair",
    });
    this.cross = svg("g", { class: "cross", "pointer-events": "none" });
    const drawing = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.title },
      svg(
        "clipPath",
        { id: clip },
        svg("rect", { x: left, y: 4, width: Math.max(0, right - left), height: bottom - 3 }),
      ),
      grid,
      svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, stroke: "var(--line)" }),
      xTicks,
      titles,
      plot,
      this.cross,
      overlay,
    );
    this.listen(overlay, drawing);
    return drawing;
  }
}

// Limits an axis to meaningful values, such as fractions up to one.
function limit(range, { kind, floor, ceiling }) {
  if (floor !== undefined) range[0] = Math.max(range[0], KINDS[kind].bend(floor));
  if (ceiling !== undefined) range[1] = Math.min(range[1], KINDS[kind].bend(ceiling));
}
