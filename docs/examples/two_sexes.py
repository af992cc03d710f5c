# %% [markdown]
# # Two sexes
#
# This is the example of Mueller and Pearl (*Personalized decision making*, 2023). A drug is tried
# on women and on men, and the trial looks the same for both. What people did on their own shows
# that it is not the same at all.
#
# ## The two tables
#
# Each table is a list of counts. `x` says whether somebody took the drug (0 or 1), `y` whether they
# recovered. The first axis is the sex, the second `x`, the third `y`.

# %%
import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi

SEXES = ("women", "men")
CHOSE = np.array([[[90, 210], [511, 189]], [[90, 210], [210, 490]]])
ASSIGNED = np.array([[[790, 210], [511, 489]], [[790, 210], [510, 490]]])

for sex, arms in zip(SEXES, ASSIGNED):
    without, with_drug = arms[:, 1] / arms.sum(axis=1)
    print(f"{sex}: {with_drug:.1%} recover with the drug, {without:.1%} without")

# %% [markdown]
# In the trial the drug adds 28 points for either sex.
#
# ## What the trial says about individuals
#
# `mu` holds these probabilities of recovery. From them alone, the share of people who recover
# *because of* the drug (benefit) can only be bounded, and so can the share of people who fail to
# recover because of it (harm). For harm we exchange the two arms.

# %%
atoms = pb.atoms_from_counts(observational=CHOSE, experimental=ASSIGNED)
alone = {
    "benefit": pb.experimental_only_bounds(atoms.mu),
    "harm": pb.experimental_only_bounds(atoms.mu[..., ::-1]),
}


def show(bounds):
    for name, interval in bounds.items():
        for sex, lower, upper in zip(SEXES, interval.lower, interval.upper):
            print(f"{name} among {sex}: {lower:.3f} to {upper:.3f}")


show(alone)

# %% [markdown]
# ## What both tables say
#
# Now we add what people did who were free to choose.

# %%
both = {"benefit": pb.pns_bounds(atoms), "harm": pb.harm_bounds(atoms)}
show(both)

# %% [markdown]
# The bounds have shrunk to points. The drug harms no woman. Among men, 21 in a hundred are harmed:
# they would have recovered without the drug and do not recover with it.
#
# ## Which term decided
#
# Each end of an interval is one of several terms, and the term that *binds* says which comparison
# decided. `P(y)` is the share that recovers when people choose for themselves.

# %%
terms = pb.PNS.terms(atoms)
for row, sex in enumerate(SEXES):
    lower = pb.PNS.lower_labels[terms.lower[row].argmax()]
    upper = pb.PNS.upper_labels[terms.upper[row].argmin()]
    print(f"{sex}: at least {lower}, at most {upper}")

# %% [markdown]
# Of a hundred men who choose for themselves 70 recover, more than under either assignment: many seem
# to know what is good for them. That is what gives the harm away.
#
# ## With a tenth of the people
#
# So far we have treated frequencies as if they were the true probabilities. With fewer people they
# carry errors, and the interval has to be wider. Here every count is divided by ten.

# %%
few_chose, few_assigned = np.rint(CHOSE / 10), np.rint(ASSIGNED / 10)
intervals = pi.intervals_from_estimates(
    jax.random.key(0),
    pb.atoms_from_counts(few_chose, few_assigned),
    pi.frequency_covariance(few_chose, few_assigned),
    sample_size=(few_chose + few_assigned)[0].sum(),
)
for sex, lower, upper in zip(SEXES, intervals.lower, intervals.upper):
    print(f"benefit among {sex}: {lower:.2f} to {upper:.2f}, with 95% confidence")
