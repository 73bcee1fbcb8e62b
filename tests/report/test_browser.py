"""The report in a real browser, at the width of a phone and of a screen."""

import base64
import json
import socket
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up import HOSTILE

from daniel.report import Section, Table, build_report
from daniel.report.explorer import nearest

WIDTHS = (390, 1440)
VISIBLE_EDGES = (
    "return [...document.querySelectorAll('#graph .edge')]"
    ".filter(edge => edge.style.display !== 'none').length"
)


@pytest.fixture(params=WIDTHS)
def page(browser, report, request):
    browser.open(report, request.param)
    return browser


@pytest.fixture
def wide(browser, report):
    browser.open(report)
    return browser


def type_query(page, text):
    page.find("#query").send_keys(text)


def hits(page):
    return [item.text.split() for item in page.all("#hits [role=option]")]


def code_at(page):
    return page.run("return decodeURIComponent(location.hash)").removeprefix("#code=")


def show_map(page):
    page.run("document.getElementById('atlas').scrollIntoView()")
    page.wait("Number(document.getElementById('map').dataset.shown) > 0")


def on_screen(page, parts, code):
    """Where the map has a code, from the page's own data and the view's formula at zoom 1."""
    script = """
      const raw = atob(document.getElementById('data-map').textContent);
      const bytes = Uint8Array.from(raw, c => c.charCodeAt(0));
      const at = new Int16Array(bytes.buffer);
      const box = document.getElementById('map').getBoundingClientRect();
      const x = at[2 * arguments[0]] / 32767, y = at[2 * arguments[0] + 1] / 32767;
      return [box.left + box.width * (.5 + .47 * x), box.top + box.height * (.5 + .46 * y)];
    """
    return page.run(script, parts.codes.index(code))


def mouse(page, kind, x, y, **options):
    page.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **options)


def settle(page):
    """Two frames later everything that was asked for is drawn."""
    page.driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_error_no_request_no_overflow(browser, report, width, dark):
    browser.open(report, width, dark=dark)
    show_map(browser)
    browser.shot(f"report-{width}{'-dark' if dark else ''}")
    browser.listen()
    assert browser.console == []
    assert browser.requests[0] == report.as_uri()
    assert all(url.startswith("data:") for url in browser.requests[1:])
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_figures_take_the_width_and_only_wide_ones_scroll(page):
    inside = page.run("""
      return [...document.querySelectorAll('.drawing .scroll')].map(box => [
        box.scrollWidth <= box.clientWidth, box.querySelector('img').clientWidth]);
    """)
    phone = page.run("return innerWidth") < 600
    assert [fits for fits, _ in inside] == [True, not phone]
    assert inside[0][1] > 300  # and it is not smaller than there is room for


def test_a_table_of_few_columns_fits_a_phone(browser, parts, tmp_path, quick_map):
    """Long names wrap, so that the number beside them is not cut."""
    name = "electroencephalographically confirmed neurodegeneration (RXNORM:1234567890)"
    edges = pd.DataFrame({"code": [name], "and code": [name], "θ": [0.412], "in refits": ["95 %"]})
    section = Section("Graph", "", [Table(edges, "θ is a coupling.", "Strongest edges")])
    browser.open(build_report(replace(parts, sections=[section]), tmp_path / "edges.html"), 390)
    browser.run("document.getElementById('section-1').scrollIntoView()")
    browser.shot("edges-390")
    box = "document.querySelector('#section-1 .scroll')"
    assert browser.run(f"return {box}.scrollWidth <= {box}.clientWidth")


def test_what_the_policy_forbids_does_not_happen(wide):
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = """
          const there = arguments[0];
          window.refused = [];
          document.addEventListener(
            'securitypolicyviolation', e => refused.push(e.effectiveDirective));
          new Image().src = there + 'pixel.png';
          fetch(there).catch(() => 0);
          const script = document.createElement('script');
          script.textContent = 'window.ran = true';
          document.body.append(script);
        """
        wide.run(script, f"http://127.0.0.1:{server.getsockname()[1]}/")
        wide.wait("refused.length >= 3")
        refused = sorted(wide.run("return refused"))
        assert refused == ["connect-src", "img-src", "script-src-elem"]
        assert wide.run("return window.ran") is None
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has called
            server.accept()
    wide.listen()
    assert wide.console and len(wide.requests) > 1  # so what is checked after every test can fail
    wide.console.clear()
    wide.requests.clear()


def test_search_finds_a_code_by_word_and_keys_open_it(page, parts):
    type_query(page, "donep")
    found = hits(page)
    assert len(found) == 12
    assert all(words[0].startswith("RxNorm:") and "donepezil" in words[1] for words in found)
    assert "14 codes found, the best 12" in page.find("#said").get_attribute("textContent")
    box = page.find("#query")
    assert box.get_attribute("aria-expanded") == "true"
    box.send_keys("\ue015\ue015")  # arrow down, twice
    active = page.run(
        "return document.getElementById('query').getAttribute('aria-activedescendant')"
    )
    chosen = page.find(f"#{active}")
    assert chosen.get_attribute("aria-selected") == "true"
    assert chosen.text.split()[0] == found[1][0]
    box.send_keys("\ue007")  # enter
    assert code_at(page) == found[1][0]
    assert page.find("#code-text").text == parts.descriptions[found[1][0]]
    assert page.find("#code-facts").text.startswith(found[1][0])
    assert not page.find("#hits").is_displayed()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("PheCode:300.1", "PheCode:300.1"),
        ("700", "RxNorm:700"),  # the whole number, before those that begin with it
        ("rxnorm:104", "RxNorm:104"),
        ("form 3 heart", "PheCode:203.1"),
        ("HBA1C test, form 2", "CCS:702"),
        ("diabètes form 13", "PheCode:713.1"),
    ],
)
def test_search_puts_the_best_first(wide, query, first):
    type_query(wide, query)
    assert hits(wide)[0][0] == first


def test_frequent_codes_come_first_among_equals(wide, parts):
    type_query(wide, "psor")
    share = dict(zip(parts.codes, parts.prevalence, strict=True))
    skin = [code for code in parts.codes if parts.descriptions[code].startswith("psoriasis")]
    assert [h[0] for h in hits(wide)] == sorted(skin, key=lambda code: -share[code])[:12]


def test_escape_closes_then_empties_and_nothing_is_said_to_be_nothing(wide):
    type_query(wide, "unobtainium")
    assert wide.find("#hits").text == "No code has these words."
    wide.find("#query").send_keys("\ue007")
    assert code_at(wide) == ""
    wide.find("#query").send_keys("\ue00c")
    assert not wide.find("#hits").is_displayed()
    wide.find("#query").send_keys("\ue00c")
    assert wide.find("#query").get_attribute("value") == ""


def test_the_table_shows_the_nearest_codes(page, parts):
    code = "PheCode:100.1"
    page.run(f"location.hash = 'code={code}'")
    page.wait("document.getElementById('code-text').textContent === 'dementia'")
    page.find("#more").click()
    rows = page.run(
        "return [...document.querySelectorAll('#nearest tbody tr')].map(r => "
        "[r.querySelector('b').textContent, ...[...r.cells].slice(1).map(c => c.textContent)])"
    )
    j = parts.codes.index(code)
    found = nearest(parts, 30)
    assert [row[0] for row in rows] == [parts.codes[i] for i in found.index[j]]
    for row, i, cosine, theta in zip(
        rows, found.index[j], found.cosine[j], found.theta[j], strict=True
    ):
        assert float(row[1].replace("−", "-")) == pytest.approx(cosine, abs=0.0051)
        assert float(row[2].replace("−", "-")) == pytest.approx(theta, abs=0.0051)
        assert float(row[3].rstrip(" %")) == pytest.approx(100 * parts.prevalence[i], rel=0.051)


def test_a_code_in_the_table_opens_and_back_returns(wide, parts):
    first = wide.find("#code-text").text
    wide.all("#nearest .go")[2].click()
    second = wide.find("#code-text").text
    assert second != first
    wide.all("#nearest .go")[0].click()
    for text in (second, first):  # the first has no name in the address
        wide.driver.back()
        wide.wait(f"document.getElementById('code-text').textContent === {json.dumps(text)}")


def test_the_slider_changes_the_edges(page, parts):
    j = parts.codes.index("PheCode:100.1")
    page.run("location.hash = 'code=PheCode:100.1'")
    page.wait("document.getElementById('code-text').textContent === 'dementia'")
    slider = page.find("#threshold")
    before = page.run(VISIBLE_EDGES)
    slider.send_keys("\ue010")  # end
    assert page.run(VISIBLE_EDGES) < before
    assert page.run(VISIBLE_EDGES) == 1
    slider.send_keys("\ue011")  # home: every pair of them that is among the nearest of one
    shown = page.run("return document.querySelectorAll('#graph .node').length")
    near = nearest(parts, 30)
    nodes = {j, *near.index[j][: shown - 1].tolist()}
    pairs = {frozenset((a, int(b))) for a in nodes for b in near.index[a] if int(b) in nodes}
    assert page.run(VISIBLE_EDGES) == len(pairs)
    assert page.find("#threshold-says").text.startswith(f"{len(pairs)} of {len(pairs)} edges")
    slider.send_keys("\ue014" * 30)  # arrow right
    assert 0 < page.run(VISIBLE_EDGES) < len(pairs)


def test_the_slider_says_how_strong(wide, parts):
    wide.run("location.hash = 'code=CCS:400'")
    for measure, every in (
        ("cosine", parts.embedding / np.linalg.norm(parts.embedding, axis=1, keepdims=True)),
        ("theta", parts.couplings[0]),
    ):
        wide.find(f"input[value={measure}]").click()
        wide.find("#threshold").send_keys("\ue011")
        words = wide.find("#threshold-says").text.split("at least ")[1]
        least, share = (
            float(words.split(",")[0]),
            float(words.split("strongest ")[1].split(" %")[0]),
        )
        upper = (every @ every.T)[np.triu_indices(len(every), 1)]
        low, high = (100 * np.mean(upper >= least + d) for d in (0.006, -0.006))
        assert 0.95 * low <= share <= 1.05 * high


def test_the_open_code_is_always_named(page, parts):
    for code in parts.codes[::60]:
        page.run("location.hash = 'code=' + arguments[0]", code)
        page.wait(f"document.getElementById('code-facts').textContent.includes({json.dumps(code)})")
        assert len(page.all("#graph text.centre")) == 1


def test_a_node_of_the_graph_opens(wide):
    name = wide.run("""
      const node = document.querySelectorAll('#graph .node')[5];
      node.dispatchEvent(new MouseEvent('click', {bubbles: true}));
      return node.querySelector('title').textContent.split('\\n')[0];
    """)
    assert code_at(wide) == name


def test_the_graph_is_drawn_again_only_at_another_size(wide):
    drawn = "return document.querySelector('#graph svg') === window.drawn"
    settle(wide)
    wide.run("window.drawn = document.querySelector('#graph svg')")
    for change, same in (("marginTop = '9px'", True), ("width = '400px'", False)):
        wide.run(f"document.getElementById('graph').style.{change}")
        settle(wide)
        settle(wide)
        assert wide.run(drawn) == same


def test_the_map_tells_what_is_under_the_pointer_and_opens_it(page, parts):
    show_map(page)
    x, y = on_screen(page, parts, "RxNorm:500")
    mouse(page, "mouseMoved", x, y)
    tip = page.find("#map-tip")
    page.wait("!document.getElementById('map-tip').hidden")
    told = tip.text.split("\n")
    assert told[0] in parts.codes and told[1] == parts.descriptions[told[0]]
    near = np.hypot(*(np.array(on_screen(page, parts, told[0])) - (x, y)))
    assert near <= 1  # it, or one that lies on it
    mouse(page, "mousePressed", x, y, button="left", clickCount=1)
    mouse(page, "mouseReleased", x, y, button="left", clickCount=1)
    assert code_at(page) == told[0]


def test_the_map_zooms_moves_and_returns(page):
    show_map(page)
    zoom = "return Number(document.getElementById('map').dataset.zoom)"
    count = "return Number(document.getElementById('map').dataset.shown)"
    everything = page.run(count)
    for _ in range(4):
        page.find("#zoom-in").click()
    settle(page)
    assert page.run(zoom) == pytest.approx(1.6**4, abs=1e-3)
    assert page.run(count) < everything
    image = page.run("return document.getElementById('map').toDataURL()")
    page.find("#map").send_keys("\ue014")  # arrow right
    settle(page)
    assert page.run("return document.getElementById('map').toDataURL()") != image
    assert page.find("#said").get_attribute("textContent").startswith("In the middle: ")
    page.find("#zoom-reset").click()
    settle(page)
    assert (page.run(zoom), page.run(count)) == (1, everything)


def test_scrolling_zooms_only_a_map_that_was_clicked(wide, parts):
    show_map(wide)
    zoom = "return Number(document.getElementById('map').dataset.zoom)"
    x, y = on_screen(wide, parts, "CCS:300")
    mouse(wide, "mouseWheel", x, y, deltaX=0, deltaY=-300)
    settle(wide)
    assert wide.run(zoom) == 1
    show_map(wide)
    wide.find("#map").send_keys("0")
    settle(wide)
    x, y = on_screen(wide, parts, "CCS:300")
    mouse(wide, "mouseWheel", x, y, deltaX=0, deltaY=-300)
    wide.wait("Number(document.getElementById('map').dataset.zoom) > 1.2")


def test_two_fingers_zoom_the_map(browser, report):
    browser.open(report, 390)
    show_map(browser)
    box = browser.run("return document.getElementById('map').getBoundingClientRect().toJSON()")
    x, y = box["left"] + box["width"] / 2, box["top"] + box["height"] / 2

    def touch(kind, gap):
        points = [] if gap is None else [{"x": x - gap, "y": y}, {"x": x + gap, "y": y}]
        browser.command("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    touch("touchStart", 30)
    for gap in (40, 60, 90):
        touch("touchMove", gap)
    touch("touchEnd", None)
    browser.wait("Number(document.getElementById('map').dataset.zoom) > 2")


def test_a_vocabulary_can_be_left_out(wide, parts):
    show_map(wide)
    button = next(b for b in wide.all("#legend button") if b.text.startswith("RxNorm"))
    button.click()
    settle(wide)
    kept = sum(not code.startswith("RxNorm") for code in parts.codes)
    assert wide.run("return Number(document.getElementById('map').dataset.shown)") == kept
    assert button.get_attribute("aria-pressed") == "false"


def test_hostile_words_stay_words(browser, parts, tmp_path, quick_map):
    codes = (f"A:{HOSTILE}", *parts.codes[1:])
    hostile = replace(
        parts,
        codes=codes,
        descriptions=dict.fromkeys(codes, HOSTILE),
        report=replace(parts.report, study_name=HOSTILE),
        focus=codes[0],
    )
    path = build_report(hostile, tmp_path / "hostile.html")
    browser.open(path)
    show_map(browser)
    type_query(browser, "onerror")
    assert HOSTILE in browser.find("#hit-0").text
    browser.find("#query").send_keys("\ue00c")
    x, y = on_screen(browser, hostile, codes[0])
    mouse(browser, "mouseMoved", x, y)
    assert browser.find("#code-text").text == HOSTILE
    assert browser.find("h1").text == HOSTILE
    assert browser.run("return document.title") == f"{HOSTILE} – report"
    assert not browser.all("img[src=x]") and not browser.all("#explorer b b")


def test_without_prevalence_couplings_or_descriptions(browser, parts, tmp_path, quick_map):
    bare = replace(parts, descriptions={}, prevalence=None, couplings=None, sections=())
    browser.open(build_report(bare, tmp_path / "bare.html"))
    assert browser.find("#code-text").text == parts.codes[0]
    assert not browser.find("#measure").is_displayed()
    assert len(browser.all("#nearest thead th")) == 2
    assert len(browser.all("#nearest tbody tr:first-child > *")) == 2


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(browser, report, dark):
    """WCAG AA: 4.5 for text, 3 for marks and the edges of controls."""
    browser.open(report, dark=dark)
    colours = browser.run("""
      const style = getComputedStyle(document.documentElement), out = {};
      const names = ['paper', 'wash', 'ink', 'muted', 'accent', 'on-accent'];
      for (let k = 0; k < 8; k++) names.push('v' + k);
      for (const n of names) out[n] = style.getPropertyValue('--' + n).trim();
      return out;
    """)
    light = {name: luminance(value) for name, value in colours.items()}

    def ratio(a, b):
        high, low = sorted((light[a], light[b]), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for ground in ("paper", "wash"):
        assert min(ratio(text, ground) for text in ("ink", "muted", "accent")) >= 4.5
        assert min(ratio(f"v{k}", ground) for k in range(8)) >= 3
    assert ratio("on-accent", "accent") >= 4.5


def luminance(colour: str) -> float:
    value = colour.lstrip("#")
    value = "".join(2 * c for c in value) if len(value) == 3 else value
    channels = np.array([int(value[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def test_every_control_has_a_name(wide):
    show_map(wide)
    nodes = wide.command("Accessibility.getFullAXTree")["nodes"]
    controls = [
        node
        for node in nodes
        if not node.get("ignored")
        and any(
            p["name"] == "focusable" and p["value"].get("value") for p in node.get("properties", [])
        )
    ]
    assert len(controls) > 30
    nameless = [node["role"]["value"] for node in controls if not node["name"].get("value")]
    assert nameless == []
    roles = {node["role"]["value"] for node in controls}
    assert {"combobox", "slider", "radio", "button", "link"} <= roles


def test_on_paper(browser, report):
    """Tables, figures, graph and map are printed, in light colours; controls are not."""
    browser.open(report, dark=True)
    printed = browser.command("Page.printToPDF", printBackground=False)
    pdf = base64.b64decode(printed["data"])
    (browser.shots / "report.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
    browser.command("Emulation.setEmulatedMedia", media="print")
    for hidden in ("nav", ".search", "#threshold", ".zoom", "#more"):
        assert not browser.find(hidden).is_displayed()
    for shown in ("#study table", "#nearest", "#graph svg", "#map", ".drawing img"):
        assert browser.find(shown).is_displayed()
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.command("Emulation.setEmulatedMedia", media="")
    assert ground == "rgb(255, 255, 255)"
