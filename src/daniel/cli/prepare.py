"""`daniel prepare`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def prepare(
    source: str = typer.Argument(
        help="OMOP (DuckDB file, folder of tables, postgresql URL), a MEDS folder, or events as "
        "CSV or Parquet."
    ),
    study: Path = typer.Option(Path("study.toml"), help="The study file."),
    site: str = typer.Option(..., help="Name of this site."),
    out: Path = typer.Option(..., help="The site folder to make."),
    maps: Path | None = typer.Option(None, help="TOML file with the site's own \\[\\[maps]]."),
    memory: str = typer.Option("2GB", help="Memory that DuckDB may use."),
    timezone: str = typer.Option("UTC", help="The site's clock, for times that carry a zone."),
) -> None:
    """Make a site folder from a hospital's tables: records, codes, and a summary."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from daniel.data.prepare import prepare as run
    from daniel.study import Study, load_maps

    agreed = Study.load(study)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:14}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, share: float, note: str) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=1.0, note="")
            bar.update(tasks[stage], completed=share, note=note)

        text = run(
            source,
            agreed,
            site,
            out,
            memory=memory,
            timezone=timezone,
            maps=load_maps(maps) if maps else (),
            progress=show,
        )
    typer.echo(text)
