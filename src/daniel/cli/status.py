"""`daniel status`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def status(
    folder: Path = typer.Argument(help="The folder with the start and the answers."),
    study: Path = typer.Option(Path("study.toml"), help="The study file."),
    key: Path | None = typer.Option(None, help="The hub's key file, for sealed answers."),
) -> None:
    """Whose answers are here, valid, used, late or refused."""
    from daniel.federated.folder import status as run
    from daniel.study import Study

    for row in run(folder, Study.load(study), key=key):
        line = f"{row.site:20} {row.role:5} {row.state:8} {row.file}"
        typer.echo(f"{line}: {row.note}" if row.note else line)
