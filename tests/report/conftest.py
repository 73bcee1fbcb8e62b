"""A report, and a real browser to open it in."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_up import make_parts
from three_hospitals import make_masked_study
from two_hospitals import make_study

from benchmarks.chromium import Browser, chromium
from daniel.evaluate.phenotype import CLASSIFIERS, phenotype
from daniel.report import ReportParts, build_report


@pytest.fixture(scope="session")
def parts() -> ReportParts:
    return make_parts()


@pytest.fixture(scope="session")
def report(parts, tmp_path_factory) -> Path:
    return build_report(parts, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def quick_map(monkeypatch) -> None:
    """Two columns of the embedding in place of t-SNE, for tests that do not look at the map."""
    monkeypatch.setattr("daniel.report.explorer.map_coordinates", lambda E: E[:, [0, -1]] / 9)


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> SimpleNamespace:
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def masked(tmp_path_factory) -> SimpleNamespace:
    return make_masked_study(tmp_path_factory.mktemp("masked"))


@pytest.fixture
def quick(monkeypatch, quick_map) -> None:
    """One classifier and few folds: what phenotyping finds is tested where it is made."""
    some = {"tree": CLASSIFIERS["tree"]}
    monkeypatch.setattr(
        "daniel.report.assemble.phenotype", partial(phenotype, classifiers=some, folds=3)
    )


@pytest.fixture(scope="session")
def driver(tmp_path_factory) -> Iterator[Browser]:
    try:
        running = chromium(tmp_path_factory.mktemp("browser"))
    except LookupError as error:
        pytest.skip(str(error))
    yield running
    running.quit()


@pytest.fixture
def browser(driver, tmp_path) -> Iterator[Browser]:
    """After every test: no error was logged, and nothing asked for but the page itself.

    Screenshots go to the folder DANIEL_SCREENSHOTS, or away with the test.
    """
    driver.shots = Path(os.environ.get("DANIEL_SCREENSHOTS") or tmp_path)
    driver.shots.mkdir(parents=True, exist_ok=True)
    yield driver
    driver.listen()
    assert driver.console == []
    asked = [url for url in driver.requests if not url.startswith("data:")]
    assert len(asked) <= 1 and all(url.startswith("file:") for url in asked)
