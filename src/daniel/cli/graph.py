"""`daniel graph`."""

from pathlib import Path

import typer

from daniel.cli.app import app, named


@app.command()
def graph(
    model: Path = typer.Argument(help="The model folder that `daniel finish` wrote."),
    sites: list[Path] = typer.Argument(
        None,
        metavar="[SITE]...",
        help="Site folders on this machine: their patients choose the codes, and are refitted.",
    ),
    around: str | None = typer.Option(
        None, help="A code, such as PheCode:290.1: its neighbours or, with sites, its patients."
    ),
    top: int = typer.Option(30, help="How many codes, 1 to 500."),
    quantile: float = typer.Option(
        0.95, min=0.0, max=0.999, help="Edges above this quantile of all couplings."
    ),
    stability: int = typer.Option(
        0,
        min=0,
        help="Refit so often to records drawn anew, and tell how often an edge came back; each "
        "takes as long as a fit.",
        show_default="no refits",
    ),
    over: str = typer.Option("patients", help="What is drawn anew: patients, or whole sites."),
    descriptions: Path | None = typer.Option(
        None, help="Words for codes: .tsv, .csv or .parquet with code, description."
    ),
    out: Path = typer.Option(Path("graph"), help="The files to write, without their endings."),
) -> None:
    """Write a knowledge graph: GraphML, Cytoscape JSON, PNG and SVG."""
    from daniel.cli.watch import stages
    from daniel.errors import ParameterError
    from daniel.evaluate.graph import write_graph
    from daniel.plots import code_network, save
    from daniel.report.graphs import check_files, graph_of, stem_of

    out = stem_of(out)
    check_files(out)
    if around is None and not sites:
        raise ParameterError(
            "Nothing says which codes to draw: name one with --around, or give site folders."
        )
    with named(over="--over", top="--top"), stages() as show:
        drawn = graph_of(
            model,
            sites or [],
            around=around,
            top=top,
            quantile=quantile,
            stability=stability,
            over=over,
            descriptions=descriptions,
            progress=show,
        )
    for path in [*write_graph(drawn, out), *save(code_network(drawn), out)]:
        typer.echo(f"Wrote {path}.")
    if left_out := drawn.graph.get("left_out"):
        typer.echo(f"Too few patients there, so left out: {left_out}.", err=True)
