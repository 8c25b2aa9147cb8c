// Interaction with a chart: hovering shows the nearest values, dragging zooms, a double click resets the zoom.

class Chart extends Traces {
  // The nearest point of each series.
  near(px, py) {
    const byX = this.spec.nearest !== "xy";
    return this.shown
      .map((one) => {
        let best = null;
        for (let at = 0; at < one.x.length; at++) {
          if (!given(one.y[at])) continue;
          const [x, y] = [this.scaleX.at(one.x[at]), this.scaleY.at(one.y[at])];
          if (!Number.isFinite(y)) continue;
          const dx = Math.abs(x - px),
            distance = byX ? dx : Math.hypot(x - px, y - py);
          if (!best || distance < best.distance) best = { one, at, x, y, distance };
        }
        return best;
      })
      .filter((point) => point && (!byX || point.distance < 40))
      .map((point) => ({ ...point, off: byX ? Math.abs(point.y - py) : point.distance }))
      .sort((a, b) => a.off - b.off || Boolean(b.one.shape) - Boolean(a.one.shape));
  }

  hover(px, py) {
    const points = this.near(px, py),
      { spec, box } = this;
    if (!points.length) return this.leave();
    const [first] = points,
      several = spec.nearest !== "xy";
    light(first.one.run?.name ?? null);
    const shown = points.slice(0, several ? 9 : 1).sort((a, b) => b.one.y[b.at] - a.one.y[a.at]);
    this.cross.replaceChildren(
      ...(several
        ? [
            svg("line", {
              x1: first.x,
              x2: first.x,
              y1: box.top,
              y2: box.bottom,
              stroke: "var(--muted)",
              "stroke-width": 1,
              "stroke-opacity": 0.5,
            }),
          ]
        : []),
      ...shown
        .filter((point) => point.y >= 0 && point.y <= box.bottom)
        .map((point) =>
          svg("circle", {
            cx: point.x,
            cy: point.y,
            r: point === first ? 4 : 2.8,
            fill: point.one.colors?.[point.at] ?? point.one.color,
            stroke: "var(--paper)",
            "stroke-width": 1.5,
          }),
        ),
    );
    const value = (point) => {
      const { one, at } = point,
        text = (spec.y.format ?? format.number)(one.y[at]),
        show = spec.y.format ?? format.number;
      const spread =
        one.low && one.low[at] !== one.high[at]
          ? ` (${show(one.low[at])} … ${show(one.high[at])})`
          : one.error?.[at]
            ? ` (${show(one.error[at][0])} … ${show(one.error[at][1])})`
            : "";
      return text + spread;
    };
    const row = (point) =>
      html(
        "tr",
        { class: point === first ? "near" : null },
        html("td", null, sample(point.one.colors?.[point.at] ?? point.one.color, point.one.dash, point.one.shape)),
        html("td", { class: "name" }, point.one.name),
        html("td", { class: "value" }, value(point)),
      );
    const more = several ? points.length - shown.length : 0;
    const at = first.one.x[first.at],
      from = first.one.from?.[first.at];
    const head = spec.at
      ? spec.at(first)
      : `${spec.x.label} ${given(from) && from !== at ? `${spec.x.format(from)} – ` : ""}${spec.x.format(at)}`;
    this.readout(
      first.x,
      py,
      html("div", { class: "at" }, head),
      html("table", null, shown.map(row)),
      more > 0 ? html("div", { class: "at" }, `and ${more} more`) : "",
    );
  }

  leave() {
    this.cross?.replaceChildren();
    this.tip.hidden = true;
    light(null);
  }

  listen(overlay, drawing) {
    const place = (event) => {
      const area = drawing.getBoundingClientRect();
      return [event.clientX - area.left, event.clientY - area.top];
    };
    let start = null,
      frame = null;
    overlay.addEventListener("pointerdown", (event) => {
      if (event.button === 0) {
        start = place(event);
        overlay.setPointerCapture(event.pointerId);
      }
    });
    overlay.addEventListener("pointermove", (event) => {
      const [px, py] = place(event);
      if (!start) return this.hover(px, py);
      const [x, y] = start,
        flat = Math.abs(py - y) < 18,
        { top, bottom } = this.box;
      frame ??= drawing.appendChild(
        svg("rect", { fill: "var(--accent)", "fill-opacity": 0.12, stroke: "var(--accent)", "pointer-events": "none" }),
      );
      const box = {
        x: Math.min(x, px),
        width: Math.abs(px - x),
        y: flat ? top : Math.min(y, py),
        height: flat ? bottom - top : Math.abs(py - y),
      };
      Object.entries(box).forEach(([name, value]) => frame.setAttribute(name, value));
      this.tip.hidden = true;
    });
    overlay.addEventListener("pointerup", (event) => {
      const from = start,
        [px, py] = place(event);
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
    overlay.addEventListener("pointercancel", () => {
      start = null;
      frame?.remove();
      frame = null;
    });
    overlay.addEventListener("dblclick", () => {
      delete zooms[this.group];
      figures.forEach((figure) => {
        if (figure.group === this.group) figure.zoomY = null;
      });
      this.together();
    });
    overlay.addEventListener("pointerleave", () => this.leave());
  }

  // Charts of one group share their horizontal axis.
  together() {
    light(null);
    figures
      .filter((figure) => figure.group === this.group && figure.element.isConnected)
      .forEach((figure) => figure.redraw());
  }
}
