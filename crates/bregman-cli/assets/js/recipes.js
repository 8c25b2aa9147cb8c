// How to reproduce the runs: what differs between the recipes, each resolved recipe, and the commands.

function differences(runs) {
  const known = runs.filter((run) => run.settings.length);
  if (known.length < 2) return "";
  const all = known.map((run) => new Map(run.settings)),
    keys = [...new Set(known.flatMap((run) => run.settings.map(([key]) => key)))];
  // A key that only some methods have, with the same value in all of them, adds nothing.
  const differing = keys.filter((key) => new Set(all.map((settings) => settings.get(key)).filter(given)).size > 1);
  if (!differing.length) return html("p", { class: "muted" }, "All recipes are the same.");
  const columns = [
    runColumns[0],
    ...differing.map((key) => ({
      title: key,
      text: true,
      value: (run) => {
        const value = new Map(run.settings).get(key);
        return value !== undefined && value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value;
      },
      show: (run) => {
        const value = new Map(run.settings).get(key) ?? MISSING;
        return value.length > 40 ? html("span", { title: value }, `${value.slice(0, 39)}…`) : value;
      },
    })),
  ];
  const table = new SortedTable("differences", columns);
  table.fill(known);
  return html("div", { class: "panel", style: "margin-bottom:12px" }, table.element);
}

function command(title, text) {
  const button = html(
      "button",
      {
        type: "button",
        class: "quiet",
        click: async () => {
          try {
            await navigator.clipboard.writeText(text);
            button.textContent = "copied";
          } catch {
            getSelection().selectAllChildren(code);
            button.textContent = "press Ctrl-C";
          }
          setTimeout(() => {
            button.textContent = "copy";
          }, 1500);
        },
      },
      "copy",
    ),
    code = html("pre", null, text);
  return [html("div", { class: "eyebrow" }, title), html("div", { class: "command" }, code, button)];
}

function recipes(runs) {
  return runs.map((run) =>
    html(
      "details",
      { class: "panel recipe", id: `recipe-${state.runs.indexOf(run)}`, open: state.runs.length === 1 },
      html(
        "summary",
        null,
        sample(run.color, run.dash),
        html("b", null, run.name),
        html("span", { class: "muted" }, run.title ?? ""),
      ),
      html(
        "div",
        { class: "body" },
        run.reproduce ? command("Train the same network again", run.reproduce) : "",
        run.started
          ? command("As it was started", run.started)
          : html("p", { class: "muted" }, "The command that started it was not recorded."),
        html("div", { class: "eyebrow" }, "Resolved recipe"),
        run.recipe
          ? html("pre", { class: "toml" }, run.recipe)
          : html("p", { class: "muted" }, "config.toml is missing."),
        html("p", { class: "muted" }, run.folder),
      ),
    ),
  );
}
