"""`daniel finish`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def finish(
    site: Path = typer.Argument(help="The hub's site folder."),
    start: Path = typer.Argument(help="The start that was answered."),
    answers: list[Path] = typer.Argument(help="The answers, in any order."),
    study: Path = typer.Option(Path("study.toml"), help="The study file."),
    out: Path = typer.Option(Path("model"), help="The model folder to write."),
    key: Path | None = typer.Option(None, help="The hub's key file, for sealed answers."),
    scheduler: str | None = typer.Option(None, help="Address of a Dask cluster to do the sums."),
) -> None:
    """At the hub: verify and add up the answers, fit the model, and report who contributed."""
    from daniel.cli.watch import watched
    from daniel.cluster import distributed
    from daniel.federated.folder import write_model
    from daniel.study import Study

    agreed = Study.load(study)
    with distributed(scheduler), watched("fitting") as line:
        report = write_model(site, agreed, start, answers, out, key=key, progress=line)
    typer.echo(report.to_markdown())
    typer.echo(f"Wrote {out}.")
