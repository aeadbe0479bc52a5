"""Schedules compiled by the workers of a Dask cluster."""

import importlib
import importlib.util
from typing import Any

import pytest

from motet.compiler.kernels.schedule import KernelSchedule
from motet.errors import MotetError, OptionError
from motet.lab.language import parse_schedule
from motet.lab.subject import compile_with, open_program, subject_of
from motet.lab.workers import workers_of

needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="Dask is not installed")


@needs_dask
@pytest.mark.slow
def test_workers_of_a_cluster_compile_what_this_process_would():
    distributed: Any = importlib.import_module("distributed")
    subject = subject_of(open_program("matmul:12x20x9"))
    texts = ['{"i": {}, "j": {}, "k": {}, "j#4": {"vectorize"}}', '{"j": {}, "k": {}, "i": {}, "i#2": {"unroll"}}']
    schedules: list[KernelSchedule] = [parse_schedule(text, subject.kernel) for text in texts]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, workers_of(cluster.scheduler_address) as workers:
        assert workers.count == 1
        found = workers.compile(subject, schedules)
    for each, schedule in zip(found, schedules, strict=True):
        assert not isinstance(each, MotetError), each
        assert each.manifest.functions == compile_with(subject, schedule).manifest.functions


@needs_dask
@pytest.mark.slow
def test_workers_that_die_are_one_error():
    distributed: Any = importlib.import_module("distributed")
    subject = subject_of(open_program("matmul:12x20x9"))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, workers_of(cluster.scheduler_address) as workers:
        cluster.close()
        with pytest.raises(OptionError, match="workers tcp://"):
            workers.compile(subject, [subject.chosen])


@needs_dask
@pytest.mark.slow
def test_an_address_without_a_scheduler_is_one_error():
    with pytest.raises(OptionError, match="no scheduler"), workers_of("tcp://127.0.0.1:9"):
        pass


@pytest.mark.parametrize("text", ["", "foo", "local:0", "local:x", "local:99999"])
def test_unknown_workers_are_refused(text: str):
    with pytest.raises(OptionError, match="--workers"), workers_of(text):
        pass
