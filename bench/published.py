"""Numbers that papers print beside ours: the studies' and docs/guide/papers.md's only copy of them.

Those of GPCsm are in studies/multi_class.py, errors and Brier scores of S-BSVM in studies/svm.py.
"""

from typing import NamedTuple


class Two(NamedTuple):
    """Rows and features of a set in the paper, and (mean, deviation) of X-GPC and SVGPC over ten folds."""

    rows: str
    features: int
    error: tuple[float, float]
    nll: tuple[float, float]
    seconds: tuple[float, float]
    their_error: tuple[float, float]
    their_nll: tuple[float, float]
    their_seconds: tuple[float, float]


# Wenzel, Galy-Fajou, Donner, Kloft, Opper, AAAI 2019, table 2, but for click prediction, which is not public.
X_GPC = {
    "a9a": Two("36974", 123, (0.17, 0.07), (0.16, 0.10), (8.7, 0.9), (0.17, 0.07), (0.18, 0.12), (571, 2.2)),
    "bank-marketing": Two("45211", 43, (0.11, 0.09), (0.10, 0.10), (7.4, 1.8), (0.11, 0.09), (0.10, 0.09), (609, 2.7)),
    "cod-rna": Two("343564", 8, (0.04, 0.00), (0.02, 0.00), (134, 15), (0.05, 0.00), (0.01, 0.00), (3002, 122)),
    "covtype": Two("581012", 54, (0.32, 0.06), (0.53, 0.06), (29, 9.66), (0.32, 0.05), (0.54, 0.07), (1004, 51)),
    "diabetes-pima": Two("768", 8, (0.23, 0.07), (0.31, 0.12), (0.8, 0.1), (0.23, 0.07), (0.33, 0.11), (405, 59)),
    "electricity": Two("45312", 8, (0.25, 0.07), (0.29, 0.05), (4.6, 1.2), (0.25, 0.06), (0.34, 0.05), (888, 1.9)),
    "german": Two("1000", 20, (0.25, 0.13), (0.40, 0.19), (1.03, 0.2), (0.25, 0.13), (0.39, 0.18), (319, 15)),
    "higgs": Two("11M", 22, (0.36, 0.00), (0.05, 0.01), (14.1, 5.7), (0.35, 0.00), (0.03, 0.02), (1019, 5.9)),
    "statlog-shuttle": Two("58000", 9, (0.02, 0.00), (0.01, 0.00), (139, 6.6), (0.03, 0.00), (0.00, 0.00), (1501, 92)),
    "susy": Two("5M", 18, (0.20, 0.01), (0.21, 0.01), (523, 25), (0.21, 0.01), (0.27, 0.01), (10366, 360)),
}  # fmt: skip

# Wenzel, Galy-Fajou, Deutsch, Kloft, ECML 2017, table 1: seconds of S-BSVM and of Henao and others' ECM. Section 5.4:
# of their tuning of the length scale, and of a grid of so many points, on waveform.
S_BSVM_SECONDS = {
    "german": (12, 80), "diabetes-pima": (3.9, 33), "heart": (0.34, 2.2), "splice": (18, 406),
    "waveform-raetsch": (12.5, 264),
}  # fmt: skip
TUNING_SECONDS, GRID_SECONDS, GRID_POINTS = 0.3, 188, 1000

# Liu, Ong, Yu, Cai, Shen, arXiv 1909.06541, tables III and IV: accuracy in percent and NLL of GPCaug, GPC-I, -II, -III.
ADDITIVE_NOISE = {
    "adult": ((85.60, 85.53, 85.47, 85.55), (0.3306, 0.3971, 0.3956, 0.3933)),
    "ringnorm": ((97.62, 98.22, 98.35, 98.34), (0.0739, 0.0568, 0.0593, 0.0619)),
    "twonorm": ((97.78, 97.45, 97.49, 97.58), (0.0625, 0.0898, 0.0831, 0.0802)),
    "page-blocks": ((96.02, 97.06, 97.26, 97.03), (0.1343, 0.1314, 0.1165, 0.1226)),
    "waveform": ((86.52, 86.86, 87.02, 87.34), (0.3342, 0.4097, 0.3987, 0.3948)),
    "waveform-noise": ((33.40, 85.16, 85.30, 85.54), (1.0980, 0.4437, 0.4295, 0.4223)),
    "statlog-landsat": ((85.68, 93.37, 93.76, 93.70), (0.3356, 0.2280, 0.2164, 0.2195)),
}
