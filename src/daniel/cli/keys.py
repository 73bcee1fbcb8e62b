"""`daniel keys`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def keys(
    name: str = typer.Argument(help="Name of the site, as in the study's roster."),
    out: Path = typer.Option(Path("."), help="Folder for the private key file, NAME.key."),
    hub: bool = typer.Option(False, "--hub", help="The site is the hub."),
) -> None:
    """Make a site's keys: a private file that stays, and a public entry for the study's roster."""
    from daniel.federated.keys import make_key, roster_entry, write_key

    key = make_key(name)
    path = write_key(key, out)
    typer.echo(roster_entry(key, "hub" if hub else "site"))
    typer.echo(
        f"Wrote {path}, which must not leave the site. Add the lines above to the study.", err=True
    )
