// Lines and points over two axes: hover reads the nearest values, dragging zooms, a double click goes back.
//
// spec = { x, y: { label, kind, name, format, include }, series(), bands(), guides(), group, nearest: "x" | "xy", noisy, note() }
// series = [{ run, name, color, dash, x: [], y: [], low: [], high: [], shape, colors: [], error: [[low, high]], line: true }]

const zooms = {};          // by group of charts: { x: [low, high] }, bent
const AXIS = { "font-size": 11, fill: "var(--muted)" };

class Chart extends Figure {
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
    return this.shown.filter((one) => one.shape || !this.shown.some((other) => other.shape)).filter(({ name }) => !seen.has(name) && seen.add(name));
  }

  empty() { return this.spec.empty ?? super.empty(); }

  rows() {
    if (this.spec.rows) return this.spec.rows();
    const { x, y } = this.spec, bands = this.shown.some((one) => one.low);
    const head = ["series", x.name ?? x.label, y.name ?? y.label, ...(bands ? ["lowest", "highest"] : [])];
    return [head, ...this.shown.flatMap((one) => one.x.map((value, at) => [one.name, value, one.y[at], ...(bands ? [one.low?.[at] ?? one.y[at], one.high?.[at] ?? one.y[at]] : [])]))];
  }

  // The bent range of an axis over some values.
  extent(kind, values, include, pad) {
    const { bend } = KINDS[kind];
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      const bent = bend(value);
      if (!Number.isFinite(bent)) continue;
      if (bent < low) low = bent;
      if (bent > high) high = bent;
    }
    for (const value of include ?? []) { low = Math.min(low, bend(value)); high = Math.max(high, bend(value)); }
    if (low > high) return null;
    if (low === high) { const by = kind === "linear" ? Math.abs(low) * 0.1 || 1 : 0.3; return [low - by, high + by]; }
    const margin = (high - low) * pad;
    return [low - margin, high + margin];
  }

  draw(width) {
    const { spec, height } = this, series = (this.shown = spec.series().filter((one) => one.y.some(given)));
    this.note.textContent = series.length ? (spec.note?.(series) ?? "") : "";
    if (!series.length) return null;
    const zoom = zooms[this.group] ?? {}, inside = (value) => !zoom.x || (value >= zoom.x[0] && value <= zoom.x[1]);
    const xs = zoom.x ?? this.extent(spec.x.kind, series.flatMap((one) => one.x), spec.x.include?.(series), spec.x.pad ?? 0.01);
    const bendX = KINDS[spec.x.kind].bend, values = [];
    for (const one of series) for (let at = 0; at < one.x.length; at++) if (given(one.y[at]) && inside(bendX(one.x[at]))) {
      values.push(one.y[at]);
      if (one.low) values.push(one.low[at], one.high[at]);
      if (one.error?.[at]) values.push(...one.error[at]);
    }
    const include = zoom.x ? [] : (spec.y.include?.(series) ?? []);
    const ys = this.zoomY ?? this.extent(spec.y.kind, values, include, 0.05) ?? [0, 1];
    if (!zoom.x) limit(xs, spec.x);
    if (!this.zoomY) limit(ys, spec.y);

    const bottom = height - 38;
    const yTicks = new Scale(spec.y.kind, ys, [bottom, 10]).ticks(height / 50), yLabel = spec.y.tick ?? label.number, xLabel = spec.x.tick ?? label.number;
    const left = 24 + Math.max(...yTicks.map((tick) => yLabel(tick).length), 1) * 6.4, right = width - (spec.right ?? 10);
    const x = new Scale(spec.x.kind, xs, [left, right]), y = new Scale(spec.y.kind, ys, [bottom, 10]);
    Object.assign(this, { scaleX: x, scaleY: y, box: { left, right, top: 10, bottom } });
    const clip = `clip-${this.id}`;
    const grid = yTicks.map((tick) => [
      svg("line", { x1: left, x2: right, y1: y.at(tick), y2: y.at(tick), stroke: "var(--grid)" }),
      svg("text", { ...AXIS, x: left - 7, y: y.at(tick) + 4, "text-anchor": "end" }, yLabel(tick))]);
    const xTicks = x.ticks(Math.max(2, (right - left) / 90)).map((tick) => [
      svg("line", { x1: x.at(tick), x2: x.at(tick), y1: bottom, y2: bottom + 4, stroke: "var(--line)" }),
      svg("text", { ...AXIS, x: x.at(tick), y: bottom + 16, "text-anchor": "middle" }, xLabel(tick))]);
    const titles = [
      svg("text", { ...AXIS, x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, spec.x.label),
      svg("text", { ...AXIS, x: 0, y: 0, "text-anchor": "middle", transform: `translate(10 ${(10 + bottom) / 2}) rotate(-90)` }, spec.y.label)];
    const plot = svg("g", { "clip-path": `url(#${clip})` },
      (spec.bands?.(series) ?? []).map((band) => {
        const [top, low] = [y.at(band.high), y.at(band.low)];
        return svg("rect", { class: "band", x: left, width: right - left, y: Math.min(top, low), height: Math.max(1, Math.abs(low - top)), fill: "var(--good)", "fill-opacity": 0.13 });
      }),
      (spec.guides?.(series) ?? []).map((guide) => this.guide(guide)),
      series.map((one) => this.trace(one)), this.guideLabels(spec.guides?.(series) ?? []));
    const overlay = svg("rect", { class: "overlay", x: left, y: 0, width: Math.max(0, right - left), height: bottom, fill: "transparent", style: "cursor:crosshair" });
    this.cross = svg("g", { class: "cross", "pointer-events": "none" });
    const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.title },
      svg("clipPath", { id: clip }, svg("rect", { x: left, y: 4, width: Math.max(0, right - left), height: bottom - 3 })),
      grid, svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, stroke: "var(--line)" }), xTicks, titles, plot, this.cross, overlay);
    this.listen(overlay, drawing);
    return drawing;
  }

  // Labels at the right end of the guides; those that would overlap share one.
  guideLabels(guides) {
    const groups = [];
    for (const { y, text } of guides.filter((guide) => given(guide.text))) {
      const at = this.scaleY.at(y), last = groups[groups.length - 1];
      if (last && Math.abs(last.at - at) < 24) { last.texts.push(text); last.at = at; } else groups.push({ at, texts: [text] });
    }
    return groups.map(({ at, texts }) => svg("text", {
      x: this.box.right - 4, y: at < 26 ? at + 15 : at - 6, "text-anchor": "end", "font-size": 11, fill: "var(--good)", stroke: "var(--paper)", "stroke-width": 3.5, "stroke-linejoin": "round", "paint-order": "stroke",
    }, this.spec.guideText(texts)));
  }

  guide({ y, diagonal }) {
    const { left, right } = this.box, at = y === undefined ? 0 : this.scaleY.at(y);
    if (diagonal) {
      const low = Math.max(this.scaleX.domain[0], this.scaleY.domain[0]), high = Math.min(this.scaleX.domain[1], this.scaleY.domain[1]);
      const point = (value) => [this.scaleX.range[0] + (value - this.scaleX.domain[0]) * this.scaleX.factor, this.scaleY.range[0] + (value - this.scaleY.domain[0]) * this.scaleY.factor];
      const [[x1, y1], [x2, y2]] = [point(low), point(high)];
      return svg("line", { x1, y1, x2, y2, stroke: "var(--muted)", "stroke-width": 1, "stroke-dasharray": "1 4" });
    }
    return svg("line", { class: "target", x1: left, x2: right, y1: at, y2: at, stroke: "var(--good)", "stroke-width": 1.2, "stroke-dasharray": "5 3" });
  }

  trace(one) {
    const { scaleX: x, scaleY: y } = this;
    const line = (values) => {
      let path = "", pen = "M";
      for (let at = 0; at < one.x.length; at++) {
        const py = given(values[at]) ? y.at(values[at]) : NaN;
        if (!Number.isFinite(py)) { pen = "M"; continue; }
        path += `${pen}${x.at(one.x[at]).toFixed(1)},${py.toFixed(1)}`;
        pen = "L";
      }
      return path;
    };
    const parts = [], smooth = this.spec.noisy && state.smooth > 0;
    if (one.low) {
      const back = [];
      let path = "";
      one.x.forEach((value, at) => {
        const [top, low] = [y.at(one.high[at]), y.at(one.low[at])];
        if (!Number.isFinite(top) || !Number.isFinite(low)) return;
        path += `${path ? "L" : "M"}${x.at(value).toFixed(1)},${top.toFixed(1)}`;
        back.push(`L${x.at(value).toFixed(1)},${low.toFixed(1)}`);
      });
      if (path) parts.push(svg("path", { class: "spread", d: `${path}${back.reverse().join("")}Z`, fill: one.color, "fill-opacity": Math.max(0.015, 0.22 / this.shown.length), stroke: one.color, "stroke-width": 0.6, "stroke-opacity": 0.25 }));
    }
    if (one.line !== false) {
      const stroke = { fill: "none", stroke: one.color, "stroke-width": one.thin ? 1.2 : this.spec.noisy && !smooth ? 1.1 : 1.7, "stroke-linejoin": "round", "stroke-dasharray": one.dash };
      if (smooth) parts.push(svg("path", { d: line(one.y), ...stroke, "stroke-width": 1, "stroke-opacity": 0.22, "stroke-dasharray": null }));
      parts.push(svg("path", { class: "line", d: line(smooth ? smoothed(one.y) : one.y), ...stroke }));
    }
    if (one.error) one.x.forEach((value, at) => {
      if (!one.error[at]) return;
      const [px, top, low] = [x.at(value), y.at(one.error[at][1]), y.at(one.error[at][0])];
      parts.push(svg("path", { class: "interval", d: `M${px},${top}V${low}M${px - 4},${top}h8M${px - 4},${low}h8`, fill: "none", stroke: one.colors[at], "stroke-width": 1.3, "stroke-opacity": 0.75 }));
    });
    if (one.shape) one.x.forEach((value, at) => given(one.y[at]) && parts.push(marker(one.shape, x.at(value), y.at(one.y[at]), 5, one.colors[at])));
    else if (one.x.length < 40 && one.dots) one.x.forEach((value, at) => given(one.y[at]) && parts.push(svg("circle", { cx: x.at(value), cy: y.at(one.y[at]), r: 2.3, fill: one.color })));
    return svg("g", { "data-run": one.run?.name }, parts);
  }

  // The nearest point of each series.
  near(px, py) {
    const byX = this.spec.nearest !== "xy";
    return this.shown.map((one) => {
      let best = null;
      for (let at = 0; at < one.x.length; at++) {
        if (!given(one.y[at])) continue;
        const [x, y] = [this.scaleX.at(one.x[at]), this.scaleY.at(one.y[at])];
        if (!Number.isFinite(y)) continue;
        const dx = Math.abs(x - px), distance = byX ? dx : Math.hypot(x - px, y - py);
        if (!best || distance < best.distance) best = { one, at, x, y, distance };
      }
      return best;
    }).filter((point) => point && (!byX || point.distance < 40)).map((point) => ({ ...point, off: byX ? Math.abs(point.y - py) : point.distance })).sort((a, b) => a.off - b.off);
  }

  hover(px, py) {
    const points = this.near(px, py), { spec, box } = this;
    if (!points.length) return this.leave();
    const [first] = points, several = spec.nearest !== "xy";
    light(first.one.run?.name ?? null);
    const shown = points.slice(0, several ? 9 : 1).sort((a, b) => b.one.y[b.at] - a.one.y[a.at]);
    this.cross.replaceChildren(
      ...(several ? [svg("line", { x1: first.x, x2: first.x, y1: box.top, y2: box.bottom, stroke: "var(--muted)", "stroke-width": 1, "stroke-opacity": 0.5 })] : []),
      ...shown.filter((point) => point.y >= 0 && point.y <= box.bottom).map((point) => svg("circle", { cx: point.x, cy: point.y, r: point === first ? 4 : 2.8, fill: point.one.colors?.[point.at] ?? point.one.color, stroke: "var(--paper)", "stroke-width": 1.5 })));
    const value = (point) => {
      const { one, at } = point, text = (spec.y.format ?? format.number)(one.y[at]), show = spec.y.format ?? format.number;
      const spread = one.low && one.low[at] !== one.high[at] ? ` (${show(one.low[at])} … ${show(one.high[at])})` : one.error?.[at] ? ` (${show(one.error[at][0])} … ${show(one.error[at][1])})` : "";
      return text + spread;
    };
    const row = (point) => html("tr", { class: point === first ? "near" : null },
      html("td", null, sample(point.one.colors?.[point.at] ?? point.one.color, point.one.dash, point.one.shape)), html("td", { class: "name" }, point.one.name), html("td", { class: "value" }, value(point)));
    const more = several ? points.length - shown.length : 0;
    const at = first.one.x[first.at], from = first.one.from?.[first.at];
    const head = spec.at ? spec.at(first) : `${spec.x.label} ${given(from) && from !== at ? `${spec.x.format(from)} – ` : ""}${spec.x.format(at)}`;
    this.readout(first.x, py, html("div", { class: "at" }, head), html("table", null, shown.map(row)), more > 0 ? html("div", { class: "at" }, `and ${more} more`) : "");
  }

  leave() {
    this.cross?.replaceChildren();
    this.tip.hidden = true;
    light(null);
  }

  listen(overlay, drawing) {
    const place = (event) => { const area = drawing.getBoundingClientRect(); return [event.clientX - area.left, event.clientY - area.top]; };
    let start = null, frame = null;
    overlay.addEventListener("pointerdown", (event) => { if (event.button === 0) { start = place(event); overlay.setPointerCapture(event.pointerId); } });
    overlay.addEventListener("pointermove", (event) => {
      const [px, py] = place(event);
      if (!start) return this.hover(px, py);
      const [x, y] = start, flat = Math.abs(py - y) < 18, { top, bottom } = this.box;
      frame ??= drawing.appendChild(svg("rect", { fill: "var(--accent)", "fill-opacity": 0.12, stroke: "var(--accent)", "pointer-events": "none" }));
      const box = { x: Math.min(x, px), width: Math.abs(px - x), y: flat ? top : Math.min(y, py), height: flat ? bottom - top : Math.abs(py - y) };
      Object.entries(box).forEach(([name, value]) => frame.setAttribute(name, value));
      this.tip.hidden = true;
    });
    overlay.addEventListener("pointerup", (event) => {
      const from = start, [px, py] = place(event);
      start = null;
      frame?.remove();
      frame = null;
      if (!from || Math.abs(px - from[0]) < 6) return;
      const clamp = (value, [a, b]) => Math.min(Math.max(value, Math.min(a, b)), Math.max(a, b));
      const range = (scale, a, b) => [a, b].map((pixel) => scale.bent(clamp(pixel, scale.range))).sort((p, q) => p - q);
      if (Math.abs(py - from[1]) >= 18) this.zoomY = range(this.scaleY, from[1], py);
      zooms[this.group] = { x: range(this.scaleX, from[0], px) };
      this.together();
    });
    overlay.addEventListener("pointercancel", () => { start = null; frame?.remove(); frame = null; });
    overlay.addEventListener("dblclick", () => { delete zooms[this.group]; figures.forEach((figure) => { if (figure.group === this.group) figure.zoomY = null; }); this.together(); });
    overlay.addEventListener("pointerleave", () => this.leave());
  }

  // Charts of one group share their horizontal axis.
  together() { light(null); figures.filter((figure) => figure.group === this.group && figure.element.isConnected).forEach((figure) => figure.redraw()); }
}

// No more of an axis than makes sense, such as shares above one.
function limit(range, { kind, floor, ceiling }) {
  if (floor !== undefined) range[0] = Math.max(range[0], KINDS[kind].bend(floor));
  if (ceiling !== undefined) range[1] = Math.min(range[1], KINDS[kind].bend(ceiling));
}

// Exponential mean, corrected for its start; gaps stay gaps.
function smoothed(values) {
  let mean = 0, weight = 0;
  return values.map((value) => {
    if (!given(value)) return value;
    mean = state.smooth * mean + (1 - state.smooth) * value;
    weight = state.smooth * weight + 1 - state.smooth;
    return mean / weight;
  });
}
