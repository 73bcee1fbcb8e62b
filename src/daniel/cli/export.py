"""`daniel export`."""

from pathlib import Path

import typer

from daniel.cli.app import app


@app.command()
def export(
    model: Path = typer.Argument(help="A model folder, or a model file."),
    out: Path = typer.Option(Path("export"), help="The folder to write."),
    formats: list[str] = typer.Option(
        ["projector", "word2vec", "parquet"],
        "--format",
        help="projector, word2vec, parquet or anndata; once for each.",
    ),
    descriptions: Path | None = typer.Option(
        None, help="Words for codes: .tsv, .csv or .parquet with code, description."
    ),
) -> None:
    """Write code vectors for the TensorFlow projector, gensim, Parquet readers or AnnData."""
    from daniel.evaluate.exports import export_embedding
    from daniel.report.records import read_descriptions

    words = None if descriptions is None else read_descriptions(descriptions)
    for path in export_embedding(model, out, formats=formats, descriptions=words):
        typer.echo(f"Wrote {path}.")
