"""`daniel report`."""

from pathlib import Path

import typer

from daniel.cli.app import app, named


@app.command()
def report(
    model: Path = typer.Argument(help="The model folder that `daniel finish` wrote."),
    sites: list[Path] = typer.Argument(
        None, metavar="[SITE]...", help="Site folders on this machine, to evaluate the model on."
    ),
    pairs: Path | None = typer.Option(
        None, help="Known relations: .tsv, .csv or .parquet with code1, code2, relation."
    ),
    target: str | None = typer.Option(
        None, help="A code, such as PheCode:290.1: phenotyping, clusters, graph."
    ),
    outcome: list[Path] = typer.Option(
        [],
        help="What became of a site's patients: a file with patient, time, event; once for each "
        "SITE, in their order.",
        show_default=False,
    ),
    outcome_code: str | None = typer.Option(
        None,
        help="Then --outcome names what `daniel prepare` read, and this is the code of the "
        "outcome, or death.",
    ),
    outcome_name: str = typer.Option("outcome", help="How the report calls the outcome."),
    landmark: bool = typer.Option(
        True,
        help="With --outcome-code: time starts after the window of the first diagnosis, so that "
        "nothing in the record comes after the outcome; else on its first day.",
    ),
    clusters: int | None = typer.Option(
        None, min=2, help="Number of clusters.", show_default="by the silhouette"
    ),
    quantile: float = typer.Option(
        0.95, min=0.0, max=0.999, help="Graph: edges above this quantile of all couplings."
    ),
    stability: int = typer.Option(
        0,
        min=0,
        help="Graph: refit so often to patients drawn anew, and tell how often an edge came back; "
        "each takes as long as a fit.",
        show_default="no refits",
    ),
    umls: Path | None = typer.Option(
        None, help="More known relations: a folder with MRREL.RRF and MRCONSO.RRF."
    ),
    umls_through: Path | None = typer.Option(
        None,
        help="Codes that the UMLS lacks, such as PheCodes: a table source, target from those it "
        "has.",
    ),
    phecodes: bool = typer.Option(
        False, "--phecodes", help="More known relations: parents and siblings among PheCodes."
    ),
    atc: Path | None = typer.Option(
        None,
        help="More known relations: drugs of one ATC class. A table with atc_code, and code or "
        "atc_name.",
    ),
    compare: bool = typer.Option(
        False,
        "--compare",
        help="Also fit each SITE alone, all SITEs pooled, PPMI-SVD and correlations.",
    ),
    descriptions: Path | None = typer.Option(
        None, help="Words for codes: .tsv, .csv or .parquet with code, description."
    ),
    out: Path = typer.Option(Path("report.html"), help="The file to write."),
) -> None:
    """Write one offline HTML file: the study, its evaluation, and an explorer of all codes."""
    from daniel.cli.watch import stages
    from daniel.errors import ParameterError
    from daniel.federated.files import check_file
    from daniel.report import build_report
    from daniel.report.assemble import Choices, Umls, assemble
    from daniel.report.page import MARKS
    from daniel.report.records import Outcome

    for given, needed, words in (
        (outcome_code, outcome, "--outcome-code says what to look for in --outcome"),
        (not landmark, outcome_code, "--no-landmark moves the start of times to --outcome-code"),
        (clusters, outcome, "--clusters are followed to an --outcome"),
        (umls_through, umls, "--umls-through leads to the codes of --umls"),
    ):
        if given and not needed:
            raise ParameterError(f"{words}: give both, or neither.")
    check_file(out, MARKS)
    followed = Outcome(outcome, outcome_code, outcome_name, landmark) if outcome else None
    release = Umls(umls, umls_through) if umls else None
    choices = Choices(compare, clusters, quantile, stability, release, phecodes, atc)
    with named(k="--clusters"), stages() as show:
        parts = assemble(
            model,
            sites or [],
            pairs=pairs,
            target=target,
            outcome=followed,
            descriptions=descriptions,
            choices=choices,
            progress=show,
        )
        build_report(parts, out, progress=show)
    if target is not None and not sites:
        typer.echo("No site folder was given: phenotyping and clusters are left out.", err=True)
    size = out.stat().st_size
    typer.echo(f"Wrote {out} ({size / 1e6:.1f} MB). Open it in a browser; it needs no network.")
