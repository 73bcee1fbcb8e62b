// The explorer: one code is open; table, graph and map show it.

const FIRST_ROWS = 10;

/** Wire everything; called once, after the first paint. */
function explorer() {
  const codes = new Map(data.names().codes.map((code, j) => [code, j]));
  const known = data.facts().theta;
  let all = false, current = -1;
  byId("code").hidden = byId("atlas").hidden = false;
  if (!known) {
    byId("measure").hidden = true;
    document.querySelectorAll(".theta").forEach((cell) => cell.remove());
  }
  if (!data.prevalence()) document.querySelectorAll("#code .prevalence").forEach((cell) => cell.remove());

  const go = (j) => { open(j); location.hash = "code=" + encodeURIComponent(codeOf(j)); };
  const graph = graphView(go);
  const map = mapView(go);

  function row({ j, cosine, theta }) {
    const button = make("button.go", { type: "button", "data-code": j });
    button.append(mark(kindOf(j)), make("b", {}, codeOf(j)), make("span", {}, textOf(j)));
    const level = make("span.level", { "aria-hidden": "true" });
    level.style.width = Math.max(0, 100 * cosine) + "%";
    const line = make("tr", {}, make("th", { scope: "row" }, button), make("td.number", {}, signed(cosine, 2), level));
    if (known) line.append(make("td.number.theta", {}, signed(theta, 2)));
    if (data.prevalence()) line.append(make("td.number", {}, prevalence(j)));
    return line;
  }
  function rows() {
    const near = nearestOf(current);
    byId("nearest").tBodies[0].replaceChildren(...near.slice(0, all ? near.length : FIRST_ROWS).map(row));
    byId("more").hidden = near.length <= FIRST_ROWS;
    byId("more").textContent = all ? `Show the nearest ${FIRST_ROWS}` : `Show all ${near.length}`;
    byId("more").setAttribute("aria-expanded", String(all));
  }
  function open(j) {
    if (j === current) return;
    current = j;
    byId("code-text").textContent = labelOf(j);
    const [first] = nearestOf(j), silent = !first || first.cosine <= 0;
    const facts = [textOf(j) ? codeOf(j) : "", prevalence(j) && `in ${prevalence(j)} of records`, silent && "the model found no code related to it"].filter(Boolean).join(", ");
    byId("code-facts").replaceChildren(mark(kindOf(j)), " ", facts || data.facts().vocabularies[kindOf(j)]);
    rows();
    graph(j);
    map.pick(j);
    say(`${codeOf(j)} ${textOf(j)}. ` + (!silent ? `Nearest: ${labelOf(first.j)}, similarity ${signed(first.cosine, 2)}.` : ""));
  }
  /** Open the code that the address names; an address that names nothing is that of the first. */
  function fromAddress() {
    if (!location.hash) open(data.facts().focus);
    const named = /^#code=(.*)$/.exec(location.hash);
    let j;
    try { j = named && codes.get(decodeURIComponent(named[1])); } catch { j = undefined; }
    if (j !== undefined && j !== null) open(j);
    return current >= 0;
  }

  byId("more").addEventListener("click", () => { all = !all; rows(); });
  byId("nearest").addEventListener("click", (event) => {
    const button = event.target.closest(".go");
    if (!button) return;
    go(Number(button.dataset.code));
    byId("code-title").focus({ preventScroll: false });
  });
  window.addEventListener("hashchange", fromAddress);
  const closed = () => [...document.querySelectorAll("details:not([open])")];
  let opened = [];
  window.addEventListener("beforeprint", () => { opened = closed(); opened.forEach((d) => { d.open = true; }); map.draw(); });
  window.addEventListener("afterprint", () => { opened.forEach((d) => { d.open = false; }); map.draw(); });
  searchBox(go);
  if (!fromAddress()) open(data.facts().focus);
  setTimeout(haystacks, 0); // so that the first letter is answered at once
  performance.mark("explorer ready");
}

// Two frames and a task later the page has been painted.
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(explorer, 0)));
