// Verification: error rates against sparsity, DET curves, scores.

const testName = (evaluation) =>
  evaluation.scoring === "cosine" ? evaluation.test : `${evaluation.test}, ${evaluation.scoring}`;
const allTests = () => {
  const tests = new Map();
  for (const run of state.runs) for (const one of run.evaluations) tests.set(testName(one), one.domain);
  return [...tests].sort((a, b) => (a[1] === b[1] ? 0 : a[1] === "in" ? -1 : 1));
};
const currentTest = () => {
  const tests = allTests();
  return tests.find(([name]) => name === state.test)?.[0] ?? tests[0]?.[0];
};
const evaluated = (keep) => visible().flatMap((run) => run.evaluations.filter(keep).map((one) => ({ run, one })));

const NOT_EVALUATED = "None of the chosen runs was evaluated here: bregman evaluate RUN --trials LIST --root DIR";

// One line per method and test set, through the means of the runs with the same target.
function ratesAgainstSparsity(domain) {
  const several = new Set(state.runs.map((run) => run.model).filter(Boolean)).size > 1;
  const methods = [...new Set(state.runs.map((run) => run.method))],
    tests = allTests()
      .filter(([, of]) => of === domain)
      .map(([name]) => name);
  const lines = new Map();
  for (const { run, one } of evaluated((one) => one.domain === domain)) {
    const method = `${several ? `${run.model} ` : ""}${run.method ?? run.name}`,
      test = testName(one),
      key = `${method}${tests.length > 1 ? ` · ${test}` : ""}`;
    if (!lines.has(key)) lines.set(key, { method: run.method, test, points: [] });
    lines.get(key).points.push({ run, one });
  }
  return [...lines].flatMap(([name, { method, test, points }]) => {
    const number = Math.max(0, methods.indexOf(method)),
      look = {
        name,
        color: "var(--muted)",
        shape: SHAPES[number % SHAPES.length],
        dash: DASHES[tests.indexOf(test) % DASHES.length],
      };
    points.sort((a, b) => a.one.sparsity - b.one.sparsity);
    const groups = new Map();
    for (const point of points) {
      const key = point.run.target ?? 0;
      groups.set(key, [...(groups.get(key) ?? []), point]);
    }
    const mean = (group, value) => group.reduce((sum, point) => sum + value(point.one), 0) / group.length;
    const means = [...groups.values()]
      .map((group) => [mean(group, (one) => one.sparsity), mean(group, (one) => one.eer)])
      .sort((a, b) => a[0] - b[0]);
    return [
      { ...look, x: means.map(([x]) => x), y: means.map(([, y]) => y), shape: null, thin: true },
      {
        ...look,
        line: false,
        runs: points.map(({ run }) => run),
        colors: points.map(({ run }) => run.color),
        x: points.map(({ one }) => one.sparsity),
        y: points.map(({ one }) => one.eer),
        error: points.map(({ one }) => one.intervals?.eer),
      },
    ];
  });
}

function rateChart(id, title, domain) {
  return new Chart(
    id,
    title,
    {
      x: {
        label: "sparsity, %",
        name: "sparsity",
        kind: "nines",
        tick: label.percent,
        format: format.percent,
        pad: 0.05,
        include: (series) =>
          series
            .flatMap((one) => one.runs ?? [])
            .map((run) => run.target)
            .filter(given),
      },
      y: {
        label: "EER, %",
        name: "EER",
        kind: "linear",
        tick: label.percent,
        format: format.percent,
        floor: 0,
        include: () => [0],
      },
      nearest: "xy",
      series: () => ratesAgainstSparsity(domain),
      empty: NOT_EVALUATED,
      rows: () => [
        ["run", "method", "test set", "target", "sparsity", "EER", "lowest", "highest"],
        ...evaluated((one) => one.domain === domain).map(({ run, one }) => [
          run.name,
          run.method,
          testName(one),
          run.target,
          one.sparsity,
          one.eer,
          one.intervals?.eer[0],
          one.intervals?.eer[1],
        ]),
      ],
      at: (point) => `${point.one.runs?.[point.at].name ?? "mean"} · ${format.percent(point.one.x[point.at])} sparse`,
      note: () => "Bars: 95 % intervals by resampling speakers. Lines: means over the runs with the same target.",
    },
    { height: 290 },
  );
}

function rateLegend() {
  const seen = new Map();
  for (const domain of ["in", "out"])
    for (const one of ratesAgainstSparsity(domain)) if (one.shape) seen.set(one.name, one);
  return [...seen.values()].map((one) =>
    html("span", { class: "key" }, sample("var(--soft)", null, one.shape), one.name),
  );
}

function detChart() {
  const clip = (value) => (value > 0 && value < 1 ? value : null);
  const chart = new Chart(
    "det",
    "Detection error trade-off",
    {
      x: {
        label: "false alarms, %",
        name: "false alarms",
        kind: "probit",
        tick: label.percent,
        format: format.percent,
        floor: 0.0002,
        ceiling: 0.8,
      },
      y: {
        label: "misses, %",
        name: "misses",
        kind: "probit",
        tick: label.percent,
        format: format.percent,
        floor: 0.0002,
        ceiling: 0.8,
      },
      nearest: "xy",
      empty: NOT_EVALUATED,
      series: () =>
        evaluated((one) => testName(one) === currentTest()).map(({ run, one }) => {
          const points = one.det.filter((point) => clip(point.miss) && clip(point.false_alarm));
          return {
            run,
            name: run.name,
            color: run.color,
            dash: run.dash,
            x: points.map((point) => point.false_alarm),
            y: points.map((point) => point.miss),
          };
        }),
      guides: () => [{ diagonal: true }],
      at: (point) => `${format.percent(point.one.x[point.at])} false alarms, misses:`,
      note: () => "Both axes on a normal-deviate scale; the equal error rate lies on the dotted diagonal.",
    },
    { height: 380 },
  );
  return chart;
}

// The scores of one evaluation, each class as fractions of its own total.
class Scores extends Figure {
  constructor(id) {
    super(id, "", { height: 150 });
  }
  show(run, one) {
    Object.assign(this, { run, one });
    this.setTitle(run.name);
    this.hint.textContent = `EER ${format.percent(one.eer)}`;
  }
  legend() {
    return [
      { name: "same speaker", color: "var(--c0)" },
      { name: "different speakers", color: "var(--c1)" },
      { name: "EER threshold", color: "var(--ink)", dash: "4 3" },
    ];
  }
  edges() {
    const { low, high, targets } = this.one.histogram;
    return targets.map((_, at) => low + ((high - low) * at) / targets.length);
  }
  rows() {
    const { targets, others } = this.one.histogram;
    return [
      ["score from", "same speaker", "different speakers"],
      ...this.edges().map((edge, at) => [edge, targets[at], others[at]]),
    ];
  }
  draw(width) {
    const { low, high, targets, others } = this.one.histogram,
      { height } = this,
      bottom = height - 22;
    if (!(high > low)) return null;
    const x = new Scale("linear", [low, high], [6, width - 6]),
      sum = (all) => all.reduce((a, b) => a + b, 0) || 1;
    const shares = [others, targets].map((all) => all.map((count) => count / sum(all))),
      most = Math.max(...shares.flat());
    const bin = (width - 12) / targets.length,
      top = (value) => bottom - (bottom - 12) * (value / most);
    const area = (all, color) => {
      const path = all
        .map((value, at) => `L${(6 + at * bin).toFixed(1)},${top(value).toFixed(1)}h${bin.toFixed(2)}`)
        .join("");
      return svg("path", {
        class: "area",
        d: `M6,${bottom}${path}L${width - 6},${bottom}Z`,
        fill: color,
        "fill-opacity": 0.42,
        stroke: color,
        "stroke-width": 1,
      });
    };
    const at = x.at(this.one.threshold);
    const drawing = svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Scores of ${this.title}` },
      area(shares[0], "var(--c1)"),
      area(shares[1], "var(--c0)"),
      svg("line", { x1: 6, x2: width - 6, y1: bottom, y2: bottom, stroke: "var(--line)" }),
      svg("line", {
        class: "threshold",
        x1: at,
        x2: at,
        y1: 4,
        y2: bottom,
        stroke: "var(--ink)",
        "stroke-dasharray": "4 3",
      }),
      svg(
        "text",
        {
          x: at + (at > width - 60 ? -5 : 5),
          y: 12,
          "text-anchor": at > width - 60 ? "end" : "start",
          "font-size": 10.5,
          fill: "var(--soft)",
        },
        format.number(this.one.threshold),
      ),
      x
        .ticks(4)
        .map((tick) =>
          svg(
            "text",
            { ...AXIS, "font-size": 10.5, x: x.at(tick), y: bottom + 14, "text-anchor": "middle" },
            label.number(tick),
          ),
        ),
    );
    drawing.addEventListener("pointermove", (event) => {
      const px = event.clientX - drawing.getBoundingClientRect().left,
        at = Math.min(targets.length - 1, Math.max(0, Math.floor((px - 6) / bin))),
        from = this.edges()[at];
      this.readout(
        px,
        40,
        html(
          "div",
          { class: "at" },
          `score ${format.number(from)} – ${format.number(from + (high - low) / targets.length)}`,
        ),
        html("div", null, `${format.count(targets[at])} of the same speaker`),
        html("div", null, `${format.count(others[at])} of different speakers`),
      );
    });
    drawing.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    return drawing;
  }
}

// One histogram per evaluated run.
const histograms = new Map();
function fillHistograms(grid) {
  const shown = evaluated((one) => testName(one) === currentTest()).map(({ run, one }) => {
    if (!histograms.has(run.name)) histograms.set(run.name, new Scores(`scores-${histograms.size}`));
    const figure = histograms.get(run.name);
    figure.show(run, one);
    return figure;
  });
  grid.replaceChildren(...shown.map((figure) => figure.element));
}
