// Tables that sort, and the overview of the runs.

// columns = [{ title, text: true for text, value: row → sort key, show: row → content of the cell }]
class SortedTable {
  constructor(id, columns, sort = null) {
    Object.assign(this, { columns, sort });
    this.head = html("tr");
    this.body = html("tbody");
    this.element = html(
      "div",
      { class: "scroll" },
      html("table", { class: "data", id }, html("thead", null, this.head), this.body),
    );
  }

  fill(rows) {
    this.rows = rows;
    this.render();
  }

  by(column) {
    const first = column.text ? 1 : -1;
    const turn = this.sort?.column === column ? this.sort.way * -1 : first;
    this.sort = { column, way: turn };
    this.render();
  }

  render() {
    const { sort } = this;
    this.head.replaceChildren(
      ...this.columns.map((column) =>
        html(
          "th",
          {
            class: column.text ? "text" : null,
            scope: "col",
            title: column.hint,
            "aria-sort": sort?.column === column ? (sort.way > 0 ? "ascending" : "descending") : null,
          },
          html("button", { type: "button", click: () => this.by(column) }, column.title),
        ),
      ),
    );
    const rows = [...this.rows];
    if (sort)
      rows.sort((a, b) => {
        const [x, y] = [sort.column.value(a), sort.column.value(b)];
        // Missing values come last in both directions.
        if (!given(x) || !given(y)) return given(x) ? -1 : given(y) ? 1 : 0;
        return sort.way * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
      });
    this.body.replaceChildren(
      ...rows.map((row) =>
        html(
          "tr",
          { class: row.faded ? "faded" : null },
          this.columns.map((column) => html("td", { class: column.text ? "text" : null }, column.show(row))),
        ),
      ),
    );
  }
}

const badge = (kind, text) => html("span", { class: `badge ${kind}` }, text);
const onTarget = (run) =>
  given(run.target) && given(run.sparsity) ? Math.abs(run.target - run.sparsity) <= run.tolerance : null;
const rate = (run, domain) => run.evaluations.filter((one) => one.domain === domain).sort((a, b) => a.eer - b.eer)[0];
const progress = (run) =>
  run.status === "finished"
    ? badge("good", "finished")
    : run.status === "empty"
      ? badge("plain", "nothing yet")
      : badge("warn", run.epochs_asked ? `epoch ${run.epochs_done} of ${run.epochs_asked}` : "unfinished");
const speed = (run) => median(run.curves.metrics.utterances_per_second?.mean ?? []);
const weights = (run) => run.layers.layers.reduce((sum, layer) => sum + size(layer), 0);
const nonZero = (run) => run.layers.layers.reduce((sum, layer) => sum + layer.nonzero, 0);

const interval = (one) =>
  one?.intervals
    ? html(
        "span",
        { class: "range" },
        ` ${(100 * one.intervals.eer[0]).toFixed(1)} – ${(100 * one.intervals.eer[1]).toFixed(1)}`,
      )
    : "";

const runColumns = [
  {
    title: "run",
    text: true,
    value: (run) => run.name,
    show: (run) =>
      html(
        "span",
        { class: "run" },
        sample(run.color, run.dash),
        html("a", { href: `#recipe-${state.runs.indexOf(run)}` }, run.name),
      ),
  },
  { title: "method", text: true, value: (run) => run.title, show: (run) => run.title ?? MISSING },
  { title: "state", text: true, value: (run) => run.status, show: progress },
  { title: "asked for", value: (run) => run.target, show: (run) => format.percent(run.target) },
  {
    title: "sparsity",
    value: (run) => run.sparsity,
    show: (run) => {
      const hit = onTarget(run);
      return hit === null
        ? format.percent(run.sparsity)
        : [
            format.percent(run.sparsity),
            " ",
            badge(hit ? "good" : "warn", hit ? "✓" : `${format.points(run.sparsity - run.target).replace(/0$/, "")}`),
          ];
    },
  },
  { title: "λ", value: (run) => run.lambda, show: (run) => format.number(run.lambda) },
  {
    title: "best",
    hint: "Epoch with the best validation near the target",
    value: (run) => run.best?.epoch,
    show: (run) => run.best?.epoch ?? MISSING,
  },
  {
    title: "validation",
    hint: "Accuracy of the best epoch",
    value: (run) => run.best?.accuracy,
    show: (run) => format.percent(run.best?.accuracy),
  },
  {
    title: "EER",
    hint: "In domain, with a 95 % interval",
    value: (run) => rate(run, "in")?.eer,
    show: (run) => [format.percent(rate(run, "in")?.eer), interval(rate(run, "in"))],
  },
  {
    title: "EER out",
    hint: "Out of domain, with a 95 % interval",
    value: (run) => rate(run, "out")?.eer,
    show: (run) => [format.percent(rate(run, "out")?.eer), interval(rate(run, "out"))],
  },
  {
    title: "all zero",
    hint: "Layers whose weights are all zero",
    value: (run) => (run.layers.layers.length ? run.allZero.length : null),
    show: (run) => (!run.layers.layers.length ? MISSING : run.allZero.length ? badge("warn", run.allZero.length) : "0"),
  },
  { title: "utt./s", hint: "Median over the steps", value: speed, show: (run) => format.number(speed(run)) },
  { title: "time", value: (run) => run.seconds, show: (run) => format.seconds(run.seconds) },
];

const evaluationColumns = [
  {
    title: "run",
    text: true,
    value: ({ run }) => run.name,
    show: ({ run }) => html("span", { class: "run" }, sample(run.color, run.dash), html("span", null, run.name)),
  },
  { title: "test set", text: true, value: ({ one }) => testName(one), show: ({ one }) => testName(one) },
  {
    title: "domain",
    text: true,
    value: ({ one }) => one.domain,
    show: ({ one }) => (one.domain === "in" ? "in domain" : "out of domain"),
  },
  { title: "sparsity", value: ({ one }) => one.sparsity, show: ({ one }) => format.percent(one.sparsity) },
  { title: "EER", value: ({ one }) => one.eer, show: ({ one }) => [format.percent(one.eer), interval(one)] },
  { title: "minDCF .01", value: ({ one }) => one.min_dcf, show: ({ one }) => one.min_dcf.toFixed(3) },
  { title: "minDCF .05", value: ({ one }) => one.min_dcf_p05, show: ({ one }) => one.min_dcf_p05.toFixed(3) },
  { title: "threshold", value: ({ one }) => one.threshold, show: ({ one }) => one.threshold.toFixed(3) },
  { title: "trials", value: ({ one }) => one.trials, show: ({ one }) => format.count(one.trials) },
  { title: "speakers", value: ({ one }) => one.speakers, show: ({ one }) => format.count(one.speakers) },
];

// One run in large numbers.
function cards(run) {
  const card = (title, big, sub) =>
    html(
      "div",
      { class: "panel card" },
      html("div", { class: "eyebrow" }, title),
      html("div", { class: "big" }, big),
      html("div", { class: "sub" }, sub),
    );
  const [inside, outside] = [rate(run, "in"), rate(run, "out")],
    hit = onTarget(run);
  const range = (one) =>
    one.intervals
      ? `95 %: ${(100 * one.intervals.eer[0]).toFixed(2)} – ${(100 * one.intervals.eer[1]).toFixed(2)}`
      : "no interval";
  return html(
    "div",
    { class: "cards" },
    card(
      "Sparsity",
      format.percent(run.sparsity),
      hit === null
        ? "no target"
        : [
            `asked for ${format.percent(run.target)} `,
            badge(
              hit ? "good" : "warn",
              hit ? "within tolerance" : `off by ${format.points(run.sparsity - run.target)} points`,
            ),
          ],
    ),
    inside
      ? card("EER", format.percent(inside.eer), `${inside.test}, ${range(inside)}`)
      : card("EER", MISSING, "not evaluated"),
    outside ? card("EER elsewhere", format.percent(outside.eer), `${outside.test}, ${range(outside)}`) : null,
    card(
      "Validation",
      run.best ? format.percent(run.best.accuracy) : MISSING,
      run.best ? `accuracy, loss ${format.number(run.best.loss)}, epoch ${run.best.epoch}` : "no best epoch",
    ),
    run.layers.layers.length
      ? card("Non-zero weights", format.size(nonZero(run)), `of ${format.size(weights(run))}`)
      : null,
    run.layers.layers.length
      ? card(
          "Layers all zero",
          [String(run.allZero.length), html("small", null, ` of ${run.layers.layers.length}`)],
          run.allZero.length ? "all their weights are zero" : "every layer has non-zero weights",
        )
      : null,
    given(run.lambda)
      ? card(html("span", { style: "text-transform:none" }, "λ"), format.number(run.lambda), "at the end of the log")
      : null,
    card("Time", format.seconds(run.seconds), [
      progress(run),
      given(speed(run)) ? ` ${format.number(speed(run))} utterances/s` : "",
    ]),
  );
}

// What is missing, run by run.
function notes(runs) {
  const noted = runs.filter((run) => run.notes.length);
  if (!noted.length) return "";
  const open = noted.length <= 4 || noted.some((run) => run.status !== "finished");
  return html(
    "details",
    { class: "panel notes", id: "notes", open },
    html(
      "summary",
      null,
      noted.length === 1 && runs.length === 1
        ? "What is missing"
        : `What is missing in ${noted.length} of ${runs.length} runs`,
    ),
    html(
      "dl",
      null,
      noted.map((run) => [html("dt", null, run.name), run.notes.map((note) => html("dd", null, note))]),
    ),
  );
}
