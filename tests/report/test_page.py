"""The page as text: escaped, self-contained, the same every time."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from made_up import HOSTILE, SVG, make_parts, make_report

from daniel.errors import InputError
from daniel.federated.report import Contribution
from daniel.report import Figure, Section, Table, build_report
from daniel.report.explorer import NEIGHBOURS, Nearest, blocks
from daniel.report.page import _source, figure, render, shown, table

pytestmark = pytest.mark.usefixtures("quick_map")


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text of each element by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_the_file_points_nowhere(report):
    page = Elements(report.read_text("utf-8"))
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
    assert not [tag for tag, _ in page.tags if tag in {"iframe", "object", "embed", "form", "base"}]


@pytest.mark.parametrize("p", [2, 31, 32, 200, 60_000, 70_000])
def test_the_caption_of_the_graph_says_which_pairs_it_knows(p, monkeypatch):
    """Very many codes have fewer neighbours each; of few codes every pair is known."""
    parts = make_parts(
        codes=tuple(f"A:{j}" for j in range(p)),
        embedding=np.ones((p, 1)),
        couplings=None,
        prevalence=None,
        descriptions={},
    )
    held = []
    monkeypatch.setattr("daniel.report.explorer.all_pairs", lambda _: (np.zeros(1), None))
    monkeypatch.setattr("daniel.report.explorer.map_coordinates", lambda E: np.zeros((len(E), 2)))

    def nearest(parts, k, progress):
        held.append(min(k, p - 1))
        return Nearest(*np.zeros((2, p, held[0])), None)

    monkeypatch.setattr("daniel.report.explorer.nearest", nearest)
    words = " ".join(render(parts, blocks(parts)).split())
    told = f"is among the {held[0]} most similar to the other: others may be as strong"
    assert (told in words) == ("others may be as strong" in words) == (p > 31)
    assert held[0] == min({60_000: 11, 70_000: 7}.get(p, NEIGHBOURS), p - 1)


def test_the_policy_names_exactly_the_two_texts(report):
    text = report.read_text("utf-8")
    (policy,) = [
        a["content"]
        for tag, a in Elements(text).tags
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for element in ("script", "style"):
        (inside,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


def test_foreign_words_are_escaped_everywhere(tmp_path):
    frame = pd.DataFrame({HOSTILE: [HOSTILE, 1]}, index=pd.Index([HOSTILE, "b"], name=HOSTILE))
    site = Contribution(HOSTILE, HOSTILE, HOSTILE, 5, HOSTILE, HOSTILE)
    section = Section(
        HOSTILE,
        HOSTILE,
        [Table(frame, HOSTILE, HOSTILE)],
        [Figure(SVG, HOSTILE, HOSTILE)],
    )
    parts = make_parts(
        report=make_report(study_name=HOSTILE, study=HOSTILE, sites=[site], notes=[HOSTILE]),
        sections=[section],
    )
    safe = build_report(make_parts(), tmp_path / "safe.html").read_text("utf-8")
    page = Elements(build_report(parts, tmp_path / "hostile.html").read_text("utf-8"))
    assert not [a for _, a in page.tags if a.get("src") == "x" or "onerror" in a]
    assert sum(tag == "script" for tag, _ in page.tags) == sum(
        tag == "script" for tag, _ in Elements(safe).tags
    )
    assert sum(HOSTILE in text for text in page.texts) >= 10


def test_same_parts_same_file(parts, tmp_path):
    one, two = (build_report(parts, tmp_path / f"{name}.html") for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_study_facts_contributors_and_terms(report):
    text = " ".join(Elements(report.read_text("utf-8")).texts)
    for words in (
        "Memory & heart, three hospitals",
        "about 48,000 records of 3 sites",
        "north",
        "2025-03-05",
        "the hub saw the sum over all sites",
        "41 codes of fewer than 11 patients",
        "groups of at least 11 patients",
        "7d1f" * 16,
        "penalty 0.0183, converged",
    ):
        assert words in text
    assert "patients behind a code, at least" in text


@pytest.mark.parametrize("floor", [1, 11])
def test_with_noise_no_code_is_said_to_have_a_floor(floor):
    noisy = make_report(epsilon=4.0, delta=1e-6, release="open", floor=floor)
    text = " ".join(Elements(render(make_parts(report=noisy), [])).texts)
    assert "ε = 4" in text and "(4, 1e-06)-differential privacy" in text
    assert "patients behind a code" not in text
    promise = "about codes, which are protected by noise, and about groups of at least 11 patients"
    assert promise in text


def test_groups_are_of_eleven_where_the_floor_of_codes_is_lower():
    text = render(make_parts(report=make_report(floor=3)), [])
    assert "groups of at least 11 patients" in text
    assert "<dt>patients behind a code, at least</dt><dd>3</dd>" in text


def test_the_dimensions_of_a_code_are_those_of_its_vector():
    text = render(make_parts(report=make_report(rank=57)), [])
    assert "<dt>dimensions of a code</dt><dd>24</dd>" in text and "<dd>57</dd>" not in text


def test_an_interrupted_build_leaves_the_old_file(parts, tmp_path, monkeypatch):
    out = tmp_path / "report.html"
    out.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(InputError, match="cannot be written"):
        build_report(parts, out)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_is_not_there(parts, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        build_report(parts, tmp_path / "no" / "report.html")


@pytest.mark.parametrize("words", ["慢性肾脏病" * 40, "хроническая " * 20, "<" * 200, "short"])
def test_twenty_thousand_codes_stay_under_ten_megabytes(words, tmp_path, monkeypatch):
    """Neighbours are bounded by their number, descriptions by the bytes that are left."""
    p = 20_000
    some = np.zeros((p, NEIGHBOURS))
    monkeypatch.setattr("daniel.report.explorer.nearest", lambda *_: Nearest(some, some, some))
    codes = tuple(f"PheCode:{j:05d}.{j % 100:02d}" for j in range(p))
    parts = make_parts(
        codes=codes,
        embedding=np.ones((p, 2)),
        couplings=(np.ones((p, 1)), np.ones((p, 1))),
        prevalence=np.full(p, 0.1),
        descriptions=dict.fromkeys(codes, words) | {codes[0]: "dementia"},
        sections=[Section("A long one", "word " * 100_000)],
    )
    html = build_report(parts, tmp_path / "large.html").read_text("utf-8")
    size = len(html.encode())
    first, second = json.loads(re.search(r'id="data-names".*?>(.*?)</script>', html)[1])["texts"][
        :2
    ]
    assert size < 10e6
    assert first == "dementia"
    assert second == words or (second[-1] == "…" and second[:-1] in words)
    assert size > 9.8e6 or words == "short"  # no more is cut than must be


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12_345, "12,345"),
        (np.int64(7), "7"),
        (0.91234, "0.912"),
        (1234.5, "1,234.500"),
        (0.00001234, "1.2e-05"),
        (0.0, "0.000"),
        (float("nan"), "–"),
        (None, "–"),
        (pd.NA, "–"),
        (True, "yes"),
        ("<11", "<11"),
    ],
)
def test_cells(value, text):
    assert shown(value) == text


def test_a_table_has_row_and_column_heads():
    frame = pd.DataFrame(
        {"n": [5, 6], "who": ["a", "b"], "few": ["<11", "12"]},
        index=pd.Index(["x", "y"], name="key"),
    )
    page = Elements(table(Table(frame, "What it means.", "The title")))
    heads = [a for tag, a in page.tags if tag == "th"]
    assert [a["scope"] for a in heads] == ["col"] * 4 + ["row"] * 2
    right = [a.get("class") == "number" for a in heads[:4]]
    assert right == [False, True, False, True]
    assert "What it means." in page.texts and "The title" in page.texts


def test_a_figure_is_an_image_with_words():
    page = Elements(figure(Figure(SVG, "Two bars.", "One is longer.")))
    ((_, image),) = [(tag, a) for tag, a in page.tags if tag == "img"]
    assert image["alt"] == "One is longer."
    assert base64.b64decode(image["src"].partition(",")[2]).decode() == SVG
    assert not [tag for tag, _ in page.tags if tag in {"svg", "script", "style"}]


def test_what_scrolls_is_named_by_its_section(tmp_path):
    """All figures were "Figure" to those who hear the page."""
    drawn = [Section(f"Part {k}", "", (), [Figure(SVG, "Two bars.")]) for k in (1, 2)]
    text = build_report(replace(make_parts(), sections=drawn), tmp_path / "r.html").read_text()
    for k in (1, 2):
        assert f'role="region" tabindex="0" aria-label="Figure: Part {k}"' in text


def test_without_descriptions_prevalence_or_couplings(tmp_path):
    parts = replace(make_parts(), descriptions={}, prevalence=None, couplings=None, sections=())
    text = build_report(parts, tmp_path / "bare.html").read_text("utf-8")
    assert 'id="data-theta"' not in text and 'id="data-prevalence"' not in text


def test_the_hubs_own_records_contribute():
    report = make_report()
    own = [replace(site, state="own records") for site in report.sites[:1]]
    missing = [replace(site, state="missing") for site in report.sites[1:2]]
    sites = (*own, *missing, *report.sites[2:])
    text = render(make_parts(report=replace(report, sites=sites)), [])
    assert "<dt>sites that contributed</dt><dd>2 of 3</dd>" in text
    assert "records of 2 sites" in text


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize(
    ("share", "least", "shown"),
    [
        (0.90833336, 0.0916667, "> 90 %"),
        (0.0916667, 0.0916667, "< 9.2 %"),
        (0.91, 0.01, "91 %"),
        (float(np.float32(1 - 11 / 906530)), 11 / 906530, "> 99 %"),
        (1, 0, "100 %"),
        (0.0123, 0.001, "1.2 %"),
    ],
)
def test_nearly_all_records_is_a_bound(share, least, shown):
    """A code that all records have was told as 91 % of them, as if that were known."""
    source = _source("data.js")
    source = source[source.index("function percent") : source.index("function prevalence")]
    script = f"{source}\nconsole.log(percent({share}, {least} * 1.0000001))"
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == shown
