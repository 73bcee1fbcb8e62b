"""`daniel widen`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def widen(
    site: Path = typer.Argument(help="The hub's site folder."),
    parents: Path = typer.Option(..., help="CSV or TSV: a code and its parent, a line each."),
    vocabulary: str = typer.Option(..., help="The vocabulary of these codes, such as PheCode."),
    least: int = typer.Option(33, min=1, help="Patients that a group should have at the hub."),
    out: Path = typer.Option(Path("groups.csv"), help="The map to write."),
) -> None:
    """Put rare codes under their parents: a map for studies with a floor at each site."""
    from daniel.data.groups import write_groups

    typer.echo(write_groups(site, parents, vocabulary, least, out))
