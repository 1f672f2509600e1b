import numpy as np

LEAST_COMPLEMENT = 1e-3


def star(y, weight, sites, values):
    label = y.astype(np.intp), np.arange(len(y))
    others = np.maximum(sites.precision, 0.0)
    others[label] = 0.0
    product = others * (values - values[label])
    product[label] -= np.sum(product, axis=0)
    return product


def softmax(y, weight, sites, values):
    gradient = sites.linear - sites.precision * sites.mean
    right = 1.0 + gradient / (weight if len(weight) else 1.0)
    right[y.astype(np.intp), np.arange(len(y))] -= 1.0
    d = np.maximum(sites.precision, 0.0) / np.clip(right, LEAST_COMPLEMENT, 1.0)
    share = d / np.maximum(np.sum(d, axis=0), np.finfo(float).tiny)
    return d * (values - np.sum(share * values, axis=0))


CURVATURES = {"softmax": softmax, **{f"multinomial-{name}": star for name in ("step", "probit", "logit")}}
