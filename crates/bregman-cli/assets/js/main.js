// The page: sections, legend, controls.

const section = (id, title, text, ...content) =>
  html(
    "section",
    { id },
    html("div", { class: "head" }, html("h2", null, title), text ? html("p", null, text) : ""),
    content,
  );
const grid = (charts, kind = "") =>
  html(
    "div",
    { class: `grid ${kind}` },
    charts.map((chart) => chart.element),
  );

const overview = html("div"),
  recipeList = html("div"),
  scoreGrid = html("div", { class: "grid small" }),
  keys = html("p", { class: "keys" });
const runTable = new SortedTable("runs", runColumns),
  evaluationTable = new SortedTable("evaluations", evaluationColumns);
const layerSelect = html("select", {
  "aria-label": "Run whose layers are shown",
  change: () => {
    state.layersOf = layerSelect.value;
    changed();
  },
});
const layerChoice = choice(
  html("div", { class: "choice", role: "group", "aria-label": "Scale" }),
  [
    ["zeros", "zeros"],
    ["density", "non-zero, log"],
  ],
  state.layerScale,
  (value) => {
    state.layerScale = value;
    changed();
  },
);
const testSelect = html("select", {
  "aria-label": "Test set",
  change: () => {
    state.test = testSelect.value;
    changed();
  },
});

function build() {
  const verification = section(
    "verification",
    "Verification",
    "Error rates on trials of unseen speakers.",
    grid([
      rateChart("eer-in", "EER against sparsity, in domain", "in"),
      rateChart("eer-out", "EER against sparsity, out of domain", "out"),
    ]),
    keys,
    html(
      "div",
      { class: "head", style: "display:flex;gap:12px;align-items:center;margin:22px 0 10px;flex-wrap:wrap" },
      html("h3", null, "Scores"),
      testSelect,
      html("span", { class: "muted", id: "score-key" }),
    ),
    html("div", { class: "score-grid" }, detChart().element, scoreGrid),
    html("div", { class: "panel", style: "margin-top:14px", id: "evaluation-panel" }, evaluationTable.element),
  );
  const layers = section("layers-of", "Layers", "", grid(layerCharts()));
  layers.querySelector(".head").append(layerSelect, layerChoice);
  byId("sections").append(
    section("overview", "Overview", "", overview),
    section(
      "control",
      "Sparsity control",
      "λ is adapted until the network reaches the requested sparsity; green: the target with its tolerance.",
      grid(controlCharts()),
    ),
    section("learning", "Learning", "", grid(learningCharts())),
    layers,
    verification,
    section("schedules", "Schedules and speed", "", grid(scheduleCharts())),
    section("recipes", "Recipes", "What differs between the runs, and how to repeat each of them.", recipeList),
  );
  byId("nav").append(
    ...[
      ["overview", "Overview"],
      ["control", "Sparsity control"],
      ["learning", "Learning"],
      ["layers-of", "Layers"],
      ["verification", "Verification"],
      ["schedules", "Schedules and speed"],
      ["recipes", "Recipes"],
    ].map(([id, title]) => html("a", { href: `#${id}` }, title)),
  );
  // Nine weights, two of them non-zero.
  byId("logo").append(
    ...Array.from({ length: 9 }, (_, at) =>
      svg("rect", {
        x: 1 + 9 * (at % 3),
        y: 1 + 9 * Math.floor(at / 3),
        width: 6.5,
        height: 6.5,
        rx: 1.5,
        fill: at === 1 ? "var(--c1)" : at === 5 ? "var(--c0)" : "var(--line)",
      }),
    ),
  );
}

function legend() {
  byId("runs-title").textContent = state.runs.length === 1 ? "Run" : `${visible().length} of ${state.runs.length} runs`;
  byId("legend").replaceChildren(
    ...state.runs.map((run) => {
      const got = given(run.target)
        ? `asked ${format.percent(run.target).replace(/\.?0+ %/, " %")}, has ${format.percent(run.sparsity)}`
        : (run.title ?? run.status);
      const toggle = (event) => {
        if (event.altKey || event.shiftKey)
          state.hidden = new Set(state.runs.filter((other) => other !== run).map((other) => other.name));
        else if (!state.hidden.delete(run.name)) state.hidden.add(run.name);
        changed();
      };
      return html(
        "li",
        { "data-run": run.name, hidden: !matches(run) },
        html(
          "button",
          {
            type: "button",
            "aria-pressed": String(!state.hidden.has(run.name)),
            title: `${run.name}\nclick: show or hide, shift-click: only this one`,
            click: toggle,
            pointerenter: () => light(run.name),
            pointerleave: () => light(null),
          },
          sample(run.color, run.dash),
          html("span", null, html("span", { class: "name" }, run.name), html("span", { class: "what" }, got)),
        ),
      );
    }),
  );
  const alone = state.runs.length === 1;
  [byId("filter"), byId("show-all"), byId("show-none")].forEach((element) => {
    element.hidden = alone;
  });
}

function texts() {
  const { runs, data } = state,
    shown = runs.filter(matches);
  byId("title").textContent = runs.length === 1 ? runs[0].name : `${runs.length} runs`;
  document.title = `${byId("title").textContent} – bregman`;
  byId("subtitle").textContent =
    runs.length === 1
      ? [runs[0].title, runs[0].model, `${format.count(runs[0].steps_done)} steps`].filter(Boolean).join(" · ")
      : [...new Set(runs.map((run) => run.method).filter(Boolean))].join(" · ");
  byId("footer").textContent =
    `Written by bregman ${data.version} on ${new Date(data.written).toLocaleString()}. ` +
    "Numbers are rounded to six digits. Drag in a chart to zoom, double-click to reset; " +
    "shift-click a run to show only that run.";
  shown.forEach((run) => {
    run.faded = state.hidden.has(run.name);
  });
  runTable.fill(shown);
  overview.replaceChildren(
    runs.length === 1 ? cards(runs[0]) : html("div", { class: "panel" }, runTable.element),
    notes(shown),
  );
  const layered = withLayers();
  layerSelect.replaceChildren(
    ...layered.map((run) => html("option", { value: run.name, selected: run === layerRun() }, run.name)),
  );
  layerSelect.hidden = layered.length < 2;
  const allZero = layerRun()?.allZero ?? [],
    count = allZero.length === 1 ? "1 layer" : `${allZero.length} layers`;
  const line =
    byId("layers-of").querySelector(".head p") ??
    byId("layers-of").querySelector(".head h2").insertAdjacentElement("afterend", html("p"));
  line.textContent = !layerRun()
    ? ""
    : allZero.length
      ? `All weights are zero in ${count}: ${allZero
          .slice(0, 3)
          .map((layer) => `${shortName(layer)} (since epoch ${layer.zero_since})`)
          .join(", ")}${allZero.length > 3 ? " …" : ""}`
      : "Every layer has non-zero weights.";
  const tests = allTests();
  testSelect.replaceChildren(
    ...tests.map(([name, domain]) =>
      html("option", { value: name, selected: name === currentTest() }, `${name} (${domain} domain)`),
    ),
  );
  testSelect.hidden = tests.length < 2;
  byId("score-key").replaceChildren(
    ...(tests.length
      ? [
          tests.length === 1 ? `${tests[0][0]} · ` : "",
          "blue: same speaker, orange: different speakers, dashed: the threshold at the equal error rate",
        ]
      : []),
  );
  keys.replaceChildren(...rateLegend());
  fillHistograms(scoreGrid);
  const rows = evaluated(() => true);
  byId("evaluation-panel").hidden = !rows.length;
  evaluationTable.fill(rows);
  recipeList.replaceChildren(differences(shown), ...recipes(shown));
}

function refresh() {
  legend();
  texts();
  redrawAll();
}

function show(data) {
  setData(data);
  const place = scrollY;
  refresh();
  scrollTo({ top: place, behavior: "instant" });
  follow(show);
}

function start() {
  theme.start();
  setData(JSON.parse(byId("data").textContent));
  build();
  onChange(refresh);
  choice(
    byId("axis"),
    [
      ["step", "steps"],
      ["epoch", "epochs"],
    ],
    state.axis,
    (value) => {
      state.axis = value;
      delete zooms.steps;
      changed();
    },
  );
  byId("smooth").value = state.smooth;
  byId("smooth").addEventListener("input", () => {
    state.smooth = Number(byId("smooth").value);
    changed();
  });
  byId("filter").value = state.filter;
  byId("filter").addEventListener("input", () => {
    state.filter = byId("filter").value;
    changed();
  });
  byId("show-all").addEventListener("click", () => {
    state.hidden.clear();
    changed();
  });
  byId("show-none").addEventListener("click", () => {
    state.hidden = new Set(state.runs.filter(matches).map((run) => run.name));
    changed();
  });
  refresh();
  follow(show);
}

if (isMessenger) deliver();
else start();
