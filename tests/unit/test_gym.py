"""The Gymnasium environment: its checker, the reward, and the same decisions as a matcher."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import weft.gym
from lab.learning.gym import CLUSTER, Scheduling, synthetic
from lab.learning.gym_rate import rate
from lab.learning.learned import Learned, Network, load, save
from rm.match.choice_kernels import FEATURES
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.model.queues import QueueSpec
from weft.policies.presets import choose, with_options
from weft.workloads.cluster_file import load_cluster

REMAINING = FEATURES.index("remaining")
few = partial(synthetic, jobs=8, smaller=16)


def play(env, policy, seed):
    """One episode: (return, last info, decisions)."""
    seen, told = env.reset(seed=seed)
    total, count, over = 0.0, 0, False
    while not over:
        seen, reward, ended, cut, told = env.step(policy(seen))
        total, count, over = total + reward, count + 1, ended or cut
    return total, told, count


def first(seen):
    return int(np.argmax(seen["mask"]))


def shortest(seen):
    return int(np.argmin(np.where(seen["mask"], seen["candidates"][:, REMAINING], np.inf)))


@pytest.mark.slow
def test_the_checker_of_gymnasium_passes():
    check_env(gymnasium.make("weft/Scheduling-v0", jobs=few).unwrapped)
    assert weft.gym.Scheduling is Scheduling


def test_several_at_once():
    envs = gymnasium.make_vec("weft/Scheduling-v0", num_envs=2, vectorization_mode="sync", jobs=few)
    seen, _ = envs.reset(seed=3)
    assert seen["candidates"].shape == (2, 32, len(FEATURES))
    for _ in range(20):
        seen, rewards, *_ = envs.step(envs.action_space.sample())
        assert (rewards <= 0).all()
    envs.close()


def test_the_return_is_the_sum_of_completion_times():
    env = Scheduling(few, reward_s=1.0)
    total, told, count = play(env, first, 5)
    assert count > 20
    rows = env._simulation.recorder.jobs
    before = env._spent  # what was spent before the first decision is not in the return
    assert before.open == 0
    whole = sum(row.finish_s - row.job.arrival_s for row in rows)
    assert told["mean_jct_s"] == pytest.approx(whole / len(rows))
    early = whole + total
    assert 0 <= early < 60, "only the wait for the first choice is missing"


def test_the_agent_matters_and_a_seed_is_an_episode():
    env = Scheduling(partial(synthetic, jobs=20, smaller=4, interarrival_s=1.0))
    one, again = play(env, first, 1), play(env, first, 1)
    assert one == again
    better = play(env, shortest, 1)
    assert better[1]["mean_jct_s"] < 0.9 * one[1]["mean_jct_s"]
    assert play(env, first, 2)[1] != one[1]


def test_a_choice_that_is_none_is_the_first_one():
    env = Scheduling(few)
    masked = play(env, first, 4)
    assert play(env, lambda seen: 31, 4) == masked
    env.reset(seed=4)
    assert env.action_masks().tolist() == (env._asked.mask > 0).tolist()
    env.close()
    with pytest.raises(InputError, match="reset"):
        env.step(0)


def test_an_episode_may_be_cut_and_given_up():
    env = Scheduling(few, until_s=20.0)
    env.reset(seed=0)
    ended = cut = False
    while not (ended or cut):
        _, _, ended, cut, told = env.step(0)
    assert cut
    assert not ended
    assert told["now_s"] == 20.0
    env.reset(seed=1)  # in the middle of an episode
    env.reset(seed=1)
    env.close()


def test_jobs_with_nothing_to_decide_are_refused():
    alone = Job("alone", (Stage("a", 1, 1.0, {"vcores": 1.0}),))
    with pytest.raises(InputError, match="nothing to decide"):
        Scheduling([alone]).reset(seed=0)


@pytest.mark.parametrize("pace", ["prompt", "yarn"])
def test_a_network_decides_in_the_environment_as_it_does_as_a_matcher(tmp_path: Path, pace):
    """What is trained is what runs: same observations, same picks, to the last digit."""
    rng = np.random.default_rng(8)
    network = Network(rng.standard_normal(Network.size()))
    save(tmp_path / "n.json", network, {})
    network = load(tmp_path / "n.json")
    env = Scheduling(few, pace=pace, choices=64)
    _, told, _ = play(env, lambda s: network.choose(s["candidates"], s["mask"] > 0), 6)
    inside = env._simulation
    preset = with_options(
        choose(matcher="lab.learning.learned:Learned"),
        {"matcher.weights": str(tmp_path / "n.json")},
    )
    settings = SimSettings(
        preset,
        seed=env._simulation.settings.seed,
        prompt=pace == "prompt",
        manager=env._settings.manager,
    )
    jobs = [row.job for row in inside.recorder.jobs]
    outside = Simulation(load_cluster(CLUSTER), jobs, settings, Recorder())
    outside.run()
    assert outside.recorder.digest() == inside.recorder.digest()
    assert told["makespan_s"] == max(row.finish_s for row in outside.recorder.jobs)


def test_a_queue_below_its_guarantee_is_nothing_that_an_agent_can_take_away():
    """Two queues, one greedy agent: the other queue gets its half all the same."""
    spec = load_cluster("2x8vcores,8192memory_mb")
    halves = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
    stage = Stage("s", 60, 5.0, {"vcores": 1.0, "memory_mb": 512.0})
    jobs = [Job("a", (stage,), queue="root.a"), Job("b", (stage,), queue="root.b")]
    env = Scheduling(jobs, replace(spec, queues=halves))
    play(env, first, 0)
    ends = [row.finish_s for row in env._simulation.recorder.jobs]
    assert max(ends) < 1.2 * min(ends), "both halves were worked on side by side"


@pytest.mark.parametrize("action", [None, 1.5, "0"])
def test_an_action_is_a_whole_number(action: object):
    env = Scheduling(few)
    env.reset(seed=4)
    with pytest.raises(InputError, match="action: expected a whole number, got"):
        env.step(action)
    env.step(np.int64(0))
    env.close()
    with pytest.raises(InputError, match=r"choices: expected a whole number, got 2\.5"):
        Scheduling(few, choices=2.5)


@pytest.mark.parametrize("name", ["quiet_s", "until_s", "reward_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_times_that_lead_nowhere_are_refused(name: str, value: float):
    """Heartbeats every 0 s would have virtual time stand still for ever."""
    with pytest.raises(InputError, match="reward_s, quiet_s, until_s > 0"):
        Scheduling(few, **{name: value})


def test_a_policy_file_that_is_none_is_told(tmp_path: Path):
    path = tmp_path / "p.json"
    cases = {
        "{": "is no learned policy",
        "[]": "is no learned policy",
        json.dumps({"features": ["x"], "hidden": 8, "parameters": []}): "train it again",
        json.dumps({"features": list(FEATURES), "hidden": 8, "parameters": [1.0]}): "expected",
    }
    for text, says in cases.items():
        path.write_text(text)
        with pytest.raises(InputError, match=says):
            Learned(str(path))
    with pytest.raises(InputError, match="No such file"):
        Learned(str(tmp_path / "gone.json"))


def test_its_rate_is_of_decisions_that_were_taken(monkeypatch: pytest.MonkeyPatch):
    clock = iter([10.0, 12.0])
    monkeypatch.setattr("lab.learning.gym_rate.time.process_time", lambda: next(clock))
    assert rate(50, 1) == 25.0
