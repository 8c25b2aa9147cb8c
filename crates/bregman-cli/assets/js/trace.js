// Marks of a chart: lines with their range, points with their intervals, targets.

class Traces extends Plane {
  // Labels at the right end of the guides; overlapping ones are merged.
  guideLabels(guides) {
    const groups = [];
    for (const { y, text } of guides.filter((guide) => given(guide.text))) {
      const at = this.scaleY.at(y),
        last = groups[groups.length - 1];
      if (last && Math.abs(last.at - at) < 24) {
        last.texts.push(text);
        last.at = at;
      } else groups.push({ at, texts: [text] });
    }
    return groups.map(({ at, texts }) =>
      svg(
        "text",
        {
          x: this.box.right - 4,
          y: at < 26 ? at + 15 : at - 6,
          "text-anchor": "end",
          "font-size": 11,
          fill: "var(--good)",
          stroke: "var(--paper)",
          "stroke-width": 3.5,
          "stroke-linejoin": "round",
          "paint-order": "stroke",
        },
        this.spec.guideText(texts),
      ),
    );
  }

  guide({ y, diagonal }) {
    const { left, right } = this.box,
      at = y === undefined ? 0 : this.scaleY.at(y);
    if (diagonal) {
      const low = Math.max(this.scaleX.domain[0], this.scaleY.domain[0]),
        high = Math.min(this.scaleX.domain[1], this.scaleY.domain[1]);
      const point = (value) => [
        this.scaleX.range[0] + (value - this.scaleX.domain[0]) * this.scaleX.factor,
        this.scaleY.range[0] + (value - this.scaleY.domain[0]) * this.scaleY.factor,
      ];
      const [[x1, y1], [x2, y2]] = [point(low), point(high)];
      return svg("line", { x1, y1, x2, y2, stroke: "var(--muted)", "stroke-width": 1, "stroke-dasharray": "1 4" });
    }
    return svg("line", {
      class: "target",
      x1: left,
      x2: right,
      y1: at,
      y2: at,
      stroke: "var(--good)",
      "stroke-width": 1.2,
      "stroke-dasharray": "5 3",
    });
  }

  trace(one) {
    const { scaleX: x, scaleY: y } = this;
    const line = (values) => {
      let path = "",
        pen = "M";
      for (let at = 0; at < one.x.length; at++) {
        const py = given(values[at]) ? y.at(values[at]) : NaN;
        if (!Number.isFinite(py)) {
          pen = "M";
          continue;
        }
        path += `${pen}${x.at(one.x[at]).toFixed(1)},${py.toFixed(1)}`;
        pen = "L";
      }
      return path;
    };
    const parts = [],
      smooth = this.spec.noisy && state.smooth > 0;
    if (one.low) {
      const back = [];
      let path = "";
      one.x.forEach((value, at) => {
        const [top, low] = [y.at(one.high[at]), y.at(one.low[at])];
        if (!Number.isFinite(top) || !Number.isFinite(low)) return;
        path += `${path ? "L" : "M"}${x.at(value).toFixed(1)},${top.toFixed(1)}`;
        back.push(`L${x.at(value).toFixed(1)},${low.toFixed(1)}`);
      });
      if (path)
        parts.push(
          svg("path", {
            class: "spread",
            d: `${path}${back.reverse().join("")}Z`,
            fill: one.color,
            "fill-opacity": Math.max(0.015, 0.22 / this.shown.length),
            stroke: one.color,
            "stroke-width": 0.6,
            "stroke-opacity": 0.25,
          }),
        );
    }
    if (one.line !== false) {
      const stroke = {
        fill: "none",
        stroke: one.color,
        "stroke-width": one.thin ? 1.2 : this.spec.noisy && !smooth ? 1.1 : 1.7,
        "stroke-linejoin": "round",
        "stroke-dasharray": one.dash,
      };
      if (smooth)
        parts.push(
          svg("path", {
            d: line(one.y),
            ...stroke,
            "stroke-width": 1,
            "stroke-opacity": 0.22,
            "stroke-dasharray": null,
          }),
        );
      parts.push(svg("path", { class: "line", d: line(smooth ? smoothed(one.y) : one.y), ...stroke }));
    }
    if (one.error)
      one.x.forEach((value, at) => {
        if (!one.error[at]) return;
        const [px, top, low] = [x.at(value), y.at(one.error[at][1]), y.at(one.error[at][0])];
        parts.push(
          svg("path", {
            class: "interval",
            d: `M${px},${top}V${low}M${px - 4},${top}h8M${px - 4},${low}h8`,
            fill: "none",
            stroke: one.colors[at],
            "stroke-width": 1.3,
            "stroke-opacity": 0.75,
          }),
        );
      });
    if (one.shape)
      one.x.forEach(
        (value, at) =>
          given(one.y[at]) && parts.push(marker(one.shape, x.at(value), y.at(one.y[at]), 5, one.colors[at])),
      );
    else if (one.x.length < 40 && one.dots)
      one.x.forEach(
        (value, at) =>
          given(one.y[at]) &&
          parts.push(svg("circle", { cx: x.at(value), cy: y.at(one.y[at]), r: 2.3, fill: one.color })),
      );
    return svg("g", { "data-run": one.run?.name }, parts);
  }
}

// Exponential moving average with bias correction; gaps remain.
function smoothed(values) {
  let mean = 0,
    weight = 0;
  return values.map((value) => {
    if (!given(value)) return value;
    mean = state.smooth * mean + (1 - state.smooth) * value;
    weight = state.smooth * weight + 1 - state.smooth;
    return mean / weight;
  });
}
