"""What people start: the process of a kit, and one exchange between the hub and its sites."""

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from daniel.errors import DanielError, InputError, NetworkError
from daniel.federated.files import read_file
from daniel.federated.flare import kits
from daniel.federated.flare.kits import ANSWERED, WAITING
from daniel.federated.flare.provision import (
    ADMIN,
    CONTROLLER,
    EXECUTOR,
    organisation,
    require_flare,
)

# FLARE's warnings would stand between our sentences, unless the caller has set up logging.
logging.getLogger("nvflare").addHandler(logging.NullHandler())

Progress = Callable[[str, str], None]  # called with a site and its new state

# Every wait of FLARE that an exchange meets, in seconds; its own defaults are not relied on.
SITE_TIMEOUTS = {
    "runner_sync_timeout": 10.0,
    "max_runner_sync_timeout": 120.0,
    "task_check_timeout": 30.0,
    "task_check_interval": 5.0,
    "get_task_timeout": 600.0,
    "submit_task_result_timeout": 120.0,
    "job_heartbeat_interval": 10.0,
    "end_run_readiness_timeout": 10.0,
}
CONNECT, COMMAND = 20.0, 30.0
SPARE = 180.0  # beyond the sites' own time: to deploy the job, and to end it


@dataclass(frozen=True)
class Exchange:
    """What came back: the folder of the answers, and the state of each site."""

    folder: Path
    states: dict[str, str]

    @property
    def answers(self) -> list[Path]:
        return sorted(self.folder.glob("answers/*.daniel"))

    @property
    def missing(self) -> dict[str, str]:
        return {site: state for site, state in self.states.items() if state != ANSWERED}

    def check(self) -> None:
        """NetworkError that names the sites whose answer is not here."""
        if self.missing:
            sites = ", ".join(f"{site} ({state})" for site, state in self.missing.items())
            raise NetworkError(
                f"The answer of {sites} is missing: talk to the site, then run this again; only "
                "missing sites are asked."
            )


def command(kit: Path) -> list[str]:
    """The command that runs a kit's process, as the kit's own start.sh does."""
    require_flare()
    kit = kit.absolute()
    for kind in ("server", "client"):
        config = kit / "startup" / f"fed_{kind}.json"
        if config.exists():
            break
    else:
        raise InputError(f"{kit} is no start-up kit of `daniel network init`.")
    who = ["org=hub"]
    if kind == "client":
        name = kits.read_json(config)["client"]["fqsn"]
        who = [f"uid={name}", f"org={organisation(name)}"]
    return [
        *(sys.executable, "-u", "-m", f"nvflare.private.fed.app.{kind}.{kind}_train"),
        *("-m", str(kit), "-s", config.name),
        *("--set", "secure_train=true", "config_folder=config", *who),
    ]


def prepare_kit(kit: Path) -> None:
    """Check what a person filled in, and give the server's store its place in the kit."""
    if (kit / kits.SETTINGS).exists():
        site = kits.Kit(kit)
        site.study()
        for name in (site.settings.records, site.settings.private_key):
            if not site.path(name).exists():
                raise InputError(f"{kit / kits.SETTINGS} names {name}, which does not exist.")
    resources = kits.read_json(kit / "local/resources.json")
    if "snapshot_persistor" in resources:
        store = kit.absolute() / "store"
        snapshots = resources["snapshot_persistor"]["args"]["storage"]["args"]
        snapshots["root_dir"] = str(store / "snapshots")
        for component in resources["components"]:
            if component["id"] == "job_manager":
                component["args"]["uri_root"] = str(store / "jobs")
        kits.write_json(kit / "local/resources.json", resources)


def join(kit: Path) -> None:
    """Become the process of a kit, in the foreground, until it is stopped."""
    arguments = command(kit)
    prepare_kit(kit)
    os.execv(arguments[0], arguments)


def exchange(
    network: Path,
    start: Path,
    *,
    timeout: int = 3600,
    lost_after: int = 60,
    progress: Progress | None = None,
) -> Exchange:
    """Send a start to all sites that have not answered it, and wait for their answers.

    network    the folder of `daniel network init`, on the machine of the server
    timeout    seconds that a site has to compute and to send
    lost_after seconds after which a site whose process has died is given up
    """
    require_flare()
    data = read_file(start, kits.LARGEST_START)
    sites = kits.read_json(network / "network.json")["sites"]
    folder = kits.exchange_folder(network / "server", kits.digest(data))
    kits.write_bytes(folder / "start.daniel", data)
    states = {s: ANSWERED if _answer(folder, s).exists() else WAITING for s in sites}
    asked = [site for site in sites if states[site] != ANSWERED]
    if asked:
        kits.write_json(folder / "status.json", dict.fromkeys(asked, WAITING))
        job = _job(kits.digest(data), asked, timeout, lost_after)
        note = _run(network / "admin", job, timeout + lost_after + SPARE, folder, progress)
        states |= kits.read_json(folder / "status.json")
        states = {s: note if state == WAITING else state for s, state in states.items()}
    return Exchange(folder, states)


def _answer(folder: Path, site: str) -> Path:
    return folder / "answers" / f"{site}.daniel"


def _job(start: str, sites: list[str], timeout: int, lost_after: int) -> dict[str, Any]:
    """The job as files: names of installed classes and numbers, no code."""
    controller = {"start": start, "sites": sites, "timeout": timeout}
    server = {
        "format_version": 2,
        "dead_client_grace_period": float(lost_after),
        "dead_client_check_lead_time": float(lost_after),
        "workflows": [{"id": "hub", "path": CONTROLLER, "args": controller}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    site = {
        "format_version": 2,
        **SITE_TIMEOUTS,
        "executors": [{"tasks": ["answer"], "executor": {"path": EXECUTOR, "args": {}}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    meta = {
        "name": "daniel",
        "min_clients": 1,
        "resource_spec": {},
        "deploy_map": {"hub": ["server"], "site": sites},
    }
    return {
        "meta.json": meta,
        "hub/config/config_fed_server.json": server,
        "site/config/config_fed_client.json": site,
    }


def _run(
    admin: Path, job: dict[str, Any], seconds: float, folder: Path, progress: Progress | None
) -> str:
    """Submit a job and follow it until every site has a state; how it ended, for those without."""
    from nvflare.fuel.flare_api.flare_api import MonitorReturnCode

    seen: dict[str, str] = {}

    def waits(*_: object) -> bool:
        for site, state in kits.read_json(folder / "status.json").items():
            if progress and seen.get(site) != state:
                progress(site, state)
            seen[site] = state
        return WAITING in seen.values()

    with tempfile.TemporaryDirectory() as place, Session(admin) as session:
        for name, content in job.items():
            kits.write_bytes(Path(place, "daniel", name), json.dumps(content).encode())
        with connected():
            job_id = session.submit_job(str(Path(place, "daniel")))
        stopped = True
        try:
            with connected():
                code, _ = session.monitor_job_and_return_job_meta(
                    job_id, timeout=seconds, poll_interval=0.5, cb=waits
                )
            stopped = code == MonitorReturnCode.TIMEOUT
        finally:
            if stopped:  # out of time, or interrupted: the sites must not go on
                with suppress(Exception):
                    session.abort_job(job_id)
        waits()
    return "no answer, the exchange was stopped" if stopped else "never asked"


@contextmanager
def connected() -> Iterator[None]:
    """Any error of FLARE's connection as one sentence."""
    try:
        yield
    except DanielError:
        raise
    except Exception as error:
        raise NetworkError(
            f"The server does not answer ({type(error).__name__}): start it with "
            "`daniel network join` and look at its log."
        ) from None


class Session:
    """A connection of the hub's operator, as a context."""

    def __init__(self, admin: Path) -> None:
        self.admin = admin

    def __enter__(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        with connected(), redirect_stdout(StringIO()):  # FLARE prints that it connects
            self.session = new_secure_session(
                ADMIN, str(self.admin.absolute()), timeout=CONNECT, command_timeout=COMMAND
            )
        return self.session

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self.session.close()


def wait_for_sites(network: Path, seconds: float = 60.0) -> set[str]:
    """The sites that are connected, as soon as all of them are, or at the end of the time."""
    require_flare()
    wanted = set(kits.read_json(network / "network.json")["sites"])
    end = time.monotonic() + seconds
    while True:
        try:
            with Session(network / "admin") as session:
                here = {client.name for client in session.get_connected_client_list()}
        except NetworkError:
            here = set()
        if wanted <= here or time.monotonic() > end:
            return here & wanted
        time.sleep(1.0)
