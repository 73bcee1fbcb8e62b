// The graph around a code: fixed places, edges above a threshold.

const EDGES_A_NODE = 2; // at most, before the slider is moved

/** The code and its nearest codes as nodes, and the pairs that the page knows: one is among the nearest of the other. */
function neighbourhood(centre, most) {
  const near = nearestOf(centre).slice(0, most);
  const nodes = [{ j: centre, cosine: 1 }, ...near];
  const place = new Map(nodes.map((node, n) => [node.j, n]));
  const seen = new Set(), edges = [];
  nodes.forEach((node, a) => {
    for (const { j, cosine, theta } of nearestOf(node.j)) {
      const b = place.get(j);
      if (b === undefined) continue;
      const key = Math.min(a, b) * nodes.length + Math.max(a, b);
      if (seen.has(key)) continue;
      seen.add(key);
      edges.push({ a, b, cosine, theta });
    }
  });
  return { nodes, edges };
}

/** Places in [-1, 1] by springs and repulsion: the same every time. */
function arrange({ nodes, edges }) {
  const n = nodes.length, golden = Math.PI * (3 - Math.sqrt(5));
  const x = nodes.map((_, i) => 0.9 * Math.sqrt(i / n) * Math.cos(i * golden));
  const y = nodes.map((_, i) => 0.9 * Math.sqrt(i / n) * Math.sin(i * golden));
  const rest = 1 / Math.sqrt(n);
  for (let step = 0; step < 260; step++) {
    const fx = new Float64Array(n), fy = new Float64Array(n), cool = 0.12 * (1 - step / 260);
    for (let a = 0; a < n; a++) for (let b = a + 1; b < n; b++) {
      const dx = x[a] - x[b], dy = y[a] - y[b], d2 = dx * dx + dy * dy + 1e-4;
      const push = (rest * rest) / d2;
      fx[a] += dx * push; fy[a] += dy * push; fx[b] -= dx * push; fy[b] -= dy * push;
    }
    for (const { a, b, cosine } of edges) {
      const dx = x[a] - x[b], dy = y[a] - y[b], d = Math.hypot(dx, dy);
      const pull = (Math.max(cosine, 0) * Math.max(0, d - rest)) / (d || 1);
      fx[a] -= dx * pull; fy[a] -= dy * pull; fx[b] += dx * pull; fy[b] += dy * pull;
    }
    for (let i = 0; i < n; i++) {
      const f = Math.hypot(fx[i], fy[i]) || 1, move = Math.min(f, cool) / f;
      x[i] += fx[i] * move; y[i] += fy[i] * move;
    }
  }
  const fit = (values) => {
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    return values.map((value) => (2 * (value - low)) / span - 1);
  };
  const fx = fit(x), fy = fit(y);
  return nodes.map((_, i) => ({ x: fx[i], y: fy[i] }));
}

/** Wire the graph; returns `draw(centre)`. */
function graphView(open) {
  const box = byId("graph-box"), slider = byId("threshold"), says = byId("threshold-says");
  let centre = -1, picture = null, moved = false;

  const measure = () => document.querySelector("input[name=measure]:checked").value;
  const radius = (j) => {
    const share = shareOf(j);
    return share > 0 ? Math.max(4, Math.min(13, 13 + 2.6 * Math.log10(share))) : 7;
  };

  function strengths() {
    const values = picture.edges.map((edge) => edge[measure()]).filter((value) => value > 0);
    return values.sort((a, b) => a - b);
  }
  /** Every step of the slider leaves out the same number of edges. */
  const threshold = (values) => values[Math.round((slider.value / 100) * (values.length - 1))];

  function firstPosition() {
    const values = strengths();
    if (moved || values.length < 2) return;
    const few = Math.max(0, values.length - EDGES_A_NODE * picture.nodes.length);
    let weak = 0;
    while (weak < values.length - 1 && strongerPairs(measure(), values[weak]) > 0.05) weak++;
    slider.value = Math.round((100 * Math.max(few, weak)) / (values.length - 1));
  }

  function edges() {
    const values = strengths(), least = threshold(values), kind = measure();
    const low = values[0], span = values[values.length - 1] - low || 1, alone = new Set(picture.nodes.keys());
    let count = 0;
    picture.edges.forEach((edge, n) => {
      const strong = values.length > 0 && edge[kind] >= least;
      const line = picture.lines[n];
      line.toggleAttribute("hidden", !strong);
      line.style.display = strong ? "" : "none";
      if (!strong) return;
      count++;
      const part = (edge[kind] - low) / span;
      line.setAttribute("stroke-width", (0.8 + 4.2 * part * part).toFixed(2));
      line.setAttribute("stroke-opacity", (0.25 + 0.5 * part).toFixed(2));
      alone.delete(edge.a);
      alone.delete(edge.b);
    });
    picture.marks.forEach((node, n) => node.classList.toggle("alone", n > 0 && alone.has(n)));
    slider.disabled = values.length < 2;
    const name = kind === "theta" ? "coupling θ" : "similarity";
    const text = values.length
      ? `${count} of ${values.length} edges: ${name} at least ${signed(least, 2)}, the strongest ${percent(strongerPairs(kind, least))} of all pairs of codes`
      : "No pair of these codes has a positive " + name + ".";
    says.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    box.dataset.edges = count;
  }

  function label(node, n, at, free, size) {
    const most = size.w < 480 ? 18 : 26, text = shorten(labelOf(node.j), most);
    const w = text.length * (n ? 6.2 : 8), gap = radius(node.j) + 4;
    const sides = [
      { x: at.x + gap, y: at.y + 4, anchor: "start", left: at.x + gap },
      { x: at.x - gap, y: at.y + 4, anchor: "end", left: at.x - gap - w },
      { x: at.x, y: at.y - gap - 1, anchor: "middle", left: at.x - w / 2 },
      { x: at.x, y: at.y + gap + 10, anchor: "middle", left: at.x - w / 2 },
    ];
    for (const side of sides) {
      if (side.left < 2 || side.left + w > size.w - 2) continue;
      if (!free({ x: side.left, y: side.y - 11, w, h: 14 }) && n) continue; // the code itself is always named
      return make(n ? "text" : "text.centre", { x: side.x, y: side.y, "text-anchor": side.anchor }, text);
    }
    return null;
  }

  let drawn = { w: 0, h: 0 };
  function draw() {
    const size = { w: box.clientWidth, h: box.clientHeight };
    drawn = size;
    if (centre < 0 || !size.w) return;
    picture = neighbourhood(centre, size.w < 480 ? 15 : 30);
    const places_ = arrange(picture);
    const pad = { x: Math.min(70, size.w * 0.14), y: 30 };
    const at = places_.map(({ x, y }) => ({
      x: size.w / 2 + x * (size.w / 2 - pad.x), y: size.h / 2 + y * (size.h / 2 - pad.y),
    }));
    const svg = make("svg", { viewBox: `0 0 ${size.w} ${size.h}`, role: "img", "aria-label": `Graph of ${labelOf(centre)} and its ${picture.nodes.length - 1} nearest codes; the table lists them.` });
    picture.lines = picture.edges.map(({ a, b }) => make("line.edge", { x1: at[a].x, y1: at[a].y, x2: at[b].x, y2: at[b].y }));
    picture.marks = picture.nodes.map(({ j }, n) => {
      const node = make(n ? "g.node" : "g.node.centre", { transform: `translate(${at[n].x},${at[n].y})`, "data-code": j });
      node.append(make("title", {}, [codeOf(j), textOf(j), prevalence(j)].filter(Boolean).join("\n")));
      node.append(make("path.v" + kindOf(j), { d: SHAPES[kindOf(j)](radius(j)) }));
      return node;
    });
    const free = places();
    picture.nodes.forEach(({ j }, n) => free({ x: at[n].x - radius(j), y: at[n].y - radius(j), w: 2 * radius(j), h: 2 * radius(j) }));
    const labels = picture.nodes.map((node, n) => label(node, n, at[n], free, size)).filter(Boolean);
    svg.append(...picture.lines, ...picture.marks, ...labels);
    box.replaceChildren(svg);
    firstPosition();
    edges();
  }

  slider.addEventListener("input", () => { moved = true; edges(); });
  byId("measure").addEventListener("change", () => { firstPosition(); edges(); });
  box.addEventListener("click", (event) => {
    const node = event.target.closest(".node");
    if (node) open(Number(node.dataset.code));
  });
  const resized = () => box.clientWidth !== drawn.w || box.clientHeight !== drawn.h;
  new ResizeObserver(() => requestAnimationFrame(() => { if (resized()) draw(); })).observe(box);
  return (j) => { centre = j; draw(); };
}
