"""A site's kit without a network: approval, inbox, outbox; and what `init` refuses."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daniel.cli import app
from daniel.errors import FormatError, InputError, MissingDependencyError, ReleaseError
from daniel.federated.flare import kits, provision, run
from daniel.federated.flare.kits import Kit
from daniel.study import Codes, Site, Study

STUDY = Study(
    name="kits",
    codes=Codes(names=("A:1", "A:2")),
    sites=(Site("hub", "hub"), Site("north"), Site("south")),
)


@pytest.fixture
def kit(tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / kits.SETTINGS).write_text(provision.SETTINGS.format(hash=STUDY.hash, name="north"))
    STUDY.write(tmp_path / "study.toml")
    return Kit(tmp_path)


def write_backwards(kit: Kit, start: Path, out: Path, by: str) -> None:
    out.write_bytes(by.encode() + start.read_bytes()[::-1])


def refuse(*_: object) -> None:
    raise AssertionError("asked to make an answer")


def test_the_settings_that_init_writes_can_be_read(kit):
    assert kit.settings == kits.Settings("study.toml", "records", "north.key")


def test_without_approval_the_start_is_kept_and_nothing_is_made(kit):
    with pytest.raises(ReleaseError, match="Nobody has approved"):
        kit.answer(b"start", refuse)
    assert [path.read_bytes() for path in kit.folder.glob("inbox/*")] == [b"start"]
    assert not (kit.folder / "outbox").exists()


def test_an_approved_answer_is_made_once_and_repeated(kit):
    kit.approve("Dr. N")
    path = kit.answer(b"start", write_backwards)
    assert path.read_bytes() == b"Dr. Ntrats"
    assert kit.answer(b"start", refuse) == path
    kit.withdraw()
    with pytest.raises(ReleaseError, match="Nobody"):
        kit.answer(b"start", refuse)


def test_an_approval_of_one_start_holds_for_no_other(kit, tmp_path):
    (tmp_path / "seen").write_bytes(b"seen")
    kit.approve("Dr. N", tmp_path / "seen")
    assert kit.answer(b"seen", write_backwards).exists()
    with pytest.raises(ReleaseError, match="another start"):
        kit.answer(b"unseen", refuse)


def test_an_approval_ends_with_the_epoch(kit):
    kit.approve("Dr. N")
    (kit.folder / "study.toml").unlink()
    replace(STUDY, epoch=2).write(kit.folder / "study.toml")
    with pytest.raises(ReleaseError, match="another study or epoch"):
        kit.answer(b"start", refuse)


@pytest.mark.parametrize("content", ["{}", "[]", '{"by": ""}', "{", "null"])
def test_a_damaged_approval_approves_nothing(kit, content):
    (kit.folder / kits.APPROVAL).write_text(content)
    with pytest.raises((ReleaseError, FormatError)):
        kit.answer(b"start", refuse)


def test_an_approval_needs_a_name(kit):
    with pytest.raises(InputError, match="no name"):
        kit.approve("  ")
    assert not (kit.folder / kits.APPROVAL).exists()


def test_the_inbox_keeps_the_newest_starts_only(kit):
    for i in range(kits.INBOX + 3):
        with pytest.raises(ReleaseError):
            kit.answer(f"start {i}".encode(), refuse)
    kept = {path.read_bytes() for path in kit.folder.glob("inbox/*")}
    assert kept == {f"start {i}".encode() for i in range(3, kits.INBOX + 3)}


@pytest.mark.parametrize(
    ("study", "host", "word"),
    [
        (replace(STUDY, sites=()), "localhost", "roster"),
        (replace(STUDY, sites=(*STUDY.sites, Site("../up"))), "localhost", "letters"),
        (replace(STUDY, sites=(*STUDY.sites, Site("St. Mary"))), "localhost", "letters"),
        (STUDY, "not a host", "address"),
    ],
)
def test_init_refuses_what_no_network_can_have(study, host, word, tmp_path):
    with pytest.raises(InputError, match=word):
        provision.init(study, tmp_path / "network", host)
    assert list(tmp_path.iterdir()) == []


def test_init_makes_kits_with_a_closed_policy(tmp_path):
    pytest.importorskip("nvflare", reason="the network needs the extra `network`")
    STUDY.write(tmp_path / "study.toml")
    out = tmp_path / "network"
    options = ["--study", str(tmp_path / "study.toml"), "--host", "hub.example.org"]
    result = CliRunner().invoke(app, ["network", "init", *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == {
        *("admin", "authority", "network.json", "server", "sites")
    }
    assert {path.name for path in (out / "sites").iterdir()} == {"north", "south"}  # not the hub
    for place in out.glob("sites/*"):
        rights = kits.read_json(place / "local/authorization.json")["permissions"]
        assert set(rights) == {"project_admin"}
        for right in ("byoc", "shell_commands", "operate", "download_job"):
            assert rights["project_admin"][right] == "none"
        resources = kits.read_json(place / "local/resources.json")
        assert resources["class_allow_list"] == [provision.EXECUTOR]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert resources["allow_log_streaming"] is False
        client = kits.read_json(place / "startup/fed_client.json")
        assert client["servers"][0]["service"]["target"] == "hub.example.org:8002"
        assert client["client"]["connection_security"] == "mtls"
        assert client["require_signed_jobs"] is True
    private = [*out.rglob("*.key"), out / "authority", out / "server", *out.glob("sites/*")]
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)
    again = CliRunner().invoke(app, ["network", "init", *options, "--out", str(out)])
    assert again.exit_code == 2


def test_join_refuses_a_kit_that_is_not_filled_in(kit):
    kits.write_json(kit.folder / "local/resources.json", {})
    with pytest.raises(InputError, match="records, which does not exist"):
        run.prepare_kit(kit.folder)
    (kit.folder / "records").mkdir()
    with pytest.raises(InputError, match=r"north\.key, which does not exist"):
        run.prepare_kit(kit.folder)


def test_join_refuses_a_folder_that_is_no_kit(tmp_path):
    pytest.importorskip("nvflare", reason="the network needs the extra `network`")
    with pytest.raises(InputError, match="no start-up kit"):
        run.command(tmp_path)


def test_missing_answers_are_named():
    done = run.Exchange(Path(), {"north": "answered", "south": "not connected"})
    with pytest.raises(ConnectionError, match=r"^The answer of south \(not connected\) is missing"):
        done.check()


def test_the_commands_of_the_page_exist():
    page = (Path(__file__).parents[2] / "docs/network.md").read_text("utf-8")
    commands = set(re.findall(r"daniel network (\w+)", page))
    assert commands == {"approve", "init", "join", "run"}
    for name in commands:
        text = CliRunner().invoke(app, ["network", name, "--help"], terminal_width=200).output
        lines = [line for line in page.splitlines() if f"daniel network {name}" in line]
        for option in re.findall(r"--[a-z]+", " ".join(lines)):
            assert option in text, (name, option)


def test_a_reply_can_name_only_a_stream_that_arrived(tmp_path):
    pytest.importorskip("nvflare", reason="the network needs the extra `network`")
    from daniel.federated.flare.hub import HubController

    hub = HubController("0" * 64, ["north"], 1)
    hub.folder, hub.incoming = tmp_path, tmp_path / "incoming"
    hub.incoming.mkdir()
    (tmp_path / "start.daniel").write_bytes(b"start")
    (hub.incoming / "abc").write_bytes(b"answer")
    for name in ("../start.daniel", "", str(tmp_path / "start.daniel"), "None", "."):
        assert not hub._keep("north", name)
    assert hub._keep("north", "abc")
    assert (tmp_path / "answers/north.daniel").read_bytes() == b"answer"
    assert (tmp_path / "start.daniel").read_bytes() == b"start"


def test_without_nvflare_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvflare", None)
    with pytest.raises(MissingDependencyError, match=r"daniel\[network\]"):
        provision.init(STUDY, tmp_path / "network", "localhost")
    assert list(tmp_path.iterdir()) == []
