"""`daniel demo`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def demo(
    out: Path = typer.Option(Path("demo"), help="Folder for everything that the demo makes."),
    patients: int = typer.Option(3_000, help="Patients of each hospital."),
    codes: int = typer.Option(400, help="Codes of the study."),
    seed: int = typer.Option(0, help="Seed of the synthetic patients."),
) -> None:
    """Two synthetic hospitals, from events to one report (under three minutes)."""
    from daniel.demo import run  # here, so that `daniel --version` answers at once

    run(out, patients=patients, codes=codes, seed=seed)
