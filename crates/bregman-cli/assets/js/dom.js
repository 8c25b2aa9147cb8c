// Creating elements.
const NAMESPACE = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(NAMESPACE, tag), attributes, children);
const byId = (id) => document.getElementById(id);

// A group of buttons of which one is pressed.
function choice(element, options, current, choose) {
  const buttons = options.map(([value, label]) =>
    html(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === current),
        click: () => {
          buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.value === value)));
          choose(value);
        },
        value,
      },
      label,
    ),
  );
  element.replaceChildren(...buttons);
  return element;
}

// The line of a run, as charts draw it.
const sample = (color, dash, shape) =>
  svg(
    "svg",
    { width: 24, height: 12, viewBox: "0 0 24 12", "aria-hidden": "true" },
    shape
      ? marker(shape, 12, 6, 4.5, color)
      : svg("line", { x1: 1, x2: 23, y1: 6, y2: 6, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash }),
  );

const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "ring", "plus"];
function marker(shape, x, y, r, color) {
  const path = {
    square: `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    triangle: `M${x},${y - 1.2 * r}l${1.15 * r},${2 * r}h${-2.3 * r}z`,
    diamond: `M${x},${y - 1.3 * r}l${1.3 * r},${1.3 * r}l${-1.3 * r},${1.3 * r}l${-1.3 * r},${-1.3 * r}z`,
    cross: `M${x - r},${y - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`,
    plus: `M${x - 1.2 * r},${y}h${2.4 * r}M${x},${y - 1.2 * r}v${2.4 * r}`,
  }[shape];
  if (!path)
    return svg(
      "circle",
      shape === "ring"
        ? { cx: x, cy: y, r, fill: "none", stroke: color, "stroke-width": 2 }
        : { cx: x, cy: y, r, fill: color },
    );
  return shape === "cross" || shape === "plus"
    ? svg("path", { d: path, fill: "none", stroke: color, "stroke-width": 2.2 })
    : svg("path", { d: path, fill: color });
}
