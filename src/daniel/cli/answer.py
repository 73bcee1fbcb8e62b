"""`daniel answer`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def answer(
    site: Path = typer.Argument(help="This site's folder."),
    start: Path = typer.Argument(help="The start that the hub sent."),
    study: Path = typer.Option(Path("study.toml"), help="The study file."),
    out: Path = typer.Option(Path("answer.daniel"), help="The answer to write."),
    key: Path | None = typer.Option(None, help="The site's key file; NAME.key unless given."),
    approve: str = typer.Option("", help="Who approves that the answer leaves."),
    seal: bool = typer.Option(False, "--seal", help="Encrypt the answer to the hub."),
    scheduler: str | None = typer.Option(None, help="Address of a Dask cluster to do the sums."),
) -> None:
    """At every site: show what would leave and, once somebody approves, write the answer."""
    from daniel.cli.watch import working
    from daniel.cluster import distributed
    from daniel.federated import folder
    from daniel.federated.describe import describe_parcel
    from daniel.study import Study

    agreed = Study.load(study)
    if not approve.strip():
        with distributed(scheduler), working("making the answer"):
            parcel = folder.preview(site, agreed, start, key=key)
        typer.echo(describe_parcel(parcel))
        typer.echo("\nNothing was written. To let it leave, add: --approve NAME")
        return
    with distributed(scheduler), working("making the answer"):
        message = folder.write_answer(
            site, agreed, start, out, approved_by=approve, key=key, sealed=seal
        )
    typer.echo(f"Wrote {out} ({message.sha256[:12]}), approved by {approve}. Send it to the hub.")
