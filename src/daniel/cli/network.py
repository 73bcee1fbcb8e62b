"""`daniel network`: the round over NVIDIA FLARE."""

from pathlib import Path

import typer

from daniel.cli.app import app

network = typer.Typer(
    name="network", help="The round over NVIDIA FLARE, see docs/network.md.", no_args_is_help=True
)
app.add_typer(network)


@network.command()
def init(
    study: Path = typer.Option(Path("study.toml"), help="The study file, with its roster."),
    host: str = typer.Option(..., help="Name by which the sites reach the hub's server."),
    port: int = typer.Option(8002, help="The one port that the server listens on."),
    out: Path = typer.Option(Path("network"), help="The folder to make."),
) -> None:
    """At the hub: make certificates and a start-up kit for each site of the roster."""
    from daniel.federated.flare.provision import init as make
    from daniel.study import Study

    for kit in make(Study.load(study), out, host, port):
        typer.echo(kit)


@network.command()
def join(kit: Path = typer.Argument(help="The start-up kit.")) -> None:
    """Run a kit's process in the foreground: the server at the hub, a client at a site."""
    from daniel.federated.flare.run import join as become

    become(kit)


@network.command()
def approve(
    kit: Path = typer.Argument(help="The site's start-up kit."),
    by: str = typer.Option(..., help="Who approves; stands in the site's release log."),
    start: Path | None = typer.Option(
        None, help="Approve the answer to this start only; otherwise to any start of the study."
    ),
) -> None:
    """At a site: allow one answer to leave. Without it the site refuses."""
    from daniel.federated.flare.kits import Kit

    Kit(kit).approve(by, start)
    typer.echo(f"{by} approved; remove {kit / 'local/approval.json'} to withdraw.")


@network.command()
def run(
    start: Path = typer.Argument(help="The start file that `daniel start` wrote."),
    folder: Path = typer.Option(Path("network"), "--network", help="The folder of `init`."),
    timeout: int = typer.Option(3600, help="Seconds that a site has to compute and to send."),
) -> None:
    """At the hub: send the start to the sites, and wait for their answers."""
    from daniel.federated.flare.run import exchange

    done = exchange(
        folder, start, timeout=timeout, progress=lambda site, state: typer.echo(f"{site}: {state}")
    )
    for path in done.answers:
        typer.echo(path)
    done.check()
