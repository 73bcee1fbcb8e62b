"""`daniel new`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def new(
    out: Path = typer.Option(Path("study.toml"), help="The study file to write."),
    name: str = typer.Option("my study", help="Name of the study."),
) -> None:
    """Write a commented study file: what all sites agree on."""
    from daniel.study import Study

    Study(name=name).write(out)
    typer.echo(
        f"Wrote {out}. Edit it, then run: "
        f"daniel prepare SOURCE --study {out} --site NAME --out NAME"
    )
