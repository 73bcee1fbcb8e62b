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
) -> None:
    """Write code vectors for the TensorFlow projector, gensim, Parquet readers or AnnData."""
    from daniel.evaluate.exports import export_embedding

    for path in export_embedding(model, out, formats=formats):
        typer.echo(f"Wrote {path}.")
