// Charts over steps and epochs.

const overSteps = () => state.axis === "step";
const horizontal = () =>
  overSteps()
    ? { label: "step", kind: "linear", tick: label.count, format: format.count }
    : { label: "epoch", kind: "linear", tick: label.number, format: (value) => String(Number(value.toFixed(2))) };

// A metric of every step.
function stepSeries(metric, change = {}) {
  return visible()
    .filter((run) => run.curves.metrics[metric] && (overSteps() || run.perEpoch))
    .map((run) => {
      const { mean, low, high } = run.curves.metrics[metric],
        place = (steps) => (overSteps() ? steps : steps.map((step) => step / run.perEpoch));
      return {
        run,
        name: run.name,
        color: run.color,
        dash: run.dash,
        x: place(run.curves.last),
        from: low && place(run.curves.first),
        y: mean,
        low,
        high,
        ...change,
      };
    });
}

// A metric of every epoch.
function epochSeries(metric, change = {}) {
  return visible()
    .filter((run) => run.epochs.epoch.length)
    .map((run) => ({
      run,
      name: run.name,
      color: run.color,
      dash: run.dash,
      x: overSteps() ? run.epochs.step : run.epochs.epoch,
      y: run.epochs[metric],
      dots: true,
      ...change,
    }));
}

// Explains the lines and bands of a log that was thinned.
function thinned(series) {
  const most = Math.max(...series.map(({ run }) => run.curves.logged / Math.max(1, run.curves.last.length)));
  return most > 1 ? `Lines: means of up to ${Math.ceil(most)} steps. Bands: their lowest and highest value.` : "";
}

const targets = (series) => {
  const found = new Map();
  for (const { run } of series)
    if (given(run.target)) found.set(run.target, Math.max(found.get(run.target) ?? 0, run.tolerance));
  return [...found].sort((a, b) => a[0] - b[0]);
};

function curveChart(id, title, y, more) {
  return new Chart(
    id,
    title,
    {
      get x() {
        return horizontal();
      },
      y: { kind: "linear", ...y },
      group: "steps",
      ...more,
    },
    { hint: more.hint },
  );
}

function stepChart(id, title, metric, y, more = {}) {
  return curveChart(id, title, y, { note: thinned, series: () => stepSeries(metric, more.change), ...more });
}

function epochChart(id, title, y, series, more = {}) {
  return curveChart(id, title, y, { series, empty: "No epoch has ended yet.", ...more });
}

const share = { tick: label.percent, format: format.percent };

// Validation as the run's line, and training thin and dotted if there is room for both.
const ROOM = 6;
const both = (metric) => () => [
  ...epochSeries(`validation_${metric}`),
  ...(visible().length > ROOM ? [] : epochSeries(`train_${metric}`, { dash: "1 3", thin: true, dots: false })).map(
    (one) => ({
      ...one,
      name: `${one.name} (training)`,
    }),
  ),
];
const bothHint = `validation; dotted: training, for up to ${ROOM} runs`;

// Targets that move, along a ramp or while a network is pruned.
function movingTargets() {
  const moving = stepSeries("target").filter(({ y }) => new Set(y.filter(given)).size > 1);
  return moving.map((one) => ({
    ...one,
    name: `${one.name} (target)`,
    dash: "1 3",
    thin: true,
    low: null,
    high: null,
  }));
}

function controlCharts() {
  return [
    stepChart(
      "sparsity",
      "Sparsity",
      "sparsity",
      { ...share, label: "zeros, %", include: (series) => targets(series).map(([target]) => target), ceiling: 1.02 },
      {
        bands: (series) =>
          targets(series).map(([target, tolerance]) => ({ low: target - tolerance, high: target + tolerance })),
        guides: (series) =>
          targets(series).map(([target]) => ({ y: target, text: Number((100 * target).toPrecision(6)) })),
        guideText: (values) => `asked for ${values.join(", ")} %`,
        series: () => [...stepSeries("sparsity"), ...movingTargets()],
      },
    ),
    stepChart(
      "lambda",
      "Regularization λ",
      "lambda",
      { label: "λ", kind: "log", name: "lambda" },
      { empty: "None of the chosen runs has a λ." },
    ),
    stepChart(
      "error",
      "Distance to the target",
      "epsilon",
      {
        label: "s* − s, points",
        tick: label.percent,
        format: format.points,
        include: () => [-0.01, 0.01],
        name: "epsilon",
      },
      {
        empty: "None of the chosen runs has a target.",
        bands: (series) => [
          {
            low: -Math.max(...series.map(({ run }) => run.tolerance)),
            high: Math.max(...series.map(({ run }) => run.tolerance)),
          },
        ],
        guides: () => [{ y: 0, text: "on target" }],
        guideText: (values) => values[0],
      },
    ),
    epochChart("norm", "Frobenius norm of the weights", { label: "norm", kind: "log" }, () => epochSeries("norm")),
  ];
}

function learningCharts() {
  return [
    epochChart("loss-epoch", "Loss", { label: "loss", kind: "log" }, both("loss"), { hint: bothHint }),
    epochChart("accuracy-epoch", "Accuracy", { ...share, label: "accuracy, %", ceiling: 1.02 }, both("accuracy"), {
      hint: bothHint,
    }),
    stepChart("loss-step", "Training loss, every step", "loss", { label: "loss", kind: "log" }, { noisy: true }),
    stepChart(
      "accuracy-step",
      "Training accuracy, every step",
      "accuracy",
      { ...share, label: "accuracy, %", ceiling: 1.02 },
      { noisy: true },
    ),
  ];
}

function scheduleCharts() {
  return [
    stepChart("lr", "Learning rate", "lr", { label: "learning rate", kind: "log" }),
    stepChart("margin", "Margin", "margin", { label: "margin, radians" }),
    stepChart("gradient", "Norm of the gradient", "gradient_norm", { label: "norm", kind: "log" }, { noisy: true }),
    stepChart(
      "speed",
      "Speed",
      "utterances_per_second",
      { label: "utterances/s", floor: 0, include: () => [0] },
      { noisy: true },
    ),
  ];
}
