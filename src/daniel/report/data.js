// What the page carries: JSON and numbers in base64, each decoded when first asked for.

const byId = (id) => document.getElementById(id);
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, f4: Float32Array };

/** A function that computes once. */
function once(make) {
  let value, made = false;
  return () => {
    if (!made) { value = make(); made = true; }
    return value;
  };
}

/** A block of the page as JSON or as a typed array; null where the page has none. */
function read(name) {
  const block = byId("data-" + name);
  if (!block) return null;
  const type = block.dataset.type;
  if (type === "json") return JSON.parse(block.textContent);
  return new ARRAYS[type](bytesOf(block.textContent).buffer);
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const raw = atob(base64), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

const data = {};
for (const name of ["facts", "names", "vocabulary", "map", "index", "cosine", "theta", "prevalence"]) {
  data[name] = once(() => read(name));
}

const codeOf = (j) => data.names().codes[j];
const textOf = (j) => data.names().texts[j];
const labelOf = (j) => textOf(j) || codeOf(j);
const kindOf = (j) => data.vocabulary()[j];
const shareOf = (j) => (data.prevalence() ? data.prevalence()[j] : 0);

/** Nearest codes of a code: [{ j, cosine, theta }], nearest first. */
function nearestOf(i) {
  const { neighbours: k, theta: known, thetaScale } = data.facts();
  const index = data.index(), cosine = data.cosine(), theta = known ? data.theta() : null;
  return Array.from({ length: k }, (_, n) => {
    const at = i * k + n;
    return { j: index[at], cosine: cosine[at] / 32767, theta: theta ? theta[at] * thetaScale : 0 };
  });
}

/** Share of all pairs of codes whose measure is at least `value`; never below what was sampled. */
function strongerPairs(measure, value) {
  const { pairs, deepest } = data.facts();
  const levels = pairs[measure], last = levels.length - 1;
  if (value <= levels[0]) return 1;
  let i = 0;
  while (i < last && levels[i + 1] < value) i++;
  const step = i < last ? (value - levels[i]) / (levels[i + 1] - levels[i] || 1) : 0;
  return Math.pow(10, (-deepest * (i + Math.min(step, 1))) / last);
}

/** Two digits, 0.0123 -> "1.2 %"; at most `least` is shown as "< ...", 1 - least and more as "> ...". */
function percent(share, least = 0) {
  if (least && share > least && share >= (1 - least) * 0.9999999) return `> ${Math.floor(100 * share + 1e-5)} %`;
  const value = Number((100 * share).toPrecision(2));
  const digits = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(Math.max(value, 1e-5)) + 1e-9)));
  return (share <= least ? "< " : "") + value.toFixed(digits) + " %";
}

function prevalence(j) {
  return data.prevalence() ? percent(shareOf(j), data.facts().least * 1.0000001) : "";
}

const signed = (value, digits) => value.toFixed(digits).replace("-", "−");

/** An element with classes, attributes and children; text is always text, never markup. */
function make(tag, options = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const drawn = ["svg", "path", "g", "line", "text", "title"].includes(name);
  const node = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(options)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Besides its colour, each vocabulary has a shape: paths of area near that of a circle of radius r.
const SHAPES = [
  (r) => `M${r},0A${r},${r} 0 1 1 ${-r},0A${r},${r} 0 1 1 ${r},0Z`,
  (r) => `M${-0.88 * r},${-0.88 * r}H${0.88 * r}V${0.88 * r}H${-0.88 * r}Z`,
  (r) => `M0,${-1.3 * r}L${1.15 * r},${0.75 * r}H${-1.15 * r}Z`,
  (r) => `M0,${-1.3 * r}L${1.15 * r},0L0,${1.3 * r}L${-1.15 * r},0Z`,
  (r) => `M${-0.4 * r},${-1.15 * r}h${0.8 * r}v${0.75 * r}h${0.75 * r}v${0.8 * r}h${-0.75 * r}v${0.75 * r}h${-0.8 * r}v${-0.75 * r}h${-0.75 * r}v${-0.8 * r}h${0.75 * r}Z`,
  (r) => `M0,${1.3 * r}L${1.15 * r},${-0.75 * r}H${-1.15 * r}Z`,
  (r) => `M${1.1 * r},0L${0.55 * r},${0.95 * r}H${-0.55 * r}L${-1.1 * r},0L${-0.55 * r},${-0.95 * r}H${0.55 * r}Z`,
  (r) => `M${r},0A${r},${r} 0 1 1 ${-r},0A${r},${r} 0 1 1 ${r},0Z`,
];

/** The mark of a vocabulary, beside text. */
function mark(kind) {
  const svg = make("svg.mark", { viewBox: "-6 -6 12 12", "aria-hidden": "true" });
  svg.append(make("path.v" + kind, { d: SHAPES[kind](5) }));
  return svg;
}

const say = (text) => { byId("said").textContent = text; };

/** Boxes that do not overlap: `free(box)` is true, and takes the place, if nothing is there yet. */
function places() {
  const taken = [];
  return (box) => {
    const hit = taken.some((t) => box.x < t.x + t.w && t.x < box.x + box.w && box.y < t.y + t.h && t.y < box.y + box.h);
    if (!hit) taken.push(box);
    return !hit;
  };
}

const shorten = (text, most) => (text.length > most ? text.slice(0, most - 1).trimEnd() + "…" : text);
