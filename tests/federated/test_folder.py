"""The exchange as files and commands, and what is left when a command is killed."""

import errno
import hashlib
import json
import os
import random
import stat
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from daniel import Daniel
from daniel.cli import app
from daniel.errors import DanielError, FormatError, InputError
from daniel.federated import folder, messages, protocol
from daniel.federated.describe import describe, describe_parcel
from daniel.federated.files import new_folder, read_file, write_file
from daniel.federated.keys import roster_entry, write_key
from daniel.federated.report import Report
from daniel.federated.validate import ADAPTED, ALONE, EDGES, _calibration, validate
from daniel.study import Study


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result.stdout if code == 0 else result.stderr


def test_three_commands_give_the_model_that_memory_gives(answered, hospitals):
    files = ["east.daniel", "north.daniel", "south.daniel"]
    text = run("finish", "north", "start.daniel", *files, "--out", "model")
    assert "Masked" in text and "| south | site | used | 3" in text
    model = folder.read_model(Path("model"))
    matrices = {name: folder.read_site(Path(name)) for name in hospitals.names}
    expected, _ = protocol.fit(matrices, hospitals.study)
    np.testing.assert_array_equal(model.theta_, expected.theta_)
    run("fit", "south", "north", "east", "--out", "model2")
    np.testing.assert_array_equal(folder.read_model(Path("model2")).theta_, expected.theta_)

    table = pd.read_parquet("model/embedding.parquet")
    assert table["code"].tolist() == model.feature_names_in_.tolist()
    np.testing.assert_allclose(table.iloc[:, 1:], model.embedding_, rtol=1e-6)
    plain = pd.read_csv("model/embedding.tsv", sep="\t")
    np.testing.assert_allclose(plain.iloc[:, 1:], model.embedding_, rtol=1e-5)
    codes = Path("model/codes.tsv").read_text().splitlines()
    assert codes == ["code", *model.feature_names_in_]
    report = folder.read_report(Path("model"))
    assert Report.from_json(report.to_json()) == report
    assert [s.site for s in report.sites] == ["north", "south", "east"]
    assert report.start == messages.read(Path("start.daniel").read_bytes()).sha256


def test_codes_with_quotes_and_commas_pass_through_the_whole_exchange(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = ('LOCAL:5" pipe', "LOCAL:a, b", "LOCAL:d'Arcy", '"quoted"')
    network = make()
    entries = []
    for name, key in network.keys.items():
        write_key(key, tmp_path)
        entries.append(roster_entry(key, "hub" if name == "north" else "site"))
        rows, columns = network.sites[name].Z.nonzero()
        codes = np.array([*odd, *network.study.codes.names[len(odd) :]])
        events = {
            "patient": network.sites[name].patients[rows],
            "date": np.where(rows % 2, "2020-09-01", "2020-01-01"),
            "code": codes[columns],
        }
        pd.DataFrame(events).to_csv(f"{name}.csv", index=False)
    head, sites = "version = 1\nname = 'trial'\n", "\n".join(entries)
    Path("draft.toml").write_text(head + sites)
    run("prepare", "north.csv", "--study", "draft.toml", "--site", "north", "--out", "draft")
    Path("draft/codes.tsv").rename("codes.tsv")
    Path("study.toml").write_text(f"{head}[codes]\nfile = 'codes.tsv'\n{sites}")
    for name in network.sites:
        run("prepare", f"{name}.csv", "--site", name, "--out", name)
    run("start", "north")
    files = [f"{name}.daniel" for name in network.sites]
    for name, file in zip(network.sites, files, strict=True):
        run("answer", name, "start.daniel", "--approve", "Ada", "--out", file)
    run("finish", "north", "start.daniel", *files)
    model = folder.read_model(Path("model"))
    assert set(model.feature_names_in_) == set(codes)
    plain = pd.read_csv("model/embedding.tsv", sep="\t", quoting=3)
    assert plain["code"].tolist() == model.feature_names_in_.tolist()
    np.testing.assert_allclose(plain.iloc[:, 1:], model.embedding_, rtol=1e-5)
    assert Path("model/codes.tsv").read_text().splitlines()[1:] == plain["code"].tolist()
    run("fit", *network.sites, "--out", "here")
    assert Path("here/embedding.tsv").read_bytes() == Path("model/embedding.tsv").read_bytes()
    run("export", "model", "--out", "vectors")
    named = pd.read_csv("vectors/metadata.tsv", sep="\t", quoting=3)
    assert named["code"].tolist() == plain["code"].tolist()


def test_a_long_table_is_written_in_parts(tmp_path):
    table = pa.table({"code": [f'X:"{i}' for i in range(2500)], "d1": np.arange(2500) / 8})
    folder._write_tsv(table, tmp_path / "e.tsv")
    lines = [f'X:"{i}\t{i / 8:g}' for i in range(2500)]
    assert (tmp_path / "e.tsv").read_text().splitlines() == ["code\td1", *lines]


@pytest.mark.parametrize("name", ["notes.txt", "report.html", "figures/one.png"])
def test_what_a_user_put_into_a_model_folder_is_not_lost(answered, name):
    files = [f"{site}.daniel" for site in ("north", "south", "east")]
    commands = (
        ("finish", "north", "start.daniel", *files, "--out", "model"),
        ("fit", "north", "south", "east", "--out", "model"),
    )
    for command in commands:  # one model takes the place of the other
        run(*command)
    precious = Path("model") / name
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("precious")
    before = {path: path.stat().st_mtime_ns for path in Path("model").rglob("*")}
    for command in commands:
        text = run(*command, code=2)
        assert f"model holds {name.partition('/')[0]}" in text and text.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in Path("model").rglob("*")} == before


def test_a_report_of_others_does_not_make_a_model_folder(here):
    Path("study").mkdir()
    Path("study/report.json").write_text('{"title": "our results"}')
    text = run("fit", "north", "south", "east", "--out", "study", code=2)
    assert "study/report.json is no report that this daniel knows, and would be lost" in text
    assert text.count("\n") == 1
    assert Path("study/report.json").read_text() == '{"title": "our results"}'


def test_without_approval_the_answer_is_shown_and_not_written(here):
    run("start", "north")
    text = run("answer", "south", "start.daniel")
    for part in ("Nothing was written", "masked", "absent", "study_name = trial", "records"):
        assert part in text
    assert not list(here.glob("answer*")) and not (here / "south.log").exists()


def test_a_second_different_release_is_refused(answered):
    """The same site, another start: the file of the first release stays as it was."""
    before = Path("south.daniel").read_bytes()
    run("answer", "south", "start.daniel", "--out", "again.daniel", "--approve", "Ada")
    time.sleep(1.1)  # the next start is made in another second
    run("start", "north", "--out", "other.daniel")
    text = run("answer", "south", "other.daniel", "--out", "x.daniel", "--approve", "B", code=2)
    assert "has released" in text and not Path("x.daniel").exists()
    assert Path("south.daniel").read_bytes() == before
    log = [json.loads(line) for line in Path("south.log").read_text().splitlines()]
    assert [e["event"] for e in log] == ["approved", "written"] * 2


def test_status_tells_who_is_missing_late_or_refused(answered):
    Path("box").mkdir()
    for name in ("start", "south"):
        Path(f"{name}.daniel").rename(f"box/{name}.daniel")
    lines = run("status", "box").splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["north", "hub", "missing"],
        ["south", "site", "valid"],
        ["east", "site", "missing"],
    ]
    damaged = bytearray(Path("east.daniel").read_bytes())
    damaged[-1] ^= 1
    Path("box/bad.daniel").write_bytes(damaged)
    Path("box/twice.daniel").write_bytes(Path("box/south.daniel").read_bytes())
    text = run("status", "box")
    assert "refused  bad.daniel" in text and "damaged" in text
    assert "again    twice.daniel" in text
    for name in ("north", "east"):
        Path(f"{name}.daniel").rename(f"box/{name}.daniel")
    files = [f"box/{name}.daniel" for name in ("north", "south", "east")]
    run("finish", "north", "box/start.daniel", *files, "--out", "box/model")
    assert run("status", "box").count(" used ") == 3
    Path("empty").mkdir()
    assert "no valid start" in run("status", "empty")


def test_status_of_a_late_answer(answered):
    """A model whose report lacks an answer that is here now."""
    files = [f"{name}.daniel" for name in ("north", "south", "east")]
    run("finish", "north", "start.daniel", *files)
    report = json.loads(Path("model/report.json").read_text())
    for site in report["sites"]:
        if site["site"] == "east":
            site["sha256"], site["state"] = None, "missing"
    Path("model/report.json").write_text(json.dumps(report))
    rows = {row.site: row.state for row in folder.status(Path("."), Study.load("study.toml"))}
    assert rows == {"north": "used", "south": "used", "east": "late"}


def test_wrong_files_and_sites_give_one_sentence(answered):
    files = ["north.daniel", "south.daniel", "east.daniel"]
    for arguments in (
        ("answer", "north", "start.daniel", "--key", "south.key", "--approve", "A"),
        ("answer", "south", "north.daniel", "--approve", "A", "--out", "x.daniel"),
        ("answer", "south", "codes.tsv", "--approve", "A", "--out", "x.daniel"),
        ("answer", "south", "nothing.daniel", "--approve", "A"),
        ("finish", "south", "start.daniel", *files),
        ("finish", "north", "start.daniel", "north.daniel", "south.daniel"),
        ("start", "south", "--out", "x.daniel"),
        ("start", "north", "--key", "none.key", "--out", "x.daniel"),
        ("fit", "north", "north"),
        ("status", "nowhere"),
        ("inspect", "north.csv"),
    ):
        text = run(*arguments, code=2)
        assert text.startswith("daniel: ") and text.count("\n") == 1, text
    assert not Path("x.daniel").exists() and not Path("model").exists()


def test_mutated_files_leave_no_trace(answered):
    """Cut, flipped, swapped, replayed and hostile files through the commands that read them."""
    start, answer = (Path(f"{name}.daniel").read_bytes() for name in ("start", "south"))
    rng = random.Random(3)
    flipped = bytearray(answer)
    flipped[rng.randrange(len(flipped))] ^= 4
    other = Path("study.toml").read_text().replace("name = 'trial'", "name = 'other'")
    Path("other.toml").write_text(other)
    run("start", "north", "--study", "other.toml", "--out", "replay.daniel")
    wrong = {
        "cut": answer[: len(answer) // 2],
        "flipped": bytes(flipped),
        "swapped": answer.replace(b'\\"site\\":\\"south\\"', b'\\"site\\":\\"north\\"'),
        "replay": Path("replay.daniel").read_bytes(),
        "header": (1 << 40).to_bytes(8, "little") + answer[8:],
        "json": (1 << 16).to_bytes(8, "little") + b"[" * (1 << 16),
        "empty": b"",
    }
    assert all(data != answer for data in wrong.values())
    for name, data in wrong.items():
        Path(f"{name}.daniel").write_bytes(data)
    before = {path: path.stat().st_mtime_ns for path in answered.rglob("*")}
    for name in wrong:
        for arguments in (
            ("finish", "north", "start.daniel", "north.daniel", f"{name}.daniel", "east.daniel"),
            ("finish", "north", f"{name}.daniel", "north.daniel", "south.daniel", "east.daniel"),
            ("answer", "east", f"{name}.daniel", "--out", "x.daniel", "--approve", "Ada"),
        ):
            text = run(*arguments, code=2)
            assert text.startswith("daniel: ") and text.count("\n") == 1, text
    assert {path: path.stat().st_mtime_ns for path in answered.rglob("*")} == before
    assert start == Path("start.daniel").read_bytes()


def test_records_of_another_recipe_are_refused(here):
    text = Path("study.toml").read_text()
    Path("other.toml").write_text(text + "[window]\nmonths = 12\n")
    assert "other windows" in run("start", "north", "--study", "other.toml", code=2)
    Path("later.toml").write_text(text.replace("version = 1\n", "version = 1\nepoch = 2\n"))
    run("start", "north", "--study", "later.toml")  # epoch and roster do not change records


def test_inspect_explains_every_file(answered):
    run("finish", "north", "start.daniel", *(f"{n}.daniel" for n in ("north", "south", "east")))
    run("answer", "south", "start.daniel", "--approve", "Ada", "--seal", "--out", "closed.daniel")
    said = {
        "start.daniel": ("A start of 'north'", "no record", "hub"),
        "south.daniel": ("An answer (masked) of 'south'", "about 3", "not checked", "random"),
        "closed.daniel": ("sealed",),
        "model": ("A model folder", "Masked"),
        "model/model.safetensors": ("A model.", "no record"),
        "model/report.json": ("epoch 1",),
        "north": ("A site folder", "must not leave"),
        "north/site.json": ("A site folder",),
        "north/study.json": ("study 'trial'",),
        "study.toml": ("A study", "masked", "north (hub)"),
        "north.key": ("private keys of 'north'",),
        "south.log": ("release log",),
    }
    for name in ("report.md", "embedding.tsv", "embedding.parquet", "codes.tsv"):
        said[f"model/{name}"] = ("code list",) if name == "codes.tsv" else ("model folder",)
    for path in Path("north").iterdir():
        if f"north/{path.name}" not in said:
            said[f"north/{path.name}"] = ("leave",) if path.name != "codes.tsv" else ("code list",)
    for name, words in said.items():
        text = run("inspect", name)
        assert all(word in text for word in words), text
    run("export", "model", "--out", "vectors")
    Path("report.html").write_text("<!doctype html>")
    Path("gg.cyjs").write_text("{}")
    for name in ("vectors", "report.html", "gg.cyjs"):
        text = run("inspect", name, code=2)
        assert f"{name} is none of what can be explained (messages, studies, site " in text
    Path("cut.daniel").write_bytes(Path("south.daniel").read_bytes()[:100])
    assert "ask for it again" in run("inspect", "cut.daniel", code=2)
    secret = json.loads(Path("north.key").read_text())["signing"]
    assert secret not in run("inspect", "north.key")
    assert "valid: it is from 'south'" in run("inspect", "south.daniel", "--study", "study.toml")
    assert messages.read(Path("south.daniel").read_bytes()).sha256 in describe(Path("south.daniel"))


def test_inspect_says_of_noise_what_is_true(make):
    """With noise there is no floor, masked or open; the start's b is no sum."""
    for release in ("masked", "open"):
        network = make(release=release, clip="auto", epsilon=4.0)
        start = network.start()
        parcel = protocol.preview(
            network.sites["south"], network.study, start, network.keys["south"]
        )
        _, report = network.finish(start, network.answers(start))
        for text in (describe_parcel(parcel), report.to_markdown()):
            assert "fewer than 11" not in text and "rare codes too" in text
    plain = make()
    parcel = protocol.preview(plain.hub, plain.study, plain.start(), plain.keys["north"])
    assert "drops codes of fewer than 11" in describe_parcel(parcel)


def test_a_message_takes_the_place_of_its_own_kind_only(answered):
    for out in ("south.key", "start.daniel", "south.log"):
        before = Path(out).read_bytes()
        said = run("answer", "south", "start.daniel", "--approve", "A", "--out", out, code=2)
        assert "exists already" in said and Path(out).read_bytes() == before
    assert "exists already" in run("start", "north", "--out", "south.daniel", code=2)
    for seal in ([], ["--seal"], ["--seal"]):
        text = run("answer", "south", "start.daniel", "--approve", "A", "--out", "again", *seal)
        assert hashlib.sha256(Path("again").read_bytes()).hexdigest()[:12] in text
    run("start", "north", "--out", "start.daniel")


def test_a_very_large_answer_gives_its_place_to_the_next(answered):
    """Above 23,000 codes a masked one has more than 2 GiB: a file with a hole stands for it."""
    with Path("south.daniel").open("r+b") as file:
        file.truncate(3 << 30)
    run("answer", "south", "start.daniel", "--approve", "A", "--out", "south.daniel")
    assert Path("south.daniel").stat().st_size < 1 << 20


def test_an_open_study_counts_the_hub_without_its_answer(here):
    text = (
        Path("study.toml").read_text().replace("[codes]", "[disclosure]\nrelease = 'open'\n[codes]")
    )
    Path("open.toml").write_text(text)
    options = ["--study", "open.toml"]
    run("start", "north", *options)
    run("answer", "south", "start.daniel", *options, "--approve", "A", "--out", "south.daniel")
    run("finish", "north", "start.daniel", "south.daniel", *options)
    assert folder.read_model(Path("model")).sites_ == ["north", "south"]
    rows = {row.site: row.state for row in folder.status(Path("."), Study.load("open.toml"))}
    assert rows == {"north": "own", "south": "used", "east": "missing"}


def test_sealed_answers_through_the_commands(here):
    run("start", "north")
    for name in ("north", "south", "east"):
        run("answer", name, "start.daniel", "--seal", "--approve", "A", "--out", f"{name}.daniel")
    files = [f"{name}.daniel" for name in ("north", "south", "east")]
    run("finish", "north", "start.daniel", *files)
    assert "sealed" in run("status", ".")
    assert run("status", ".", "--key", "north.key").count(" used ") == 3


def test_rounds_through_the_commands(here):
    study = Path("study.toml").read_text().replace("version = 1\n", "version = 1\nrounds = 2\n")
    Path("two.toml").write_text(study)
    model = []
    for number in ("1", "2"):
        options = ["--study", "two.toml"]
        run("start", "north", *options, "--round", number, *model, "--out", f"s{number}.daniel")
        files = [f"{name}{number}.daniel" for name in ("north", "south", "east")]
        for name, file in zip(("north", "south", "east"), files, strict=True):
            start = f"s{number}.daniel"
            run("answer", name, start, *options, "--out", file, "--approve", "Ada")
        run("finish", "north", f"s{number}.daniel", *files, *options, "--out", f"m{number}")
        model = ["--model", f"m{number}"]
    assert folder.read_report(Path("m2")).round == 2
    again = ("start", "north", "--study", "two.toml", "--round", "2", "--out", "x.daniel")
    assert "round 2 of 'trial'" in run(*again, "--model", "m2", code=2)
    other = Path("two.toml").read_text().replace("name = 'trial'", "name = 'other'")
    Path("other.toml").write_text(other)
    again = ("start", "north", "--study", "other.toml", "--round", "2", "--out", "x.daniel")
    assert "round 1 of 'trial'" in run(*again, "--model", "m1", code=2)


def test_validate_gives_aggregates_only(hospitals, make, tmp_path):
    sites = [hospitals.root / name for name in hospitals.names]
    folder.fit(sites, hospitals.study, tmp_path / "model")
    out = tmp_path / "scores.json"
    text = run("validate", tmp_path / "model", sites[2], "--out", out)
    assert run("validate", tmp_path / "model", sites[2], "--out", out) == text  # its own, again
    scores = json.loads(out.read_text())
    (tmp_path / "events.csv").write_text("patient,date,code\n")
    said = run("validate", tmp_path / "no", sites[2], "--out", tmp_path / "events.csv", code=2)
    assert "events.csv exists already and is something else: choose another name." in said
    assert 0 < scores["records"] <= 300 and scores["records"] % 10 == 0
    assert scores["loss"]["the model"] < scores["loss"]["prevalences of this site alone"]
    assert "Correlation of code cosines" in text
    own, fitted = (scores["loss"][name] for name in (ALONE, ADAPTED))
    assert f"{'worse' if fitted > own else 'better'} than a fit to this site alone" in text
    assert folder.of_another_study(tmp_path / "model", sites[2]) == ""
    stored = tmp_path / "model" / folder.REPORT
    name = hospitals.study.name
    stored.write_text(stored.read_text().replace(json.dumps(name), json.dumps("another")))
    assert repr(name) in folder.of_another_study(tmp_path / "model", sites[2])
    assert all(0.5 < group["ratio"] < 2 for group in scores["calibration"])
    # The losses against plain numpy.
    model, matrix = (
        Daniel.load(tmp_path / "model" / "model.safetensors"),
        folder.read_site(sites[2]),
    )
    patient = np.unique(matrix.patients, return_inverse=True)[1]
    n = patient.max() + 1
    test = ~(np.random.default_rng(0).permutation(n) < n // 2)[patient]
    Z = matrix.Z.toarray()
    P = model.conditional_proba(matrix)[test]
    loss = -np.where(Z[test] > 0, np.log(P), np.log1p(-P)).sum(axis=1).mean()
    assert scores["loss"]["the model"] == pytest.approx(loss, rel=1e-5)
    mean = (Z[~test].sum(axis=0) + 0.5) / ((~test).sum() + 1)
    alone = -np.where(Z[test] > 0, np.log(mean), np.log1p(-mean)).sum(axis=1).mean()
    assert scores["loss"]["prevalences of this site alone"] == pytest.approx(alone, rel=1e-5)
    with pytest.raises(DanielError, match="too few"):
        validate(model, matrix, floor=60)


def test_validate_leaves_groups_of_few_patients_out(hospitals):
    model = Daniel(random_state=0).fit(folder.read_site(hospitals.root / "north"))
    Z = folder.read_site(hospitals.root / "east").Z
    patient = np.arange(Z.shape[0]) // 3
    observed, P = Z.toarray(), model.conditional_proba(Z)
    left_out = 0
    for floor in (1, 80):
        expected = {}
        for low, high in pairwise(EDGES):
            inside = (low <= P) & (high > P)
            with_code, without = (
                set(patient[(inside & (observed == z)).any(axis=1)]) for z in (1, 0)
            )
            cells = min(observed[inside].sum(), (1 - observed[inside]).sum())
            if min(len(with_code), len(without)) >= floor:
                expected[low] = observed[inside].sum() / P[inside].sum()
            else:
                left_out += cells >= floor  # enough cells, but of too few patients
        found = {group.low: group.ratio for group in _calibration(model, Z, patient, floor)}
        assert found == pytest.approx(expected)
    assert expected and left_out


# --- files ----------------------------------------------------------------------------------------


def test_files_are_bounded_and_whole(tmp_path):
    path = tmp_path / "a"
    write_file(path, b"123")
    assert read_file(path, 3) == b"123"
    with pytest.raises(FormatError, match="at most 2"):
        read_file(path, 2)
    with pytest.raises(FormatError, match="no file"):
        read_file(tmp_path / "b", 2)
    with pytest.raises(InputError, match="does not exist"):
        write_file(tmp_path / "none" / "a", b"")
    (tmp_path / ".a.999999999.part").write_bytes(b"left by a killed run")
    write_file(path, b"4")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    (tmp_path / ".a.old.999999999.part").write_bytes(b"left by a killed run")
    write_file(path.rename(tmp_path / "a.old"), b"5")
    assert [p.name for p in tmp_path.iterdir()] == ["a.old"]


def test_folders_replace_their_own_kind_only(tmp_path):
    out = tmp_path / "model"
    for number in ("1", "2"):
        with new_folder(out, "mark") as part:
            (part / "mark").write_text(number)
        assert (out / "mark").read_text() == number
    with pytest.raises(RuntimeError), new_folder(out, "mark") as part:
        (part / "mark").write_text("3")
        raise RuntimeError
    assert (out / "mark").read_text() == "2"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    with pytest.raises(InputError, match="something else"), new_folder(out, "other"):
        pass
    # What a killed run left that had the number of this process, as in a container.
    (tmp_path / f".model.new.{os.getpid()}.part").mkdir()
    with new_folder(out, "mark") as part:
        (part / "mark").write_text("4")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    os.replace(out, tmp_path / f".model.old.{os.getpid()}.part")
    with pytest.raises(RuntimeError), new_folder(out, "mark"):
        raise RuntimeError
    assert (out / "mark").read_text() == "4"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_an_older_folder_stays_if_the_newer_cannot_take_its_place(tmp_path, monkeypatch):
    out, replace = tmp_path / "model", os.replace
    with new_folder(out, "mark") as part:
        (part / "mark").write_text("older")

    def refusing(source, target):
        if ".new." in source.name:
            raise PermissionError(errno.EPERM, "no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refusing)
    with pytest.raises(InputError, match="cannot be written"), new_folder(out, "mark") as part:
        (part / "mark").write_text("newer")
    assert (out / "mark").read_text() == "older"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_new_folder_is_on_the_disk_before_the_older_one_goes(tmp_path, disk, monkeypatch):
    out = tmp_path / "model"
    for _ in range(2):
        disk.clear()
        with new_folder(out, "mark") as part:
            (part / "mark").write_text("text")
            (part / "in").mkdir()
            (part / "in" / "another").write_text("text")
            (part / "link").symlink_to(tmp_path / "nowhere")
    number = {name: (out / name).stat().st_ino for name in (".", "mark", "in", "in/another")}
    assert set(disk[: disk.index("renamed")]) == set(number.values())
    assert disk[disk.index("renamed") :] == [
        *("renamed", "renamed", tmp_path.stat().st_ino),
        "renamed",  # and the older one is removed
    ]


def test_the_state_goes_when_the_model_is_on_the_disk(hospitals, tmp_path, disk, monkeypatch):
    unlink = Path.unlink

    def removed(path, **options):
        if path.name == ".model.state.1":
            disk.append("state removed")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", removed)
    sites = [hospitals.root / name for name in hospitals.names]
    folder.fit(sites, hospitals.study, tmp_path / "model")
    assert disk.pop() == "state removed"
    end = len(disk)
    last = end - disk[:end][::-1].index("renamed")
    assert tmp_path.stat().st_ino in disk[last:end]
    assert {path.stat().st_ino for path in (tmp_path / "model").iterdir()} <= set(disk[:last])


def test_folders_that_cannot_be_forced_to_the_disk(tmp_path, monkeypatch):
    """As on some network drives; a file that cannot be leaves the older folder in its place."""
    fsync, failing = os.fsync, {"folder": errno.EINVAL}

    def refusing(handle):
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        if kind in failing:
            raise OSError(failing[kind], "no")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refusing)
    out = tmp_path / "model"
    with new_folder(out, "mark") as part:
        (part / "mark").write_text("older")
    for kind in ("file", "folder"):
        failing.clear()
        failing[kind] = errno.EIO  # the disk itself
        with pytest.raises(InputError, match="cannot be written"), new_folder(out, "mark") as part:
            (part / "mark").write_text("newer")
        assert (out / "mark").read_text() == "older"
        assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_only_an_older_folder_of_the_same_kind_is_put_back(tmp_path):
    """The half-written site folder "model.old" of a killed run has the same name."""
    left = tmp_path / ".model.old.999999999.part"
    left.mkdir()
    (left / "half").write_text("a site folder")
    with pytest.raises(RuntimeError), new_folder(tmp_path / "model", "mark"):
        raise RuntimeError
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_folder_is_replaced_and_its_folder_stays(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "mark").write_text("older")
    (tmp_path / "model").symlink_to(tmp_path / "far")
    with new_folder(tmp_path / "model", "mark") as part:
        (part / "mark").write_text("newer")
    assert (tmp_path / "model" / "mark").read_text() == "newer"
    assert (tmp_path / "far" / "mark").read_text() == "older"
    assert {p.name for p in tmp_path.iterdir()} == {"far", "model"}
