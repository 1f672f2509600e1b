"""Numbers that papers print beside ours: the only copy of them here and in docs/guide/papers.md."""

# Wenzel, Galy-Fajou, Donner, Kloft, Opper, AAAI 2019, table 2, but for click prediction, which is not public: rows and
# features, and of each method error and NLL, (mean, deviation) over ten folds, and mean seconds.
X_GPC = {
    "a9a": ("36974 x 123", ((0.17, 0.07), (0.16, 0.10), 8.7), ((0.17, 0.07), (0.18, 0.12), 571)),
    "bank-marketing": ("45211 x 43", ((0.11, 0.09), (0.10, 0.10), 7.4), ((0.11, 0.09), (0.10, 0.09), 609)),
    "cod-rna": ("343564 x 8", ((0.04, 0.00), (0.02, 0.00), 134), ((0.05, 0.00), (0.01, 0.00), 3002)),
    "covtype": ("581012 x 54", ((0.32, 0.06), (0.53, 0.06), 29), ((0.32, 0.05), (0.54, 0.07), 1004)),
    "diabetes-pima": ("768 x 8", ((0.23, 0.07), (0.31, 0.12), 0.8), ((0.23, 0.07), (0.33, 0.11), 405)),
    "electricity": ("45312 x 8", ((0.25, 0.07), (0.29, 0.05), 4.6), ((0.25, 0.06), (0.34, 0.05), 888)),
    "german": ("1000 x 20", ((0.25, 0.13), (0.40, 0.19), 1.03), ((0.25, 0.13), (0.39, 0.18), 319)),
    "higgs": ("11M x 22", ((0.36, 0.00), (0.05, 0.01), 14.1), ((0.35, 0.00), (0.03, 0.02), 1019)),
    "statlog-shuttle": ("58000 x 9", ((0.02, 0.00), (0.01, 0.00), 139), ((0.03, 0.00), (0.00, 0.00), 1501)),
    "susy": ("5M x 18", ((0.20, 0.01), (0.21, 0.01), 523), ((0.21, 0.01), (0.27, 0.01), 10366)),
}  # fmt: skip

# Wenzel, Galy-Fajou, Deutsch, Kloft, ECML 2017, table 1: error and Brier score of S-BSVM, (mean, deviation) over ten
# folds, and its seconds.
S_BSVM = {
    "german": ((0.24, 0.11), (0.17, 0.06), 12),
    "diabetes-pima": ((0.22, 0.06), (0.16, 0.04), 3.9),
    "heart": ((0.16, 0.06), (0.13, 0.04), 0.34),
    "splice": ((0.13, 0.03), (0.17, 0.01), 18),
    "waveform-raetsch": ((0.09, 0.02), (0.06, 0.01), 12.5),
}

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
# The same: accuracy in percent and NLL of GPCsm, softmax with additive noise.
GPCSM = {
    "waveform": (87.84, 0.2832), "waveform-noise": (86.24, 0.2999), "page-blocks": (97.10, 0.0896),
    "statlog-landsat": (91.91, 0.2110),
}  # fmt: skip
