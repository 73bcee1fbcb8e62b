"""The map: two coordinates a code, so that related codes lie side by side."""

import numpy as np
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

LANDMARKS = 3000  # t-SNE takes a fraction of a minute for so many
COMPONENTS = 50
NEAREST = 5
PERPLEXITY = 30.0
ITERATIONS = 500


def unit_rows(embedding: np.ndarray) -> np.ndarray:
    """(p, d) rows of length 1; a zero row stays zero.  Their product is the cosine."""
    E = np.asarray(embedding, dtype=np.float32)
    norm = np.linalg.norm(E, axis=1, keepdims=True)
    return E / np.where(norm > 0, norm, 1)


def map_coordinates(embedding: np.ndarray, *, random_state: int = 0) -> np.ndarray:
    """(p, 2) positions in [-1, 1] from an embedding (p, d): the same every time.

    t-SNE of the unit rows, started at their first two principal components.  Of more than
    `LANDMARKS` codes so many, drawn at random, are laid out; each other code comes to lie among the
    landmarks with the largest cosine.
    """
    rng = np.random.default_rng(random_state)
    E = _principal(unit_rows(embedding))
    p = len(E)
    if p <= LANDMARKS:
        return _scaled(_tsne(E, rng))
    chosen = np.sort(rng.choice(p, LANDMARKS, replace=False))
    anchors = _tsne(E[chosen], rng)
    position = _among(E, E[chosen], anchors, rng)
    position[chosen] = anchors
    return _scaled(position)


def _principal(E: np.ndarray) -> np.ndarray:
    """(p, at most COMPONENTS, at least 2) principal components, each with a fixed sign."""
    E = np.pad(E, ((0, 0), (0, max(0, 2 - E.shape[1]))))  # a model of rank 0 has no column
    E = E - E.mean(axis=0)
    _, axes = np.linalg.eigh((E.T @ E).astype(np.float64))
    axes = axes[:, ::-1][:, :COMPONENTS]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), range(axes.shape[1])] < 0, -1, 1)
    return np.asarray((E @ axes).astype(np.float32))


def _tsne(E: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    p = len(E)
    spread = max(float(E[:, 0].std()), 1e-12)
    start = E[:, :2] / spread + rng.normal(scale=0.01, size=(p, 2))
    if p < 5:
        return start
    tsne = TSNE(
        init=(1e-4 * start).astype(np.float32),
        perplexity=min(PERPLEXITY, (p - 1) / 3),
        max_iter=ITERATIONS,
        random_state=0,
    )
    with threadpool_limits(1):  # sums in another order would end in another map
        return np.asarray(tsne.fit_transform(E), dtype=np.float64)


def _among(
    E: np.ndarray, landmarks: np.ndarray, anchors: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(p, 2) mean of the nearest landmarks' positions, the nearest counting most.

    Codes with the same landmarks would hide each other: each moves a little, at random.
    """
    finder = NearestNeighbors(n_neighbors=NEAREST, algorithm="brute").fit(landmarks)
    distance, nearest = finder.kneighbors(E)
    weight = 1 / np.maximum(distance, 1e-6) ** 4
    weight /= weight.sum(axis=1, keepdims=True)
    position = np.einsum("pk,pkc->pc", weight, anchors[nearest])
    spacing = np.sqrt(np.prod(np.ptp(anchors, axis=0)) / len(anchors))
    return position + rng.normal(scale=0.5 * spacing, size=position.shape)


def _scaled(position: np.ndarray) -> np.ndarray:
    """Each axis in [-1, 1]: the map fills the screen, whatever its shape."""
    low, high = position.min(axis=0), position.max(axis=0)
    return (2 * position - low - high) / np.maximum(high - low, 1e-12)
