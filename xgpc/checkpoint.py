"""Checkpoints: the best result so far, and a fingerprint of data and parameters, in a file from which a fit resumes."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from ._sites import Site
from .approximations.base import KernelPosterior
from .config import PARAMETERS
from .files import check_replaceable, read, refusing, regular, write
from .inference.run import BestSoFar
from .io import check_arrays, kernel_to_data, posterior_contents, posterior_from
from .kernels.features import Groups
from .learning.start import Data, PreviousFit
from .status import is_of_handler, warn_user

# A file with 2048 inducing points has 100 MB, and writing it takes up to a second: 3 % of the time between two files. A
# fit that is killed loses this time at most, and its present evaluation of the bound.
SECONDS_BETWEEN = 30.0
# Rows of X in the fingerprint, evenly spread; it has all labels and weights.
FINGERPRINT_ROWS = 1000
PROGRESS = ("n_rows", "is_growing", "n_starts", "is_decided")
STATE = "state_"
WHAT, ADVICE = "a checkpoint of a fit", " Delete the file to begin anew, or give another path."


def fingerprint(data: Data, previous: PreviousFit | None) -> dict[str, str]:
    """Data, parameters and previous fit of a fit: names with values in words, or with hashes in brackets."""
    source = data.source
    some = source.sample(np.unique(np.linspace(0, source.n_rows - 1, FINGERPRINT_ROWS).astype(np.intp)))
    found = {
        "the number of rows": str(source.n_rows),
        "the number of features": str(source.n_features),
        "the classes": _hash(data.classes.astype(str) if data.classes.dtype.kind == "O" else data.classes),
        "the labels y": _hash(source.labels()),
        "the features X": _hash(np.asarray(some.X, dtype=np.float64)),
        "the sample weights": _hash(np.array(source.total_weight), some.weight),
    }
    if previous is not None:
        found["the previous fit"] = _hash(*previous.posterior.to_arrays().values())
    names = [name for name, parameter in PARAMETERS.items() if parameter.is_part_of_fit]
    return found | {f"the parameter {name}": _described(getattr(data.config, name)) for name in names}


def _described(value: object) -> str:
    """A parameter in words that are the same in every process."""
    if isinstance(value, np.ndarray | list):
        return f"an array {np.shape(value)} {_hash(np.asarray(value))}"
    if isinstance(value, Kernel):
        # The text of a kernel has rounded numbers and no bounds.
        return f"{value!r} {_hash(np.asarray(json.dumps(kernel_to_data(value), default=str)))}"
    described = repr(value)
    # Some objects describe themselves by their address alone.
    return type(value).__name__ if " at 0x" in described else described


def _hash(*arrays: np.ndarray) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return f"[{found.hexdigest()[:16]}]"


class Checkpoint:
    """The checkpoint of the fit with a fingerprint; OSError or ValueError if no file can be written at the path."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        belongs_to: dict[str, str],
        clock: Callable[[], float] = time.monotonic,
    ):
        check_replaceable(path)
        self.path, self.belongs_to = path, belongs_to
        self._clock, self._last, self._has_failed = clock, clock(), False
        # The names of this fit, and of the fit that wrote the file; None while this fit knows of no file.
        self._name = secrets.token_hex(8)
        self._writer: str | None = None

    def offer(self, best: BestSoFar, at_once: bool = False) -> None:
        """Write a result, unless one was written a moment ago; the first failure is a warning.

        If the file cannot be written, or another fit has written it meanwhile, the older file stays.
        """
        if not at_once and self._clock() - self._last < SECONDS_BETWEEN:
            return
        try:
            self._write(best)
        except OSError as error:
            if is_of_handler(error):
                raise
            if not self._has_failed:
                name = f"The checkpoint {os.fspath(self.path)!r}"
                warn_user(f"{name} could not be written: {error}. The fit goes on and tries again later.")
            self._has_failed = True
        self._last = self._clock()

    def _write(self, best: BestSoFar) -> None:
        # There is no lock on the file, because a fit that is killed would leave it locked.
        writer, belongs_to = self._written_by()
        if writer not in (None, self._writer):
            found = f", which differs in {self._differences(belongs_to)}" if belongs_to else ""
            raise OSError(f"another fit has written it meanwhile{found}; give each fit a path of its own")
        header, arrays = posterior_contents(best.q)
        header |= {"fit": self._name, "belongs_to": self.belongs_to}
        header |= {name: getattr(best, name) for name in PROGRESS}
        header["parameter"] = np.asarray(best.site.parameter).tolist()
        arrays |= {f"{STATE}{name}": array for name, array in (best.state or {}).items()}
        write(self.path, "checkpoint", header, arrays)
        self._writer = self._name

    def _written_by(self) -> tuple[str | None, dict[str, str]]:
        """The name and the fingerprint of the fit that wrote the file: None without a file, "" for another file."""
        try:
            with regular(self.path) as file, refusing(self.path, WHAT):
                header, _ = read(file, "checkpoint", only_header=True)
                return str(header["fit"]), dict(header["belongs_to"])
        except FileNotFoundError:
            return None, {}
        except (OSError, ValueError):
            return "", {}

    def load(self, site: Site, groups: Groups | None = None) -> BestSoFar | None:
        """The result that an earlier fit has written, None without a file; ValueError for a file of another fit.

        ``site`` gets the learned label noise. ``groups`` are features that share a length scale.
        """
        if not os.path.exists(self.path):
            return None
        with regular(self.path) as file:
            with refusing(self.path, WHAT, ADVICE):
                header, arrays = read(file, "checkpoint")
                belongs_to, self._writer = dict(header["belongs_to"]), str(header["fit"])
            if belongs_to != self.belongs_to:
                found = f"which differs in {self._differences(belongs_to)}"
                raise ValueError(
                    f"{os.fspath(self.path)!r} is a checkpoint of another fit, {found}. Give this fit another path; or "
                    "delete the file."
                )
            with refusing(self.path, WHAT, ADVICE):
                n_latents = len(arrays["h"]) if arrays["h"].ndim == 2 else None
                check_arrays(arrays, n_latents, header["full"])
                q = posterior_from(header, arrays, n_latents, groups)
                assert isinstance(q, KernelPosterior)
                parameter = np.asarray(header["parameter"], dtype=np.float64)
                if parameter.shape != np.shape(site.parameter):
                    raise ValueError("its likelihood's parameter is not valid")
                site = site.with_parameter(parameter)
                state = {name.removeprefix(STATE): one for name, one in arrays.items() if name.startswith(STATE)}
                return BestSoFar(q, site, **{name: header[name] for name in PROGRESS}, state=state or None)

    def _differences(self, belongs_to: dict[str, str]) -> str:
        """In what another fit differs, in words."""
        differences = []
        for name in self.belongs_to | belongs_to:
            other, this = belongs_to.get(name, "missing"), self.belongs_to.get(name, "missing")
            if other != this:
                differences.append(name if this.startswith("[") else f"{name} ({other} in the file, {this} now)")
        return ", ".join(differences) or "nothing"

    def remove(self) -> None:
        """Remove the file after the fit, if that is possible and no other fit wrote it; a link to it stays."""
        with suppress(OSError):
            if self._written_by()[0] == self._writer:
                os.unlink(os.path.realpath(self.path))
