"""
Several classes: handwritten digits
===================================

Ten classes need no other settings than two: the likelihood is softmax, and each class has a latent function. The
probabilities show which images a person should check.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from xgpc import GPClassifier
from xgpc.metrics import scores

images, digits = load_digits(return_X_y=True)
train, test, y, y_test = train_test_split(images, digits, test_size=0.4, stratify=digits, random_state=0)
model = make_pipeline(PCA(16, random_state=0), GPClassifier(n_inducing=64, share="kernel", random_state=0))
model.fit(train, y)
log_p = model.predict_log_proba(test)
print({name: round(value, 4) for name, value in scores(y_test, log_p).items()})

# %%
# These images have the least certain predictions. A title shows the predicted digit, its probability, and the true
# digit.

least = np.argsort(np.max(log_p, axis=1))[:10]
figure, grid = plt.subplots(2, 5, figsize=(10, 5), layout="constrained")
for ax, i in zip(grid.ravel(), least, strict=True):
    ax.imshow(test[i].reshape(8, 8), cmap="gray_r")
    best = np.argmax(log_p[i])
    ax.set(xticks=[], yticks=[], title=f"{best} with {np.exp(log_p[i, best]):.0%}, is {y_test[i]}")
    ax.title.set_color("black" if best == y_test[i] else "#D55E00")
plt.show()

# %%
# If a person checks the least certain images, the model decides about the others. Their error falls fast with the
# number of checked images.

order = np.argsort(-np.max(log_p, axis=1))
wrong = np.argmax(log_p, axis=1)[order] != y_test[order]
kept = np.arange(1, len(wrong) + 1)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(100 * kept / len(wrong), 100 * np.cumsum(wrong) / kept)
ax.set(xlabel="Most certain test images that are kept, %", ylabel="Errors among them, %")
ax.set_title("Errors if uncertain images are left out")
plt.show()
