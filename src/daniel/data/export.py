"""Records for other people's software."""

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from daniel.errors import MissingDependencyError
from daniel.matrix import CodeMatrix, vocabulary_of


def to_anndata(matrix: CodeMatrix) -> Any:
    """A CodeMatrix as AnnData: records are observations, codes are variables.

    X (n, p) sparse 0/1; obs has patient and window where the matrix has them; var has the
    vocabulary of each code, and whether the site lacks it (absent): its zeros then say nothing.
    """
    try:
        from anndata import AnnData
    except ImportError:
        raise MissingDependencyError.of(
            "anndata", extra="anndata", purpose="The export to AnnData"
        ) from None
    n, p = matrix.shape
    known = {"patient": matrix.patients, "window": matrix.windows}
    obs = pd.DataFrame(
        {name: values for name, values in known.items() if values is not None},
        index=np.arange(n).astype(str),
    )
    absent = np.zeros(p, dtype=bool) if matrix.absent is None else matrix.absent
    vocabulary = [vocabulary_of(code) for code in matrix.codes]
    var = pd.DataFrame({"vocabulary": vocabulary, "absent": absent}, index=list(matrix.codes))
    return AnnData(X=sp.csr_matrix(matrix.Z, dtype=np.float32), obs=obs, var=var)
