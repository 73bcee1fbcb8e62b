"""`daniel cohort`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def cohort(
    out: Path = typer.Option(..., help="The folder to make."),
    hospitals: int | None = typer.Option(None, help="Number of hospitals, 2 if not given."),
    patients: list[int] = typer.Option(
        [],
        help="Patients of each hospital, once for all or once for each; 2000 if not given.",
        show_default=False,
    ),
    records_per_patient: float | None = typer.Option(
        None, help="Mean number of half-years with records, 12 if not given."
    ),
    codes: int | None = typer.Option(
        None, help="PheCode, CCS and RxNorm codes together, 600 if not given."
    ),
    codes_per_record: float | None = typer.Option(
        None, help="Mean number of codes in a record; else 15, or a fortieth of the codes."
    ),
    events: float | None = typer.Option(
        None, help="Dated codes of all hospitals, such as 50e6: codes repeat within a half-year."
    ),
    paper: bool = typer.Option(False, "--paper", help="The size of the paper's two hospitals."),
    pure: bool = typer.Option(
        False, "--pure", help="One Ising law a hospital: no care levels, stages or hazards."
    ),
    independent_hazard: bool = typer.Option(
        False, "--independent-hazard", help="Admission and death ignore the latent patient."
    ),
    seed: int = typer.Option(0, help="Seed of everything."),
) -> None:
    """Make synthetic hospitals with a known truth, as MEDS folders."""
    from daniel.cli.watch import stages
    from daniel.data.cohort import make_cohort, read_options

    options = read_options(
        paper=paper,
        hospitals=hospitals,
        patients=patients,
        records_per_patient=records_per_patient,
        codes=codes,
        codes_per_record=codes_per_record,
        events=events,
        pure=pure,
        independent_hazard=independent_hazard,
        seed=seed,
    )
    with stages() as show:
        about = make_cohort(options, out, progress=show)
    for found in about["hospitals"]:
        typer.echo(
            f"{found['name']}: {found['patients']:,} patients, {found['records']:,} records, "
            f"{found['events']:,} events"
        )
    typer.echo(f"The truth is in {out / 'truth'}.")
