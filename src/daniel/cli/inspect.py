"""`daniel inspect`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def inspect(
    file: Path = typer.Argument(
        help="A message, a study, a site folder, a model folder, or a file in or beside these: "
        "a key, a release log, a code list, a validation."
    ),
    study: Path | None = typer.Option(None, help="The study file, to check the signature."),
) -> None:
    """Say in plain words what a file is, who made it, and what it does not hold."""
    from daniel.federated.describe import describe
    from daniel.study import Study

    typer.echo(describe(file, None if study is None else Study.load(study)))
