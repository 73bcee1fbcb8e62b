"""`daniel demo`."""

import typer

from daniel.cli.app import app


@app.command()
def demo(
    records: int = typer.Option(20_000, help="Records of both sites together."),
    seed: int = typer.Option(0, help="Seed of the simulated study."),
) -> None:
    """Fit a simulated two-site study and compare it with its truth (under a minute)."""
    from daniel.demo import run  # here, so that `daniel --version` answers at once

    run(records=records, seed=seed)
