"""What a fit has learned, kept in a file, so that one that was killed can go on.

A checkpoint is a saved warm start: kernels, inducing points and the posterior of the rows of its stage, with the number
of these rows, what was decided, the fit that wrote it, and a fingerprint of the data and the parameters that it belongs
to.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from . import io
from ._sites import Site
from .archive import Archive
from .files import check_replaceable, regular, replacing
from .inference.progress import BestSoFar
from .kernels.spec import Groups
from .learning.start import Data
from .status import warn_user

FORMAT = "xgpc checkpoint 3"
# A file with 2048 inducing points is 100 MB and takes up to a second to write: 3 % of the time between two of them. A
# fit that is killed loses as much at most, and the evaluation at which it was.
SECONDS_BETWEEN = 30.0
# Rows of X that the fingerprint looks at, evenly spread; of labels and weights it looks at all.
FINGERPRINT_ROWS = 1000
# What may differ between the fit that was killed and the one that goes on: learning's optimum does not depend on it.
FREE = ("checkpoint", "client", "max_time", "keep_on_interrupt", "callback", "n_jobs", "verbose")
HOW = "Delete the file to begin anew, or give another path."
# What is not told in words, by what it is.
HASHED = {"X": "the features X", "y": "the labels y", "classes": "the classes"}


def fingerprint(model: Any, data: Data) -> dict[str, str]:
    """What a checkpoint of this fit belongs to: names and values, or hashes of these."""
    source = data.source
    rows = np.unique(np.linspace(0, source.n_rows - 1, FINGERPRINT_ROWS).astype(np.intp))
    some = source.sample(rows)
    classes = data.classes.astype(str) if data.classes.dtype.kind == "O" else data.classes
    found = {
        "number of rows": str(source.n_rows),
        "number of features": str(source.n_features),
        "classes": repr(classes.tolist()[:100]) + _hash(np.asarray(classes)),
        "y": _hash(source.labels()),
        "X": _hash(np.asarray(some.X, dtype=np.float64)),
        "sample weights": f"{source.total_weight!r} {_hash(some.weight)}",
    }
    if model.warm_start and hasattr(model, "posterior_"):
        found["the previous fit"] = _hash(*model.posterior_.to_arrays().values())
    for name, value in model.get_params(deep=False).items():
        if name not in FREE:
            found[f"the parameter {name}"] = _described(value)
    return found


def _described(value: Any) -> str:
    """A parameter in words that are the same in every process."""
    if isinstance(value, np.ndarray | list):
        return f"an array {np.shape(value)} {_hash(np.asarray(value))}"
    if isinstance(value, Kernel):
        # What a kernel prints is rounded, and lacks the bounds.
        return f"{value!r} {_hash(np.asarray(json.dumps(io.kernel_to_data(value), default=str)))}"
    described = repr(value)
    # Of objects that do not describe themselves the address is all that there would be.
    return type(value).__name__ if " at 0x" in described else described


def _hash(*arrays: np.ndarray) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


class Checkpoint:
    """The file at ``path`` of one fit.

    Parameters
    ----------
    path : str or os.PathLike
    belongs_to : dict, as ``fingerprint`` makes it
    clock : function that returns the time in seconds

    Raises
    ------
    OSError, ValueError
        If no file can be written there, as far as that is known beforehand.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        belongs_to: dict[str, str],
        clock: Callable[[], float] = time.monotonic,
    ):
        check_replaceable(path)
        self.path, self.belongs_to = path, belongs_to
        self._clock, self._last, self._has_failed = clock, clock(), False
        # Of this fit, and of the one that has written the file, as far as is known here: None before there is a file.
        self._name_of_fit = secrets.token_hex(8)
        self._known: str | None = None

    def offer(self, best: BestSoFar, at_once: bool = False) -> None:
        """Write it, unless another was written a moment ago.

        If that fails, or another fit has written the file meanwhile, the file of before stays, a warning tells of the
        first time, and the fit goes on.
        """
        if not at_once and self._clock() - self._last < SECONDS_BETWEEN:
            return
        try:
            self._write(best)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                warn_user(
                    f"The checkpoint {os.fspath(self.path)!r} could not be written: {error}. The fit goes on; what "
                    "was written before, if anything was, stays, and writing is tried again."
                )
        self._last = self._clock()

    def _write(self, best: BestSoFar) -> None:
        # No lock: a fit that is killed would leave it, or one of the system's a file beside this one.
        fit, belongs_to = self._written_by()
        if fit not in (None, self._known):
            found = f", which differs in {self._differences(belongs_to)}" if belongs_to else ""
            raise OSError(f"another fit has written it meanwhile{found}; give each fit a path of its own")
        q, site = best.q, best.site
        header = {
            "format": FORMAT,
            "fit": self._name_of_fit,
            "belongs_to": self.belongs_to,
            "full": q.prior.is_full,
            "kernels": [io.kernel_to_data(group.spec.kernel) for group in q.prior.groups],
            "label_noise": site.parameter if site.learned else None,
            "n_rows": best.n_rows,
            "is_growing": best.is_growing,
            "n_starts": best.n_starts,
            "is_decided": best.is_decided,
        }
        header |= io.precision_of(q)
        state = best.state or {}
        header["state"] = list(state)
        arrays: dict[str, Any] = q.to_arrays() | {f"state_{name}": array for name, array in state.items()}
        with replacing(self.path) as file:
            np.savez(file, header=json.dumps(header), **arrays)
        self._known = self._name_of_fit

    def _written_by(self) -> tuple[str | None, dict[str, str]]:
        """The fit that wrote the file, and what it is of; None if there is no file, "" if it is none of a fit."""
        try:
            with regular(self.path) as file:
                header = json.loads(str(Archive(file)["header"]))
                return str(header["fit"]), dict(header["belongs_to"])
        except FileNotFoundError:
            return None, {}
        # A damaged or foreign file can fail in any way that zip, NumPy or JSON know.
        except Exception:
            return "", {}

    def load(self, site: Site, groups: Groups | None = None) -> BestSoFar | None:
        """What an earlier fit had come to, with its label noise if ``site`` learns that; None if there is no file.

        ``groups`` are the features that share a length scale.

        Raises
        ------
        ValueError
            If the file is no checkpoint, or is one of another fit.
        """
        if not os.path.exists(self.path):
            return None
        with regular(self.path) as file:
            # A damaged or foreign file can fail in any way that zip, NumPy or JSON know.
            try:
                archive = Archive(file)
                header = json.loads(str(archive["header"]))
                if header["format"] != FORMAT:
                    raise ValueError(f"its format is {header['format']!r}, this version reads {FORMAT!r}")
                belongs_to, self._known = dict(header["belongs_to"]), str(header["fit"])
            except Exception as error:
                raise ValueError(
                    f"{self._name} is not a checkpoint of a fit: {str(error).rstrip('.')}. {HOW}"
                ) from error
            if belongs_to != self.belongs_to:
                found = self._differences(belongs_to)
                raise ValueError(
                    f"{self._name} is a checkpoint of another fit, which differs in {found}. Give this fit another "
                    "path; or, if the other one is neither at work nor to go on, delete the file."
                )
            try:
                arrays = {name: archive[name] for name in ("Z", "eta", "h")}
                q = io.posterior_from(header, arrays, groups)
                noise = header["label_noise"]
                site = site.with_parameter(float(noise)) if site.learned else site
                counts = int(header["n_rows"]), bool(header["is_growing"]), int(header["n_starts"])
                is_decided = bool(header["is_decided"])
                state = {name: archive[f"state_{name}"] for name in header["state"]} or None
            except Exception as error:
                raise ValueError(f"{self._name} is damaged: {str(error).rstrip('.')}. {HOW}") from error
        return BestSoFar(q, site, *counts, is_decided, state)

    def _differences(self, belongs_to: dict[str, str]) -> str:
        """In what another fit differs, in words."""
        differences = []
        for name in dict.fromkeys([*self.belongs_to, *belongs_to]):
            other, this = belongs_to.get(name, "missing"), self.belongs_to.get(name, "missing")
            if other != this:
                is_short = not name.startswith(("X", "y", "classes", "sample", "the previous"))
                values = f" ({other} in the file, {this} now)" if is_short else ""
                differences.append(HASHED.get(name, name if name.startswith("the ") else f"the {name}") + values)
        return ", ".join(differences) or "nothing"

    @property
    def _name(self) -> str:
        return repr(os.fspath(self.path))

    def remove(self) -> None:
        """After the fit; a file that cannot be removed is no reason to lose it. A symbolic link to it stays.

        So does a file that another fit has written.
        """
        with suppress(OSError):
            if self._written_by()[0] == self._known:
                os.unlink(os.path.realpath(self.path))
