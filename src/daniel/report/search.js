// Search by code or words, and the list that shows what was found (ARIA combobox with listbox).

const SHOWN = 12;
const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

const haystacks = once(() => {
  const { codes, texts } = data.names();
  return codes.map((name, j) => {
    const code = plain(name), words = plain(texts[j]);
    return { code, local: code.slice(code.indexOf(":") + 1), words, text: code + " " + words };
  });
});

/** A letter or a digit of plain text; signs beyond ASCII count as letters. */
function isWord(text, at) {
  const sign = text.charCodeAt(at);
  return (sign > 96 && sign < 123) || (sign > 47 && sign < 58) || sign > 127;
}

/** 3: a whole word of the text, 2: the start of a word, 1: inside a word, 0: not there. */
function match(text, word) {
  let best = 0;
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (at > 0 && isWord(text, at - 1) && isWord(text, at)) best = Math.max(best, 1);
    else if (isWord(text, at + word.length)) best = Math.max(best, 2);
    else return 3;
  }
  return best;
}

/** How well a code answers a query; 0 when one of its words is missing. */
function score(hay, query, words) {
  let sum = 0;
  for (const word of words) {
    const found = match(hay.text, word);
    if (!found) return 0;
    sum += found;
  }
  if (hay.code === query || hay.local === query) return 1000;
  if (hay.code.startsWith(query) || hay.local.startsWith(query)) return 500;
  return (10 * sum) / words.length + (hay.words.startsWith(query) ? 5 : 0);
}

/** The best codes for a query, and how many there are: frequent codes first among equals. */
function search(query) {
  const words = plain(query).split(/\s+/).filter(Boolean);
  const whole = words.join(" ");
  const best = [];
  let count = 0;
  if (!words.length) return { best, count };
  haystacks().forEach((hay, j) => {
    const value = score(hay, whole, words);
    if (!value) return;
    count++;
    const hit = { j, value, share: shareOf(j) };
    let at = best.length;
    while (at > 0 && (best[at - 1].value < value || (best[at - 1].value === value && best[at - 1].share < hit.share))) at--;
    if (at < SHOWN) { best.splice(at, 0, hit); best.length = Math.min(best.length, SHOWN); }
  });
  return { best: best.map((hit) => hit.j), count };
}

/** Wire the search box; `open(j)` is called with the code that was chosen. */
function searchBox(open) {
  const input = byId("query"), list = byId("hits");
  let found = [], active = -1;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function point(at) {
    active = at;
    [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === at)));
    if (at < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[at].id);
    list.children[at].scrollIntoView({ block: "nearest" });
  }
  function choose(at) {
    const j = found[at];
    close();
    input.value = "";
    open(j);
  }
  function option(j, n) {
    const item = make("li", { role: "option", id: "hit-" + n, "aria-selected": "false" });
    item.append(mark(kindOf(j)), make("b", {}, codeOf(j)), make("span", {}, textOf(j)), make("span.share", {}, prevalence(j)));
    return item;
  }
  function show() {
    const { best, count } = search(input.value);
    found = best;
    if (!input.value.trim()) { list.replaceChildren(); return close(); }
    list.replaceChildren(...found.map(option));
    if (!count) list.append(make("li.none", { role: "option", "aria-disabled": "true", id: "hit-0" }, "No code has these words."));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    point(-1);
    say(!count ? "No code found." : count === 1 ? "One code found." : `${count} codes found` + (count > found.length ? `, the best ${found.length} are listed.` : "."));
  }

  input.addEventListener("input", show);
  input.addEventListener("focus", () => { if (input.value.trim()) show(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const open = !list.hidden, n = found.length;
    if (event.key === "Escape") {
      if (open) close(); else input.value = "";
    } else if (event.key === "ArrowDown" && n) {
      if (!open) show();
      point((active + 1) % n);
    } else if (event.key === "ArrowUp" && open && n) {
      point(active <= 0 ? n - 1 : active - 1);
    } else if (event.key === "Enter" && open && n) {
      choose(Math.max(active, 0));
    } else return;
    event.preventDefault();
  });
  list.addEventListener("mousedown", (event) => event.preventDefault()); // the input keeps the focus
  list.addEventListener("click", (event) => {
    const at = [...list.children].indexOf(event.target.closest("li"));
    if (at >= 0 && at < found.length) choose(at);
  });
}
