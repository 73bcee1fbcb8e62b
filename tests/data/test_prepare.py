"""The command `daniel prepare` and the folder that it makes: privacy, bad input, interruptions."""

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from safetensors import SafetensorError
from safetensors.numpy import load_file
from typer.testing import CliRunner

from daniel.cli import app
from daniel.data import read_site, sitefolder
from daniel.data.engine import Engine, _told
from daniel.data.prepare import prepare
from daniel.data.records import from_cells
from daniel.data.summary import shown
from daniel.errors import FormatError, InputError, ParameterError
from daniel.matrix import CodeMatrix
from daniel.study import Study

ANY = "version = 1\n[codes]\nminimum_patients = 1\n"


def events(n_patients=40, seed=0):
    """Random events as CSV; code r is rare, the ids are recognisable."""
    rng = np.random.default_rng(seed)
    rows = ["patient,time,code"]
    for i in range(n_patients):
        for _ in range(rng.integers(1, 9)):
            day = np.datetime64("2020-01-01") + int(rng.integers(0, 900))
            rows.append(f"MRN{i:05d},{day},{'abcde'[rng.integers(5)]}")
    return "\n".join([*rows, "MRN00007,2020-01-01,r", "MRN00008,,r"]) + "\n"


# --- the folder -----------------------------------------------------------------------------------


def test_the_folder_holds_what_it_says(run):
    result = run(events())
    folder, info = result.folder, result.info
    assert {p.name for p in folder.iterdir()} == {
        "site.json",
        "study.json",
        "records.safetensors",
        "codes.parquet",
        "codes.tsv",
        "patients.parquet",
        "summary.txt",
    }
    assert info["study"] == result.study.hash
    assert hashlib.sha256((folder / "study.json").read_bytes()).hexdigest() == info["study"]
    assert info["site"] == "north"
    facts = info["facts"]
    assert facts["records"] == result.matrix.shape[0] == len({c[:2] for c in result.cells})
    assert facts["patients"] == len({c[0] for c in result.cells}) == 40
    assert facts["cells"] == len(result.cells)
    assert (folder / "codes.tsv").read_text().splitlines()[1].split("\t") == ["a", ""]
    assert result.matrix.Z.has_sorted_indices


def test_only_the_owner_opens_it(run):
    folder = run(events()).folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}


def test_ids_stay_in_one_file_and_pseudonyms_are_random(run):
    first, second = run(events()), run(events())
    for path in first.folder.iterdir():
        assert (b"MRN" in path.read_bytes()) == (path.name == "patients.parquet")
    one, two = (pd.read_parquet(r.folder / "patients.parquet") for r in (first, second))
    assert one["patient"].tolist() == two["patient"].tolist()
    assert not set(one["pseudonym"]) & set(two["pseudonym"])
    # Neither the rows nor the pseudonyms are in the order of the ids.
    assert one["patient"].tolist() != sorted(one["patient"])
    assert abs(np.corrcoef(one["pseudonym"].rank(), one["patient"].rank())[0, 1]) < 0.6
    # The records themselves do not depend on chance, nor the pseudonyms with a seed.
    assert (first.matrix.Z != second.matrix.Z).nnz == 0
    seeded = [run(events(), random_state=5).matrix.patients for _ in range(2)]
    assert np.array_equal(*seeded)
    # Records of two sites may be stacked: a seed gives each its own.
    south = run(events(), site="south", random_state=5).matrix.patients
    assert not np.isin(south, seeded[0]).any()


def test_the_summary_can_be_mailed(run):
    result = run(events())
    numbers = [
        int(n.replace(",", ""))
        for n in re.findall(r"(?<![\w<.-])\d[\d,]*(?![\w.-])", result.summary)
    ]
    assert (result.folder / "summary.txt").read_text() == result.summary
    assert "MRN" not in result.summary
    assert re.search(r"without a date\s+<11\n", result.summary)
    # 6 codes, 6 months, the thresholds 11 and 1, or a multiple of ten: no exact count.
    assert all(n % 10 == 0 or n in {1, 6, 11} for n in numbers), numbers


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, "0"),
        (1, "<11"),
        (10, "<11"),
        (11, "11-19"),
        (19, "11-19"),
        (20, "20"),
        (12345, "12,340"),
    ],
)
def test_counts_as_they_are_shown(n, expected):
    assert shown(n) == expected


def test_very_many_records_are_mapped_and_outlive_their_file(run, monkeypatch):
    monkeypatch.setattr(sitefolder, "MAPPED", 0)
    folder = run(events()).folder
    path = folder / "records.safetensors"
    before, expected = path.read_bytes(), load_file(path)["indices"]
    Z = read_site(folder).Z
    base = Z.indices
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    Z.indices[0] += 1  # in memory alone
    assert path.read_bytes() == before
    Z.indices[0] -= 1
    shutil.rmtree(folder)
    np.testing.assert_array_equal(Z.indices, expected)


def test_the_folder_is_read_as_it_was_written_or_refused(run, tmp_path):
    folder = run(events()).folder
    with pytest.raises(FormatError, match="no site folder"):
        read_site(tmp_path)
    path = folder / "records.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"records\.safetensors is missing or damaged"):
        read_site(folder)
    path.unlink()
    with pytest.raises(FormatError, match="missing or damaged"):
        read_site(folder)
    info = json.loads((folder / "site.json").read_text())
    (folder / "site.json").write_text(json.dumps(info | {"format": 99}))
    with pytest.raises(FormatError, match="site format 99"):
        read_site(folder)
    (folder / "site.json").write_text("{")
    with pytest.raises(FormatError, match="damaged"):
        read_site(folder)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOENT])
@pytest.mark.parametrize("reader", ["_sha256", "_arrays"])
def test_a_file_that_the_disk_does_not_give_is_one_sentence(run, monkeypatch, reader, number):
    folder = run(events()).folder

    def broken(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sitefolder, reader, broken)
    with pytest.raises(InputError, match=f"cannot be read .{os.strerror(number)}."):
        read_site(folder)


def test_an_estimator_takes_it_as_it_comes(run):
    from daniel import Daniel

    matrix = run(events(), 'version = 1\n[codes]\nnames = ["a", "b", "c", "d", "e"]\n').matrix
    model = Daniel(n_components=2, random_state=0).fit(matrix)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d", "e"]


def test_absent_codes_of_a_matrix():
    Z = sp.csr_array(np.array([[1, 0], [1, 0]]))
    assert CodeMatrix(Z, ("a", "b"), absent=np.array([False, True])).absent.tolist() == [
        False,
        True,
    ]
    with pytest.raises(InputError, match="each of the 2 codes"):
        CodeMatrix(Z, ("a", "b"), absent=np.array([1, 0]))
    with pytest.raises(InputError, match="marked absent have records: 'a'"):
        CodeMatrix(Z, ("a", "b"), absent=np.array([True, False]))


def test_cells_become_records_over_any_batches():
    rng = np.random.default_rng(0)
    n_codes, n_windows, low = 7, 5, 3
    cells = np.unique(rng.integers(0, 40 * n_windows * n_codes, 300))
    patient, window = np.divmod(cells // n_codes, n_windows)
    expected = sorted(zip(patient, window + low, cells % n_codes, strict=True))

    class Batch:
        def __init__(self, values):
            self.values = values

        def column(self, _):
            return self

        def to_numpy(self):
            return self.values

    for size in (1, 7, 50, 1000):
        batches = [Batch(cells[i : i + size]) for i in range(0, cells.size, size)]
        got = from_cells(batches, n_codes=n_codes, n_windows=n_windows, first_window=low)
        owner = np.repeat(np.arange(got.n), np.diff(got.indptr))
        assert expected == sorted(
            zip(got.patient[owner], got.window[owner], got.indices, strict=True)
        )
        by_code = pd.DataFrame({"p": patient, "c": cells % n_codes}).groupby("c")["p"].nunique()
        assert got.patients_with(n_codes).tolist() == by_code.tolist()
        assert got.patients_with(n_codes + 1)[-1] == 0


# --- bad input ------------------------------------------------------------------------------------


def broken_gzip(path):
    path.write_bytes(b"\x1f\x8b" + b"\x00" * 30)


BAD = {
    "no source": (None, ANY, ["There is no source"]),
    "no column": ("patient,when,code\nMRN1,2020-01-01,x\n", ANY, ["no column time", "when"]),
    "ragged": ("patient,time,code\nMRN1,2020-01-01,x\nMRN1,2020-01-01\n", ANY, ["near line 3"]),
    "not text": (b"patient,time,code\nMRN1,2020-01-01,\xff\xfe\n", ANY, ["cannot be read"]),
    "empty file": (b"", ANY, ["is empty"]),
    "header only": ("patient,time,code\n", ANY, ["No record is left of 0 events"]),
    "no dates": ("patient,time,code\nMRN1,1/2/20,x\n", ANY, ["no time can be read as a date"]),
    "only undated": ("patient,time,code\nMRN1,,x\n", ANY, ["No record is left", "<11 events"]),
    "one unreadable date": (
        "patient,time,code\nMRN1,2020-13-77,x\nMRN2,2020-01-01,y\n",
        "version = 1\n",
        ["of <11 events (0 without a date, <11 with an unreadable date)"],
    ),
    "too few": (events(5), "version = 1\n", ["No record is left", "at least 11 patients"]),
    "none of the list": (
        "patient,time,code,vocabulary\nMRN1,2020-01-01,x,V\n",
        'version = 1\n[codes]\nnames = ["W:x"]\n',
        ["No record is left", "list of 1 codes", "codes of 'V'"],
    ),
    "other version": (events(), "version = 7\n", ["study version 7", "reads version 1"]),
    "unknown key": (events(), "version = 1\nwindows = 6\n", ["'windows'", "'window'"]),
    "wrong site": (
        events(),
        ANY + "[[sites]]\nname = 'south'\nrole = 'hub'\n",
        ["no site 'north'", "roster is south"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(tmp_path, case):
    content, toml, words = BAD[case]
    source = tmp_path / "events.csv"
    if content is not None:
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "study.toml").write_text(toml)
    refused(tmp_path, source, words)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("events.parquet", b"PAR1 not really"),
        ("events.csv.gz", b"\x1f\x8b" + b"\x00" * 30),
        ("cdm.duckdb", b"\x00" * 8 + b"DUCK" + b"\x00" * 100),
        ("events.xlsx", b"PK"),
    ],
)
def test_unreadable_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "study.toml").write_text(ANY)
    refused(tmp_path, tmp_path / name, [name])


def test_a_folder_that_is_no_source(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "letter.docx").write_text("x")
    (tmp_path / "study.toml").write_text(ANY)
    refused(tmp_path, folder, ["letter.docx", "condition_occurrence.csv", "data/*.parquet"])


def refused(tmp_path, source, words, *options):
    """Exit code 2, one sentence without an id, and nothing left behind."""
    before = set(tmp_path.iterdir())
    arguments = ["--study", tmp_path / "study.toml", "--site", "north", "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, ["prepare", str(source), *map(str, arguments), *options])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("daniel: ")
    assert result.stderr.count("\n") == 1
    assert "MRN" not in result.stderr
    for word in words:
        assert word in result.stderr
    assert set(tmp_path.iterdir()) == before


def test_options_that_cannot_work(tmp_path):
    (tmp_path / "events.csv").write_text(events())
    (tmp_path / "study.toml").write_text(ANY)
    source = tmp_path / "events.csv"
    refused(tmp_path, source, ["memory_limit", "2GB"], "--memory", "plenty")
    refused(tmp_path, source, ["TimeZone", "Europe/Berlin"], "--timezone", "Mars")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    refused(tmp_path, source, ["exists already"])
    with pytest.raises(InputError, match="does not exist"):
        prepare(source, Study(), "north", tmp_path / "no" / "out")
    with pytest.raises(ParameterError, match="memory_limit"):
        prepare(source, Study(), "north", tmp_path / "new", memory="x")


# --- interruptions --------------------------------------------------------------------------------


def test_the_command_prints_the_summary(tmp_path):
    (tmp_path / "events.csv").write_text(events())
    (tmp_path / "study.toml").write_text(ANY)
    command = Path(sys.executable).with_name("daniel")
    arguments = [
        command,
        "prepare",
        "events.csv",
        "--study",
        "study.toml",
        "--site",
        "north",
        "--out",
        "out",
    ]
    result = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "Site north" in result.stdout
    assert read_site(tmp_path / "out").shape[1] == 6


def test_progress_goes_through_every_stage(run):
    seen = []
    run(events(), progress=lambda *report: seen.append(report))
    stages = list(dict.fromkeys(stage for stage, *_ in seen))
    assert stages == ["reading events", "patients", "codes", "records", "writing"]
    ends = {stage: note for stage, share, note in seen if share == 1 and note}
    assert ends["patients"] == "40 patients"
    assert ends["codes"] == "6 columns"
    assert all(0 <= share <= 1 for _, share, _ in seen)
    assert seen[-1] == ("writing", 1.0, "")


def test_progress_shows_no_small_count(run):
    notes = []
    run(
        "patient,time,code\na,2020-01-01,x\nb,2020-01-01,x\n",
        progress=lambda *r: notes.append(r[2]),
    )
    assert {note for note in notes if note} == {
        "<11 events",
        "<11 patients",
        "1 columns",
        "<11 records",
    }


def test_a_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "events.csv").write_text(events())

    for where, error in (
        ("pq.write_table", OSError(errno.ENOSPC, "No space left on device")),
        ("save_file", SafetensorError("I/O error")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"daniel.data.sitefolder.{where}", Mock(side_effect=error))
            with pytest.raises(InputError, match=r"out cannot be written \((No space|the disk)"):
                prepare(tmp_path / "events.csv", Study(), "north", tmp_path / "out")
        assert [p.name for p in tmp_path.iterdir()] == ["events.csv"]


def test_a_site_folder_is_on_the_disk_before_it_has_its_name(tmp_path, disk):
    (tmp_path / "events.csv").write_text(events())
    prepare(tmp_path / "events.csv", Study(), "north", tmp_path / "out")
    end = disk.index("renamed")
    out = tmp_path / "out"
    assert {path.stat().st_ino for path in (out, *out.iterdir())} <= set(disk[:end])
    assert disk[end:] == ["renamed", tmp_path.stat().st_ino]


@pytest.mark.parametrize("kilobytes", [1, 16])
def test_a_disk_that_is_full_is_one_sentence(tmp_path, kilobytes):
    """No file may grow further: DuckDB cannot begin, or cannot commit."""
    (tmp_path / "events.csv").write_text(events(400))
    (tmp_path / "study.toml").write_text(ANY)
    most = kilobytes * 1024
    command = ["prepare", "events.csv", "--site", "north", "--out", "out"]
    result = subprocess.run(
        [Path(sys.executable).with_name("daniel"), *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("daniel: The disk of the output folder is full")
    assert result.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.csv", "study.toml"]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "events.csv").write_text(events())
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    for name in ("link", "x" * 300):
        with pytest.raises(InputError, match="cannot be written"):
            prepare(tmp_path / "events.csv", Study(), "north", tmp_path / name)
    assert {p.name for p in tmp_path.iterdir()} == {"events.csv", "there", "link"}


def test_an_interrupted_query_is_an_interruption(tmp_path, monkeypatch):
    """DuckDB turns Ctrl-C into a RuntimeError; the command line knows KeyboardInterrupt."""
    (tmp_path / "events.csv").write_text(events())

    def stage(name, share, note):
        if name == "records":
            interrupted = Mock(side_effect=RuntimeError("Query interrupted"))
            monkeypatch.setattr(Engine, "table", _told("The source")(interrupted))

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "events.csv", Study(), "north", tmp_path / "out", progress=stage)
    assert [p.name for p in tmp_path.iterdir()] == ["events.csv"]


KILLED = """
import os, signal, sys
from daniel.data import sitefolder
from daniel.data.prepare import prepare
from daniel.matrix import CodeMatrix
from daniel.study import Study
def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)
sitefolder.{where} = die
prepare("events.csv", Study(), "north", "out")
"""


@pytest.mark.parametrize("where", ["save_file", "_sha256"])
def test_a_killed_run_leaves_no_folder_and_the_next_one_cleans_up(tmp_path, where):
    (tmp_path / "events.csv").write_text(events())
    code = KILLED.format(where=where)
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert result.returncode == -signal.SIGKILL, result.stderr
    left = [p.name for p in tmp_path.iterdir() if p.name != "events.csv"]
    assert len(left) == 1 and left[0].startswith(".out.")
    # The part of a run that is still alive stays.
    alive = tmp_path / f".out.{os.getppid()}.part"
    alive.mkdir()
    prepare(tmp_path / "events.csv", Study(), "north", tmp_path / "out")
    assert {p.name for p in tmp_path.iterdir()} == {"events.csv", "out", alive.name}
    assert read_site(tmp_path / "out").shape[0] > 0


def test_the_commands_of_the_documentation(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "prepare.md").read_text("utf-8")
    commands = re.search(r"```sh\n(.*?)```", text, re.S)[1].split("\n")[:-1]
    (tmp_path / "events.csv").write_text(events())
    folder = Path(sys.executable).parent
    for command in commands:
        result = subprocess.run(
            [folder / "daniel", *command.split()[1:]], cwd=tmp_path, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
    assert read_site(tmp_path / "north").codes == ("a", "b", "c", "d", "e")
    assert (tmp_path / "north" / "summary.txt").read_text() in result.stdout
