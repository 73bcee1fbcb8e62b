"""`daniel validate`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def validate(
    model: Path = typer.Argument(help="A model folder, or a model file."),
    site: Path = typer.Argument(help="A site folder."),
    floor: int = typer.Option(11, min=1, help="Nothing is told of fewer patients than this."),
    out: Path | None = typer.Option(None, help="Write the numbers as JSON too."),
) -> None:
    """Score a finished model on a site's records: aggregate numbers only."""
    from daniel.data import read_site
    from daniel.federated.files import check_file, write_file
    from daniel.federated.folder import of_another_study, read_model
    from daniel.federated.validate import MARKS
    from daniel.federated.validate import validate as run

    if out is not None:
        check_file(out, MARKS)
    result = run(read_model(model), read_site(site), floor)
    if other := of_another_study(model, site):
        typer.echo(other, err=True)
    typer.echo(result.to_text())
    if out is not None:
        write_file(out, result.to_json().encode())
