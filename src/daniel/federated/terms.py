"""What the study says to the exchange: options of the fit, roster, columns, random numbers."""

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from daniel.core import natural
from daniel.errors import InputError, ParameterError
from daniel.estimator import Daniel
from daniel.federated.keys import SiteKey
from daniel.federated.messages import Manifest
from daniel.matrix import CodeMatrix
from daniel.study import Site, Study

LATER_DAMPING = 12.0  # of rounds after the first, unless the study says


def options_of(study: Study, round: int = 1) -> natural.Options:
    """The fit's options; with noise no site may fit intercepts, which would not be noisy.

    A later round starts from couplings that are strong already.  There the curvature of all records
    can exceed the hub's many times, and only a firm hold to the start keeps rounds from swinging
    away (results/federation/rounds.md).
    """
    if study.model.recipe != "natural":
        raise ParameterError(
            "The exchange between sites runs the natural recipe: set model.recipe = 'natural'."
        )
    options = Daniel(**asdict(study.model))._options()
    if round > 1 and options.damping is None:
        options = replace(options, damping=LATER_DAMPING)
    return replace(options, intercept="shared") if study.disclosure.epsilon else options


def clip_of(study: Study, opening: Manifest) -> float | None:
    """The clip of the study, or of its start where the study leaves it to the hub."""
    clip = study.disclosure.clip
    return opening.clip if isinstance(clip, str) else clip


def hub_of(study: Study) -> Site:
    """The roster's hub."""
    return next(site for site in study.sites if site.role == "hub")


def with_keys(study: Study, keys: Mapping[str, SiteKey], records: Mapping[str, int]) -> Study:
    """The study with a roster of these sites and keys; roles as before, else the largest is hub."""
    if study.sites:
        wrong = set(keys) ^ {site.name for site in study.sites}
        if wrong:
            raise InputError(
                f"The sites given are not those of the study's roster: {', '.join(sorted(wrong))} "
                "stands in one of them only."
            )
        roles = {site.name: site.role for site in study.sites}
    else:
        largest = max(records, key=lambda name: records[name])
        roles = {name: "hub" if name == largest else "site" for name in keys}
    disclosure = study.disclosure
    if len(keys) < 3:
        disclosure = replace(disclosure, release="open")
    roster = tuple(keys[name].public(role) for name, role in roles.items())
    return replace(study, sites=roster, disclosure=disclosure)


def check_part(matrix: CodeMatrix, study: Study) -> None:
    if not study.sites:
        raise InputError("The study has no roster: add each site's public keys (`daniel keys`).")
    if study.disclosure.release == "masked" and len(study.sites) < 3:
        raise InputError(
            "Masks hide a site among the others, and need three of them: complete the roster, or "
            "set disclosure.release = 'open'."
        )
    check_codes(matrix, study)


def generator(study: Study, round: int, part: int) -> np.random.Generator:
    return np.random.default_rng([study.model.random_state, study.epoch, round, part])


def check_codes(matrix: CodeMatrix, study: Study) -> None:
    """The columns must be the study's, in its order."""
    if not study.has_list:
        raise InputError(
            "The study has no code list, and sites must agree on one: adopt a codes.tsv that "
            "`daniel prepare` wrote as codes.file."
        )
    if tuple(matrix.codes) != study.codes.names:
        raise InputError(
            f"The records have {len(matrix.codes)} codes that are not the {len(study.codes.names)} "
            "of the study in their order: run `daniel prepare` again with this study."
        )
