"""The compatibility test: size, power, real data; strata weighted to one covariate law."""

import csv
import gzip
import os
from pathlib import Path

import jax
import numpy as np
import pns_bounds as pb
import pns_infer as pi
import pytest
from pns_infer.averages.covariate_tests import source_probability
from pns_infer.core import frequencies as _frequencies
from scipy import special, stats

KEY = jax.random.key(0)


def draw_tables(rng, atoms, observed, assigned):
    """Draws a table of each kind for every stratum."""
    observational = np.stack(
        [
            rng.multinomial(observed, joint.ravel()).reshape(2, 2)
            for joint in atoms.joint
        ]
    )
    ones = rng.binomial(assigned, atoms.mu)
    return observational, np.stack([assigned - ones, ones], axis=-1)


def boundary(num_strata):
    """Every stratum fulfils p11 = mu1 exactly; the other constraints have slack."""
    joint = np.array([[0.3, 0.2], [0.2, 0.3]])
    return pb.Atoms(
        np.tile(joint, (num_strata, 1, 1)), np.tile([0.5, 0.3], (num_strata, 1))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_strata", "observed", "assigned"),
    [(1, 200, 100), (5, 2000, 500), (100, 60, 30), (20, 30, 400)],
)
def test_the_size_at_the_boundary_is_at_most_alpha(num_strata, observed, assigned):
    """400 replicates at 10%: Monte Carlo error 0.015."""
    rng = np.random.default_rng(0)
    atoms = boundary(num_strata)
    rejections = [
        pi.compatibility_test(
            KEY, *draw_tables(rng, atoms, observed, assigned), num_draws=1000
        ).p_value
        <= 0.1
        for _ in range(400)
    ]
    assert np.mean(rejections) < 0.1 + 3 * 0.015


@pytest.mark.slow
def test_power_grows_to_one_and_the_guilty_inequality_is_named():
    rng = np.random.default_rng(1)
    atoms = boundary(8)
    atoms.mu[3] = [0.5, 0.2]  # mu1 falls below p11 = 0.3 in one stratum of eight
    found = {}
    for observed in (100, 400, 3000):
        results = [
            pi.compatibility_test(
                KEY, *draw_tables(rng, atoms, observed, observed), num_draws=1000
            )
            for _ in range(30)
        ]
        found[observed] = np.mean([r.p_value < 0.05 for r in results])
    assert found[100] < found[400] <= found[3000] == 1
    last = results[-1]
    assert last.stratum == 3 and last.constraint == "p11 <= mu1"
    assert last.rejected[3].tolist() == [True, False, False, False]
    assert last.rejected.sum() == 1


def test_slack_does_not_cost_power():
    """99 strata far inside their constraints: they are not selected."""
    rng = np.random.default_rng(2)
    one = boundary(1)
    one.mu[0] = [0.5, 0.24]
    many = boundary(100)
    many.mu[:, 1] = 0.55
    many.mu[0] = one.mu[0]
    p = {}
    for name, atoms in (("one", one), ("many", many)):
        tables = draw_tables(rng, atoms, 30_000, 8000)
        tables[0][0], tables[1][0] = [[900, 600], [600, 900]], [[400, 400], [608, 192]]
        p[name] = pi.compatibility_test(KEY, *tables, num_draws=20_000).p_value
    assert p["one"] < 0.01
    assert p["many"] < 3 * p["one"]


def counts_with_ratio(ratio, num_units=40_000):
    """Tables in which mu1 exceeds p11 = 0.3 by so many standard errors of smoothed counts.

    The three other slacks lie more than 20 standard errors inside.
    """
    p11 = 0.3
    mu1 = p11
    for _ in range(20):  # the error depends on mu1
        error = np.sqrt((p11 * (1 - p11) + mu1 * (1 - mu1)) / num_units)
        mu1 = p11 + ratio * error
    observational = num_units * np.array([[0.3, 0.2], [0.2, p11]])
    experimental = num_units * np.array([[0.5, 0.5], [1 - mu1, mu1]])
    return observational, experimental


def test_selection_keeps_what_lies_within_twice_kappa_of_the_least():
    """Strata at -1.5, 6.5 and 10 standard errors; kappa is 3.2 for their 12 slacks.

    The least corrected slack is 1.7 errors, so the second stratum is kept if its ratio is
    below 1.7 + 2 * 3.2 = 8.1 (with one kappa: 4.9, with none: 1.7), and the third is not
    (with three: 11.3). The p-value is then that of the greatest of two independent
    normals. 20,000 draws: Monte Carlo error 0.0024; one normal gives 0.067, three 0.187.
    """
    tables = zip(*map(counts_with_ratio, (-1.5, 6.5, 10.0)), strict=True)
    result = pi.compatibility_test(KEY, *map(np.stack, tables), num_draws=20_000)
    np.testing.assert_allclose(result.statistic, 1.5, atol=0.02)
    expected = 1 - stats.norm.cdf(result.statistic) ** 2
    np.testing.assert_allclose(result.p_value, expected, atol=4 * 0.0024)


def test_the_estimates_are_those_of_smoothed_counts():
    observational, experimental = [[[9, 21], [51, 19]]], [[[79, 21], [51, 49]]]
    result = pi.compatibility_test(KEY, observational, experimental, num_draws=200)
    atoms = pb.atoms_from_counts(
        np.array(observational) + 1, np.array(experimental) + 1
    )
    np.testing.assert_allclose(result.slack, pb.compatibility_slack(atoms))
    p11, mu1 = atoms.joint[0, 1, 1], atoms.mu[0, 1]
    variance = p11 * (1 - p11) / 104 + mu1 * (1 - mu1) / 102
    np.testing.assert_allclose(result.standard_error[0, 0], np.sqrt(variance))
    np.testing.assert_allclose(
        result.statistic, -np.min(result.slack / result.standard_error)
    )


def test_only_kept_slacks_are_simulated_and_blocks_are_independent(monkeypatch):
    identity = np.tile(np.eye(4), (2, 1, 1))
    ones = np.ones((2, 4))
    kept = np.zeros((2, 4), bool)
    kept[0, 0] = True
    one = _frequencies._simulate(KEY, identity, ones, kept, 2000)
    assert abs(one.mean()) < 4 / np.sqrt(2000)  # a single normal
    monkeypatch.setattr(_frequencies, "_STRATA", 1)
    first, both = (
        _frequencies._simulate(KEY, identity[:n], ones[:n], ones[:n] > 0, 2000)
        for n in (1, 2)
    )
    assert both.mean() > first.mean() + 0.1


def test_strata_without_units_are_told():
    with pytest.raises(pb.InputError, match="experimental needs"):
        pi.compatibility_test(KEY, [[[1, 1], [1, 1]]], [[[0, 0], [1, 1]]])
    with pytest.raises(pb.InputError, match="observational needs"):
        pi.compatibility_test(KEY, [[[0, 0], [0, 0]]], [[[1, 1], [1, 1]]])
    with pytest.raises(pb.InputError, match=r"shape \[num_strata, 2, 2\]"):
        pi.compatibility_test(KEY, [[1, 1], [1, 1]], [[1, 1], [1, 1]])
    with pytest.raises(pb.InputError, match="alpha"):
        pi.compatibility_test(KEY, [[[1, 1], [1, 1]]], [[[1, 1], [1, 1]]], alpha=0)


def test_a_violation_of_the_detectable_size_is_found_with_four_chances_in_five():
    """400 data sets: Monte Carlo error 0.02. Two strata of different sizes."""
    rng = np.random.default_rng(0)
    p11, mu0, chance = 0.4, 0.5, np.array([0.2, 0.3, 0.1, 0.4])  # cells 00, 01, 10, 11
    sizes = ((400, 300), (900, 600))

    def draw(violation):
        log = [rng.multinomial(n, chance).reshape(2, 2) for n, _ in sizes]
        mu = np.array([mu0, p11 - violation])
        yes = [rng.binomial(m, mu) for _, m in sizes]
        trial = [
            np.stack([m - y, y], axis=1) for (_, m), y in zip(sizes, yes, strict=True)
        ]
        return pi.compatibility_test(KEY, np.array(log), np.array(trial), num_draws=500)

    size = np.mean([draw(0.0).detectable[0] for _ in range(20)])
    assert 0.03 < size < 0.2
    power = np.mean([draw(size).p_value <= 0.05 for _ in range(400)])
    assert 0.8 - 3 * 0.02 < power < 0.95
    assert np.mean([draw(size / 2).p_value <= 0.05 for _ in range(100)]) < 0.6


def find_data():
    beside = [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    given = os.environ.get("PNS_DATA")
    for folder in [Path(given)] if given else beside:
        if (folder / "lalonde").is_dir():
            return folder / "lalonde"
    return None


def read_lalonde(name):
    """Reads treat and whether somebody earned anything in 1978."""
    path = find_data() / name
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    treat = np.array([float(row["treat"]) for row in rows]).astype(int)
    return treat, np.array([float(row["re78"]) > 0 for row in rows]).astype(int)


def cross(x, y):
    return np.bincount(2 * x + y, minlength=4).reshape(1, 2, 2)


@pytest.mark.skipif(find_data() is None, reason="set PNS_DATA to the public data")
def test_lalonde_nsw_with_cps_is_a_known_contradiction():
    """CPS units chose no training and mostly work; NSW controls mostly would not."""
    treat, earns = read_lalonde("nsw.csv")
    cps_treat, cps_earns = read_lalonde("cps_controls.csv.gz")
    chosen = treat == 1
    observational = cross(cps_treat, cps_earns) + cross(treat[chosen], earns[chosen])
    result = pi.compatibility_test(KEY, observational, cross(treat, earns))
    assert result.p_value < 0.001
    assert result.constraint == "p01 <= mu0"
    assert result.rejected[0].tolist() == [False, False, True, False]


def make_cells(seed=0, num_cells=12):
    """Draws counts of cells; the sources' shares of a cell differ."""
    rng = np.random.default_rng(seed)
    observational = rng.integers(1, 40, (num_cells, 2, 2)).astype(float)
    experimental = rng.integers(1, 40, (num_cells, 2, 2)).astype(float)
    return observational, experimental, np.arange(num_cells) % 3


def test_frequencies_are_those_of_cells_averaged_with_equal_weights_for_both_sources():
    """With a cell's own share as chance it weighs n m / (n + m), as Mantel-Haenszel's."""
    observational, experimental, stratum = make_cells()
    # Arms of equal size in all cells, so that an arm's mean over cells is the source's.
    experimental *= 20 / experimental.sum(axis=2, keepdims=True)
    n, m = (part.sum((1, 2)) for part in (observational, experimental))
    found = pi.balanced_counts(stratum, m / (n + m), observational, experimental)
    for s in range(3):
        here = stratum == s
        weight = (n * m / (n + m))[here]
        joint = observational[here] / n[here][:, None, None]
        wanted = np.average(joint, axis=0, weights=weight)
        np.testing.assert_allclose(found[0][s] / found[0][s].sum(), wanted)
        mu = experimental[here, :, 1] / experimental[here].sum(axis=2)
        shares = found[1][s, :, 1] / found[1][s].sum(axis=1)
        np.testing.assert_allclose(shares, np.average(mu, axis=0, weights=weight))


@pytest.mark.parametrize("sampled", [False, True])
def test_totals_are_effective_sample_sizes_counted_row_by_row(sampled):
    rng = np.random.default_rng(1)
    size = 300
    stratum, chance = rng.integers(0, 2, size), rng.uniform(0.2, 0.8, size)
    source, x, y = rng.integers(0, 2, (3, size))
    weights = rng.uniform(1, 9, size) if sampled else rng.integers(1, 4, size)
    cells = np.zeros((2, 2, size, 2, 2))  # weights and squares, of both sources
    for power in (1, 2):
        cells[power - 1, source, np.arange(size), x, y] = weights**power
    squares = (cells[1, 0], cells[1, 1]) if sampled else None
    found = pi.balanced_counts(stratum, chance, cells[0, 0], cells[0, 1], squares)
    own = np.where(source == 1, 1 - chance, chance)
    parts = [
        (source == 0, 0),
        ((source == 1) & (x == 0), 1),
        ((source == 1) & (x == 1), 2),
    ]
    for s in range(2):
        sizes = (found[0][s].sum(), *found[1][s].sum(axis=1))
        for rows, place in parts:
            rows = rows & (stratum == s)
            # A row of frequency 3 is three units.
            every = np.repeat(own[rows], 1 if sampled else weights[rows])
            every = every * weights[rows] if sampled else every
            kish = every.sum() ** 2 / np.sum(every**2)
            np.testing.assert_allclose(sizes[place], kish)


def test_equal_chances_leave_counts_as_they_are():
    observational, experimental, stratum = make_cells()
    found = pi.balanced_counts(stratum, np.full(12, 0.4), observational, experimental)
    for part, table in zip(found, (observational, experimental), strict=True):
        wanted = [table[stratum == s].sum(axis=0) for s in range(3)]
        np.testing.assert_allclose(part, wanted)


def test_the_chance_is_that_of_two_normal_laws():
    """Their log ratio is quadratic; 40,000 rows err by about 0.01."""
    rng = np.random.default_rng(0)
    z = np.concatenate(
        [rng.normal(0, 1, (20_000, 2)), rng.normal([0.5, 0], [1, 1.3], (20_000, 2))]
    )
    is_experimental = np.arange(40_000) >= 20_000
    ratio = 0.5 * z[:, 0] - 0.125 + z[:, 1] ** 2 / 2 * (1 - 1 / 1.69) - np.log(1.3)
    found = source_probability(z, is_experimental, np.arange(40_000) % 5)
    assert np.abs(found - special.expit(ratio))[np.abs(z).max(axis=1) < 2].max() < 0.03


def draw_rows(rng, size, is_experimental, fall):
    """Draws units at the boundary p11 = mu1, unless mu1 falls; z is shifted by 0.5."""
    z = rng.normal(0.5 * (not is_experimental), 1, (size, 1))
    treated = special.expit(0.5 * z[:, 0])
    p11 = treated * special.expit(1.2 * z[:, 0])
    p01 = (1 - treated) * 0.5
    if is_experimental:
        x = rng.integers(0, 2, size)
        y = rng.random(size) < np.where(x == 1, p11 - fall, p01 + treated / 2)
    else:
        x = (rng.random(size) < treated).astype(int)
        y = rng.random(size) < np.where(x == 1, p11 / treated, 0.5)
    cells = np.zeros((size, 2, 2))
    cells[np.arange(size), x, y.astype(int)] = 1
    return z, cells


def run_test(rng, balanced, fall=0.0, size=10_000):
    (z0, observational), (z1, experimental) = (
        draw_rows(rng, size, source, fall) for source in (False, True)
    )
    z, empty = np.concatenate([z0, z1]), np.zeros((size, 2, 2))
    tables = (
        np.concatenate([observational, empty]),
        np.concatenate([empty, experimental]),
    )
    chance = np.full(2 * size, 0.5)
    if balanced:
        fold = np.arange(2 * size) % 5
        chance = source_probability(z, np.arange(2 * size) >= size, fold)
    stratum = pi.neighborhoods(z, size)  # two, below and above the median
    strata = pi.balanced_counts(stratum, chance, *tables)
    return pi.compatibility_test(KEY, *strata, num_draws=1000)


@pytest.mark.slow
def test_the_test_holds_its_size_where_covariates_are_shifted_and_keeps_its_power():
    """200 data sets at 5%: Monte Carlo error 0.015. Without weights it rejects."""
    rng = np.random.default_rng(0)
    results = [run_test(rng, True) for _ in range(200)]
    assert np.mean([r.p_value <= 0.05 for r in results]) < 0.05 + 3 * 0.015
    # At the boundary, the slack of p11 <= mu1 is noise of the standard error claimed.
    noise = np.array([(r.slack / r.standard_error)[:, 0] for r in results])
    assert np.abs(noise.mean(axis=0)).max() < 4 / np.sqrt(200)
    np.testing.assert_allclose(noise.std(axis=0), 1, atol=4 / np.sqrt(400))
    plain = [run_test(rng, False).p_value <= 0.05 for _ in range(40)]
    power = [run_test(rng, True, fall=0.08).p_value <= 0.05 for _ in range(40)]
    assert np.mean(plain) > 0.5 and np.mean(power) > 0.9
