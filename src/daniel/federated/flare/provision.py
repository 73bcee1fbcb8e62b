"""A FLARE project for the study's roster: certificates, start-up kits, and the sites' policy.

    OUT/server/       the hub's server
    OUT/admin/        the hub's operator, who may ask for an exchange and nothing else
    OUT/sites/NAME/   a site's kit, to be sent to it over a safe channel: it holds a private key
    OUT/authority/    the certificate authority; keep it offline

A site's policy stands in its own kit, where the site can read and tighten it: no code from outside
(`byoc: none`), one class that a job may name, no shell commands, no logs sent.
"""

import json
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

from daniel.errors import DanielError, InputError, MissingDependencyError
from daniel.federated.flare import kits
from daniel.study import Study
from daniel.studyfile import write_text

EXECUTOR = "daniel.federated.flare.site.SiteExecutor"
CONTROLLER = "daniel.federated.flare.hub.HubController"
ADMIN = "operator@hub.daniel"
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")  # what FLARE takes as the name of a client
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
HEARTBEAT_TIMEOUT = 120  # seconds of silence after which a site counts as gone

SETTINGS = """\
# What this site keeps to itself; the hub never sees this file. Paths start at this kit's folder.

# The study file that all sites share. At the time of this kit its hash was
# {hash}
study = "study.toml"
# The site folder that `daniel prepare` made.
records = "records"
# The key file that `daniel keys` made.
private_key = "{name}.key"
"""


def init(study: Study, out: Path, host: str, port: int = 8002) -> list[Path]:
    """Provision the study's roster into a new folder; the kits in it."""
    sites = _roster(study)
    if not HOST.fullmatch(host) or not 0 < port < 65536:
        raise InputError(f"{host}:{port} is not an address: give a host name and a port.")
    out = out.absolute()
    if out.exists():
        raise InputError(f"{out} exists already: remove it first, or choose another name.")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        part.mkdir(mode=0o700, parents=True)
        _provision(part, _project(study, sites, host, port))
        _arrange(part, sites, host)
        _write_policies(part, study, sites)
        kits.write_json(part / "network.json", {"host": host, "port": port, "sites": sites})
        os.replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return [out / "server", out / "admin", *(out / "sites" / site for site in sites)]


def require_flare() -> None:
    """MissingDependencyError when nvflare is not installed."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise MissingDependencyError.of("nvflare", extra="network", purpose="The network") from None


def _roster(study: Study) -> list[str]:
    """The sites that the hub asks: all but itself."""
    sites = [site.name for site in study.sites if site.role == "site"]
    if not sites:
        raise InputError("The study has no roster: a network needs its [[sites]].")
    for name in sites:
        if not NAME.fullmatch(name):
            raise InputError(
                f"The site {name!r} cannot be named so in a network: use letters, digits, - and _."
            )
    return sites


def _project(study: Study, sites: list[str], host: str, port: int) -> dict[str, Any]:
    clients = [
        {"name": name, "type": "client", "org": organisation(name), "allow_log_streaming": False}
        for name in sites
    ]
    server = {"name": host, "type": "server", "org": "hub", "fed_learn_port": port}
    admin = {"name": ADMIN, "type": "admin", "org": "hub", "role": "project_admin"}
    implementation = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": f"daniel-{study.hash[:12]}",
        "description": study.name,
        "participants": [server, *clients, admin],
        "builders": [
            {"path": f"{implementation}.workspace.WorkspaceBuilder"},
            {
                "path": f"{implementation}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc", "require_signed_jobs": True},
            },
            {"path": f"{implementation}.cert.CertBuilder"},
        ],
    }


def organisation(name: str) -> str:
    """FLARE wants an organisation for each site; every site is its own."""
    return "site_" + re.sub(r"\W", "_", name)


def _provision(folder: Path, project: dict[str, Any]) -> None:
    """Run FLARE's own builders; its kits end up in folder/work."""
    require_flare()
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    provisioner = Provisioner(str(folder / "work"), prepare_builders(project))
    log = logging.getLogger(__name__)
    context = provisioner.provision(prepare_project(project), logger=log)
    if context.get(CtxKey.BUILD_ERROR):
        raise DanielError("FLARE could not provision the network: look at the messages above.")


def _arrange(folder: Path, sites: list[str], host: str) -> None:
    """Name the kits by what they are for, and keep the authority apart."""
    (project,) = (folder / "work").iterdir()
    made = project / "prod_00"
    (folder / "sites").mkdir(mode=0o700)
    os.replace(made / host, folder / "server")
    os.replace(made / ADMIN, folder / "admin")
    for site in sites:
        os.replace(made / site, folder / "sites" / site)
    made.rmdir()
    os.replace(project, folder / "authority")
    (folder / "work").rmdir()
    (folder / "authority").chmod(0o700)


def _write_policies(folder: Path, study: Study, sites: list[str]) -> None:
    for site in sites:
        kit = folder / "sites" / site
        kit.chmod(0o700)
        kits.write_json(kit / "local/resources.json", _site_resources(kit))
        kits.write_json(kit / "local/authorization.json", policy(operate="none"))
        write_text(kit / kits.SETTINGS, SETTINGS.format(hash=study.hash, name=site))
    server = folder / "server"
    server.chmod(0o700)
    kits.write_json(server / "local/resources.json", _server_resources(server))
    kits.write_json(server / "local/authorization.json", policy(operate="any"))


def policy(operate: str) -> dict[str, Any]:
    """What FLARE's operator may do: ask for an exchange, follow it, and end it."""
    rights = {
        "submit_job": "any",
        "clone_job": "none",
        "manage_job": "any",
        "download_job": "none",
        "view": "any",
        "operate": operate,
        "shell_commands": "none",
        "byoc": "none",
        "server-predeployed-flwr": "none",
    }
    return {"format_version": "1.0", "permissions": {"project_admin": rights}}


def _site_resources(kit: Path) -> dict[str, Any]:
    resources = _defaults(kit)
    resources["class_allow_list"] = [EXECUTOR]
    resources["allow_log_streaming"] = False
    keep = {"resource_manager", "resource_consumer", "process_launcher"}
    resources["components"] = [c for c in resources["components"] if c["id"] in keep]
    return resources


def _server_resources(kit: Path) -> dict[str, Any]:
    resources = _defaults(kit)
    resources["class_allow_list"] = [CONTROLLER]
    resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT_TIMEOUT
    resources["components"] = [c for c in resources["components"] if c["id"] != "log_receiver"]
    return resources


def _defaults(kit: Path) -> dict[str, Any]:
    """FLARE's own resources, which the kit's replace."""
    content: dict[str, Any] = json.loads((kit / "local/resources.json.default").read_text("utf-8"))
    return content
