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
    from daniel.cli.watch import stages
    from daniel.data.prepare import prepare as run
    from daniel.study import Study, load_maps

    agreed = Study.load(study)
    with stages() as show:
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
