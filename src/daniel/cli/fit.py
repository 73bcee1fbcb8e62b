"""`daniel fit`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def fit(
    sites: list[Path] = typer.Argument(help="Site folders, all on this machine."),
    study: Path = typer.Option(Path("study.toml"), help="The study file."),
    out: Path = typer.Option(Path("model"), help="The model folder to write."),
    scheduler: str | None = typer.Option(None, help="Address of a Dask cluster to do the sums."),
) -> None:
    """Start, answers and finish on one machine."""
    from daniel.cli.watch import watched
    from daniel.cluster import distributed
    from daniel.federated import folder
    from daniel.study import Study

    agreed = Study.load(study)
    with distributed(scheduler), watched("fitting") as line:
        report = folder.fit(sites, agreed, out, progress=line)
    if agreed.disclosure.release == "masked" and len(sites) < 3:
        typer.echo("Fewer than three sites cannot mask each other: fitted as open.", err=True)
    typer.echo(report.to_markdown())
    typer.echo(f"Wrote {out}.")
