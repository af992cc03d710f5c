# %% [markdown]
# # A marketing trial
#
# In 2008 Kevin Hillstrom published a trial with 64,000 customers of a shop. Some got an e-mail, and
# the shop recorded who visited its web site in the two weeks after. For whom does the e-mail make
# the difference?
#
# ## Get the data
#
# The file is public, but it is not part of this repository. Download it from
# [minethatdata.com](http://www.minethatdata.com/Kevin_Hillstrom_MineThatData_E-MailAnalytics_DataMiningChallenge_2008.03.20.csv)
# and save it as `hillstrom.csv` in the folder where you run this script, or name its place in the
# environment variable `HILLSTROM_CSV`. Without the file, this page
# works on an invented trial with the same columns. It says which of the two it used.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pns_dgp
import pns_estimate as pe
import pns_models as pm


def invent_trial(n=9_000):
    """Makes up customers: recent ones visit more, and the e-mail works on old clients."""
    rng = np.random.default_rng(0)
    segment = rng.choice(["Mens E-Mail", "No E-Mail", "Womens E-Mail"], n)
    recency, newbie = rng.integers(1, 13, n), rng.integers(0, 2, n)
    gain = np.where(newbie == 1, 0.05, 0.25) * (segment != "No E-Mail")
    return pd.DataFrame(
        {
            "recency": recency,
            "history": rng.gamma(2, 120, n).round(2),
            "mens": rng.integers(0, 2, n),
            "womens": rng.integers(0, 2, n),
            "zip_code": rng.choice(["Urban", "Surburban", "Rural"], n),
            "newbie": newbie,
            "channel": rng.choice(["Web", "Phone", "Multichannel"], n),
            "segment": segment,
            "visit": (rng.random(n) < 0.1 + 0.2 * (recency <= 4) + gain).astype(int),
        }
    )


path = Path(os.environ.get("HILLSTROM_CSV", "hillstrom.csv"))
trial = pd.read_csv(path) if path.exists() else invent_trial()
print("Hillstrom's customers" if path.exists() else "invented customers", len(trial))

# %% [markdown]
# We compare the e-mail about men's products with no e-mail.

# %%
trial = trial[trial["segment"] != "Womens E-Mail"]
trial = trial.assign(email=(trial["segment"] == "Mens E-Mail").astype(int))
rate = trial.groupby("email")["visit"].mean()
print(f"{rate[1]:.1%} visit with the e-mail, {rate[0]:.1%} without")

# %% [markdown]
# ## Make a log
#
# The method needs a second table, in which people chose for themselves. The shop published none, so
# we make one from half of the trial: customers are kept in such a way that the e-mail went mostly to
# those who had bought recently, as if they had asked for it. The column `recency` is then hidden, so
# the log is confounded, and nobody can undo that with the columns that are left. With a log of your
# own you skip this step.

# %%
covariates = ["history", "mens", "womens", "zip_code", "newbie", "channel"]
split = pns_dgp.confounded_split(
    trial[[*covariates, "recency", "email", "visit"]],
    treatment="email",
    outcome="visit",
    hidden="recency",
    propensity=lambda hidden: np.where(hidden["recency"] <= 4, 0.7, 0.3),
    seed=0,
)
print(split.summary())

# %% [markdown]
# ## Fit
#
# To keep this page quick we fit two of the six learners on two folds and take few draws. In real
# work, leave `recipe` and `num_draws` out: the default fits all of them on five folds.

# %%
learners = (pm.LEARNERS["ridge"], pm.LEARNERS["trees"])
quick = pe.CrossFitRecipe(learners, num_folds=2, members_per_fold=2)
estimator = pe.PnsEstimator(recipe=quick, num_draws=500, progress=False)
estimator.fit(
    split.observational, split.experimental, treatment="email", outcome="visit"
)
test = estimator.compatibility()
print(f"do the tables contradict each other? p = {test.p_value:.2f}")

# %% [markdown]
# A large p-value means that no contradiction was found.
#
# ## How many customers does the e-mail bring in?
#
# Each line uses more of the data than the one before it.

# %%
for estimand, words in (
    ("pns", "visit because of it"),
    ("harm", "stay away because of it"),
):
    print(words)
    print(estimator.compare_averages(estimand=estimand)[["lower", "upper"]].round(3))

# %% [markdown]
# ## Who are they?
#
# Customers are sorted into fifths by the benefit that learners predict for them, which had not seen
# them. Each fifth is then measured by its own visits. Thick bars are the estimated bounds, thin lines
# the 95% intervals, which hold for all fifths at once.

# %%
people = estimator.sorted_groups()
table = people.table
figure, axes = plt.subplots(figsize=(7, 3))
for name, color, shift in (("benefit", "#2b6cb0", -0.1), ("harm", "#c05621", 0.1)):
    place = np.arange(len(table)) + shift
    axes.vlines(place, table[f"{name}_lower"], table[f"{name}_upper"], color=color)
    axes.vlines(
        place,
        table[f"{name}_bound_lower"],
        table[f"{name}_bound_upper"],
        color=color,
        lw=8,
        alpha=0.5,
        label=name,
    )
axes.set_xticks(range(len(table)), [f"fifth {group}" for group in table.index])
axes.set(ylabel="share of customers", ylim=(0, None))
axes.legend(frameon=False)
print(f"the last fifth benefits more than the first: p = {people.p_value:.3f}")

# %% [markdown]
# ## Whom to write to?
#
# Say that a visit is worth 1 and an e-mail costs 0.1. A customer who would stay away because of the
# e-mail costs a visit.

# %%
decision = pe.Decision(gains=(1, 0, 0, -1), cost=0.1)
answers = estimator.decide(split.experimental[covariates].head(300), decision)
print(answers["recommendation"].value_counts().to_string())
