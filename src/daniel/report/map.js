// The map of all codes: a canvas that moves, zooms, and tells what lies under the pointer.

const DEEPEST_ZOOM = 60;
const GRID = 64; // cells a side, to find the code under the pointer

/** Wire the map; returns { pick(j), draw() }. */
function mapView(open) {
  const box = byId("map-box"), canvas = byId("map"), tip = byId("map-tip"), pen = canvas.getContext("2d");
  const view = { x: 0, y: 0, zoom: 1 };
  const off = new Set(); // vocabularies that are not shown
  let size = { w: 0, h: 0 }, picked = -1, under = -1, asked = false, visible = false, keyboard = false, colours = null;

  const X = (j) => data.map()[2 * j] / 32767, Y = (j) => data.map()[2 * j + 1] / 32767;
  const unit = () => ({ x: 0.47 * size.w * view.zoom, y: 0.46 * size.h * view.zoom });
  const toScreen = (x, y) => ({ x: size.w / 2 + (x - view.x) * unit().x, y: size.h / 2 + (y - view.y) * unit().y });
  const toMap = (sx, sy) => ({ x: view.x + (sx - size.w / 2) / unit().x, y: view.y + (sy - size.h / 2) / unit().y });

  // --- drawing ---

  /** Frequent codes last, so that they lie on top. */
  const order = once(() => Uint32Array.from({ length: data.facts().codes }, (_, j) => j).sort((a, b) => shareOf(a) - shareOf(b)));
  const grade = once(() => { // 0, 1, 2: rare to frequent
    const grades = new Uint8Array(data.facts().codes), n = grades.length;
    if (data.prevalence()) order().forEach((j, rank) => { grades[j] = rank > 0.97 * n ? 2 : rank > 0.75 * n ? 1 : 0; });
    return grades;
  });
  function theme() {
    const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name).trim();
    return { kinds: SHAPES.map((_, k) => get("--v" + k)), ink: get("--ink"), wash: get("--wash"), picked: get("--picked") };
  }
  /** One small picture for each vocabulary and grade: drawing 20,000 of them is cheap. */
  function stamps(base, ratio) {
    return SHAPES.map((shape, kind) => [0.75, 1.1, 1.6].map((factor) => {
      const r = base * factor * ratio, stamp = document.createElement("canvas");
      stamp.width = stamp.height = Math.ceil(2.8 * r) + 2;
      const ink = stamp.getContext("2d");
      ink.translate(stamp.width / 2, stamp.height / 2);
      ink.fillStyle = colours.kinds[kind];
      ink.fill(new Path2D(shape(r)));
      return stamp;
    }));
  }
  function draw() {
    if (!size.w) return;
    const ratio = Math.min(window.devicePixelRatio || 1, 2), n = data.facts().codes;
    if (canvas.width !== Math.round(size.w * ratio)) canvas.width = Math.round(size.w * ratio);
    if (canvas.height !== Math.round(size.h * ratio)) canvas.height = Math.round(size.h * ratio);
    colours = colours || theme();
    const crowd = Math.sqrt((size.w * size.h) / n), base = Math.max(1.5, Math.min(6.5, crowd * 0.16 * Math.sqrt(view.zoom)));
    const stamp = stamps(base, ratio);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.globalAlpha = 0.82;
    const shown = [], at = data.map(), kinds = data.vocabulary(), grades = grade();
    const kx = unit().x / 32767, ky = unit().y / 32767, left = size.w / 2 - view.x * unit().x, top = size.h / 2 - view.y * unit().y;
    for (const j of order()) { // toScreen, without an object for each code
      if (off.size && off.has(kinds[j])) continue;
      const x = left + at[2 * j] * kx, y = top + at[2 * j + 1] * ky;
      if (x < -10 || y < -10 || x > size.w + 10 || y > size.h + 10) continue;
      const picture = stamp[kinds[j]][grades[j]];
      pen.drawImage(picture, Math.round(x * ratio - picture.width / 2), Math.round(y * ratio - picture.height / 2));
      shown.push(j);
    }
    pen.globalAlpha = 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    ring(base);
    labels(shown, base);
    if (keyboard) cross();
    canvas.dataset.shown = shown.length;
    canvas.dataset.zoom = view.zoom.toFixed(3);
  }
  function ring(base) {
    if (picked < 0) return;
    pen.strokeStyle = colours.picked;
    for (const { j } of nearestOf(picked).slice(0, 12)) circle(j, base * 1.6 + 2, 1.2);
    circle(picked, base * 1.6 + 6, 3);
  }
  function circle(j, r, width) {
    const { x, y } = toScreen(X(j), Y(j));
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(x, y, r, 0, 2 * Math.PI);
    pen.stroke();
  }
  /** Names of the code that is open and of the most frequent ones, where there is room. */
  function labels(shown, base) {
    const free = places(), most = Math.round((size.w * size.h) / 16000);
    const first = picked >= 0 ? [picked] : [];
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    let count = 0;
    for (let n = -first.length; n < Math.min(shown.length, 400) && count < most; n++) {
      const j = n < 0 ? picked : shown[shown.length - 1 - n];
      if (n >= 0 && j === picked) continue;
      const { x, y } = toScreen(X(j), Y(j)), text = shorten(labelOf(j), 30);
      pen.font = (n < 0 ? "700 13px " : "11.5px ") + "system-ui, 'DejaVu Sans', sans-serif";
      const w = pen.measureText(text).width, left = x + base + 5 + w > size.w ? x - base - 5 - w : x + base + 5;
      if (left < 0 || y < 8 || y > size.h - 8 || !free({ x: left - 3, y: y - 9, w: w + 6, h: 18 })) continue;
      pen.lineWidth = 3.5;
      pen.strokeStyle = colours.wash;
      pen.strokeText(text, left, y);
      pen.fillStyle = colours.ink;
      pen.fillText(text, left, y);
      count++;
    }
  }
  function cross() {
    const { w, h } = size;
    pen.strokeStyle = colours.picked;
    pen.lineWidth = 1;
    pen.strokeRect(w / 2 - 8, h / 2 - 8, 16, 16);
  }
  function ask() {
    if (asked || !visible) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  }

  // --- finding ---

  const cells = once(() => {
    const grid = Array.from({ length: GRID * GRID }, () => []);
    for (let j = 0; j < data.facts().codes; j++) grid[cell(X(j)) * GRID + cell(Y(j))].push(j);
    return grid;
  });
  const cell = (x) => Math.max(0, Math.min(GRID - 1, Math.floor(((x + 1) / 2) * GRID)));
  /** The code nearest to a place on the screen, at most `reach` pixels away; -1 without one. */
  function find(sx, sy, reach) {
    const low = toMap(sx - reach, sy - reach), high = toMap(sx + reach, sy + reach);
    let best = -1, least = reach * reach;
    for (let a = cell(low.x); a <= cell(high.x); a++) for (let b = cell(low.y); b <= cell(high.y); b++) {
      for (const j of cells()[a * GRID + b]) {
        if (off.has(kindOf(j))) continue;
        const at = toScreen(X(j), Y(j)), d = (at.x - sx) ** 2 + (at.y - sy) ** 2;
        if (d < least) { least = d; best = j; }
      }
    }
    return best;
  }
  function point(j) {
    under = j;
    canvas.classList.toggle("over", j >= 0);
    tip.hidden = j < 0;
    if (j < 0) return;
    const at = toScreen(X(j), Y(j));
    tip.replaceChildren(make("b", {}, codeOf(j)), make("span", {}, textOf(j)), make("small", {}, [data.facts().vocabularies[kindOf(j)], prevalence(j) && prevalence(j) + " of records"].filter(Boolean).join(", ")));
    const right = at.x + 14 + tip.offsetWidth > size.w;
    tip.style.transform = `translate(${Math.max(4, right ? at.x - 14 - tip.offsetWidth : at.x + 14)}px, ${Math.max(4, Math.min(at.y - 10, size.h - tip.offsetHeight - 4))}px)`;
  }

  // --- moving ---

  function zoom(factor, sx = size.w / 2, sy = size.h / 2) {
    const before = toMap(sx, sy);
    view.zoom = Math.max(1, Math.min(DEEPEST_ZOOM, view.zoom * factor));
    const after = toMap(sx, sy);
    move(before.x - after.x, before.y - after.y);
  }
  function move(dx, dy) {
    view.x = Math.max(-1, Math.min(1, view.x + dx));
    view.y = Math.max(-1, Math.min(1, view.y + dy));
    if (view.zoom === 1) view.x = view.y = 0;
    point(-1);
    ask();
  }
  const reset = () => { view.zoom = 1; move(0, 0); };

  const fingers = new Map();
  let travelled = 0;
  const place = (event) => {
    const frame = canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    keyboard = false;
    fingers.set(event.pointerId, place(event));
    if (fingers.size === 1) travelled = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event), before = fingers.get(event.pointerId);
    if (!before) return point(find(now.x, now.y, 16));
    travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const spread = (at) => Math.hypot(at.x - other.x, at.y - other.y) || 1;
      zoom(spread(now) / spread(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else if (travelled > 3) {
      canvas.classList.add("moving");
      move((before.x - now.x) / unit().x, (before.y - now.y) / unit().y);
    }
    fingers.set(event.pointerId, now);
  });
  canvas.addEventListener("pointerup", (event) => {
    const now = place(event);
    if (fingers.size === 1 && travelled <= 6) {
      const j = find(now.x, now.y, event.pointerType === "touch" ? 24 : 16);
      if (j >= 0) open(j);
    }
    drop(event);
  });
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", () => point(-1));
  function drop(event) {
    fingers.delete(event.pointerId);
    canvas.classList.remove("moving");
  }
  // Scrolling the page over the map must not zoom it: first click it, or hold Ctrl.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const at = place(event);
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0018)), at.x, at.y);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = 0.18 / view.zoom, centre = [size.w / 2, size.h / 2];
    const keys = {
      ArrowLeft: () => move(-step, 0), ArrowRight: () => move(step, 0), ArrowUp: () => move(0, -step), ArrowDown: () => move(0, step),
      "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: reset, Home: reset,
      Enter: () => { const j = find(...centre, 400); if (j >= 0) open(j); },
      Escape: () => canvas.blur(),
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keyboard = event.key !== "Escape";
    act();
    const j = keyboard ? find(...centre, 400) : -1;
    point(j);
    if (j >= 0 && event.key !== "Enter") say(`In the middle: ${codeOf(j)} ${textOf(j)}`);
    ask();
  });
  canvas.addEventListener("blur", () => { keyboard = false; point(-1); ask(); });
  byId("zoom-in").addEventListener("click", () => zoom(1.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
  byId("zoom-reset").addEventListener("click", reset);

  function legend() {
    const { vocabularies } = data.facts(), counts = new Uint32Array(SHAPES.length);
    for (const kind of data.vocabulary()) counts[kind]++;
    byId("legend").replaceChildren(...vocabularies.map((name, kind) => {
      const button = make("button", { type: "button", "aria-pressed": "true" });
      button.append(mark(kind), name + " ", make("small", {}, counts[kind].toLocaleString("en")));
      button.addEventListener("click", () => {
        if (!off.delete(kind)) off.add(kind);
        button.setAttribute("aria-pressed", String(!off.has(kind)));
        point(-1);
        ask();
      });
      return button;
    }));
  }
  function measure() {
    size = { w: box.clientWidth, h: box.clientHeight };
    ask();
  }

  legend();
  new ResizeObserver(measure).observe(box);
  new IntersectionObserver(([now]) => { visible = now.isIntersecting; ask(); }, { rootMargin: "50%" }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = null; ask(); });
  matchMedia("print").addEventListener("change", () => { colours = null; draw(); });
  return {
    pick(j) { picked = j; ask(); },
    draw: () => { size = { w: box.clientWidth, h: box.clientHeight }; colours = null; draw(); },
  };
}
