// The frame of every chart: title, drawing, readout, and buttons that save the drawing as SVG and its numbers as CSV.
//
// A figure implements `draw(width)` → an <svg> (or null if there is nothing to draw), `rows()` for the CSV and
// `legend()` for the saved SVG.

const figures = [];

class Figure {
  constructor(id, title, { hint = "", height = 250, wide = false } = {}) {
    Object.assign(this, { id, title, height });
    this.hint = html("span", { class: "hint" }, hint);
    this.canvas = html("div", { class: "canvas" });
    this.tip = html("div", { class: "tip", hidden: true });
    const tool = (text, title, click) => html("button", { type: "button", title, click }, text);
    this.tools = html(
      "div",
      { class: "tools" },
      tool("save SVG", "Save this chart as an SVG file", () =>
        download(`${this.id}.svg`, "image/svg+xml", this.standalone()),
      ),
      tool("CSV", "Save the numbers of this chart", () => download(`${this.id}.csv`, "text/csv", csv(this.rows()))),
    );
    this.caption = html("figcaption", null, html("h3", null, title), this.hint, this.tools);
    this.element = html(
      "figure",
      { id: `chart-${id}`, class: wide ? "wide" : null },
      this.caption,
      this.canvas,
      this.tip,
    );
    figures.push(this);
    new ResizeObserver(() => {
      if (this.width !== this.canvas.clientWidth) this.redraw();
    }).observe(this.canvas);
  }

  setTitle(title) {
    this.title = title;
    this.caption.firstChild.textContent = title;
  }

  redraw() {
    this.width = this.canvas.clientWidth;
    if (!this.width) return;
    this.tip.hidden = true;
    const drawing = this.draw(this.width);
    this.canvas.replaceChildren(
      drawing ?? html("div", { class: "empty", style: `height:${this.height}px` }, this.empty()),
    );
    this.element.dataset.drawn = drawing ? "yes" : "empty";
    this.tools.hidden = !drawing;
  }

  empty() {
    return "Nothing to show for the chosen runs.";
  }
  legend() {
    return [];
  }

  // Shows `content` next to the point (x, y) of the drawing.
  readout(x, y, ...content) {
    this.tip.replaceChildren(...content);
    this.tip.hidden = false;
    const [top, left] = [this.canvas.offsetTop, this.canvas.offsetLeft];
    const right = left + x + 16 + this.tip.offsetWidth < this.element.clientWidth + 40;
    this.tip.style.left = `${right ? left + x + 16 : Math.max(0, left + x - 16 - this.tip.offsetWidth)}px`;
    this.tip.style.top = `${top + Math.max(0, y - this.tip.offsetHeight / 2)}px`;
  }

  // The drawing with its title and legend on white, without a style sheet: for papers and slides.
  standalone() {
    const width = 680,
      drawing = this.draw(width),
      height = Number(drawing.getAttribute("height"));
    drawing.querySelectorAll(".overlay, .cross").forEach((element) => element.remove());
    const legend = this.legend(),
      columns = 3,
      cell = (width - 40) / columns,
      rows = Math.ceil(legend.length / columns);
    const text = (x, y, size, weight, content) =>
      svg("text", { x, y, "font-size": size, "font-weight": weight, fill: "var(--ink)" }, content);
    const entry = ({ name, color, dash, shape }, at) => {
      const x = 20 + (at % columns) * cell,
        y = height + 52 + 18 * Math.floor(at / columns);
      const mark = shape
        ? marker(shape, x + 10, y - 4, 4, color)
        : svg("line", {
            x1: x,
            x2: x + 20,
            y1: y - 4,
            y2: y - 4,
            stroke: color,
            "stroke-width": 2,
            "stroke-dasharray": dash,
          });
      return [mark, text(x + 27, y, 11, 400, name.length > 32 ? `${name.slice(0, 31)}…` : name)];
    };
    const total = height + 36 + (rows ? 18 * rows + 14 : 0);
    drawing.setAttribute("y", 30);
    const whole = svg(
      "svg",
      {
        xmlns: NAMESPACE,
        width,
        height: total,
        viewBox: `0 0 ${width} ${total}`,
        "font-family": "Helvetica, Arial, 'Liberation Sans', sans-serif",
      },
      svg("rect", { width, height: total, fill: "var(--paper)" }),
      text(14, 20, 14, 600, this.title),
      drawing,
      legend.map(entry),
    );
    const probe = html("div", { "data-theme": "light", hidden: true });
    document.body.append(probe);
    const style = getComputedStyle(probe);
    const content = new XMLSerializer()
      .serializeToString(whole)
      .replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    probe.remove();
    return content;
  }
}

const csv = (rows) =>
  rows
    .map((row) =>
      row
        .map((cell) => {
          const text = given(cell) ? String(cell) : "";
          return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
        })
        .join(","),
    )
    .join("\n") + "\n";

function download(name, type, content) {
  const link = html("a", { href: URL.createObjectURL(new Blob([content], { type })), download: `bregman-${name}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Redraws every figure, one per frame so that the page stays responsive; visible ones first.
let queue = [];
function redrawAll() {
  const distance = (figure) => Math.abs(figure.element.getBoundingClientRect().top);
  const idle = queue.length === 0;
  queue = figures.filter((figure) => figure.element.isConnected).sort((a, b) => distance(a) - distance(b));
  const next = () => {
    const until = performance.now() + 12;
    while (queue.length && performance.now() < until) queue.shift().redraw();
    if (queue.length) requestAnimationFrame(next);
    else document.body.dataset.ready = "yes";
  };
  delete document.body.dataset.ready;
  if (idle) requestAnimationFrame(next);
}
