"""`daniel start`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def start(
    site: Path = typer.Argument(help="The hub's site folder."),
    study: Path = typer.Option(Path("study.toml"), help="The study file."),
    out: Path = typer.Option(Path("start.daniel"), help="The start to write."),
    key: Path | None = typer.Option(None, help="The hub's key file; NAME.key unless given."),
    model: Path | None = typer.Option(None, help="Later rounds: the model of the round before."),
    round: int = typer.Option(1, help="Number of the round."),
    scheduler: str | None = typer.Option(None, help="Address of a Dask cluster to do the sums."),
) -> None:
    """At the hub: write the start, which every site answers."""
    from daniel.cli.watch import watched
    from daniel.cluster import distributed
    from daniel.federated.folder import write_start
    from daniel.study import Study

    agreed = Study.load(study)
    with distributed(scheduler), watched("fitting the start") as line:
        message = write_start(site, agreed, out, key=key, model=model, round=round, progress=line)
    typer.echo(f"Wrote {out} ({message.sha256[:12]}). Send it to every site of the roster.")
