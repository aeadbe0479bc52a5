import importlib.util
import re
from pathlib import Path

import pytest

from motet.errors import OptionError
from motet.lab.display.charts import charts_of
from motet.lab.display.page import page_of
from motet.lab.display.picture import picture_of
from motet.lab.display.trials import read_trials
from motet.records.database import Database
from motet.records.record import Record

XTC = "order,i,j,X,time,peak,backend\n0,4,16,[0; 4; 16],0.002,0.5,mlir\n1,8,16,[1; 8; 16],0.001,1.0,mlir\n" \
      "1,8,32,[1; 8; 32],0.004,0.25,tvm\n"


def test_xtc_results_are_read(tmp_path: Path):
    (tmp_path / "r.csv").write_text(XTC)
    groups = {group.key: group for group in read_trials(str(tmp_path / "r.csv"))}
    assert [trial.seconds for trial in groups["mlir"].trials] == [0.002, 0.001]
    assert groups["tvm"].trials[0].parameters == {"order": "1", "i": "8", "j": "32"}


@pytest.mark.parametrize("text, words", [("a,b\n1,2\n", "last columns are X, time, peak, backend"), (
    "i,X,time,peak,backend\n1,x,fast,1,mlir\n", "r.csv:2: time and peak")])
def test_other_tables_are_refused(tmp_path: Path, text: str, words: str):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(OptionError, match=words):
        read_trials(str(tmp_path / "r.csv"))


def test_the_page_is_self_contained_and_escaped(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add(Record("k", "t", "<m>", {"class": "x", "rows": rows}, seconds=1e-3 / rows, subject="<script>",
                            when=float(rows)) for rows in range(1, 9))
    groups = [charts_of(group) for group in read_trials(str(tmp_path / "a.db"))]
    page = page_of("a.db", groups)
    assert not re.search(r"<script|https?://|src=|href=", page)
    assert page.count("<svg") == 3  # no roofline: the work is not known
    best = next(chart for chart in groups[0].charts if chart.title == "Best over trials")
    assert [value for _, value in best.series[0][1]] == sorted((1e3 / rows for rows in range(1, 9)), reverse=True)


def test_one_trial_has_charts(tmp_path: Path):
    (tmp_path / "r.csv").write_text("i,X,time,peak,backend\n1,[1],0.5,0.1,mlir\n")
    assert "<svg" in page_of("r", [charts_of(group) for group in read_trials(str(tmp_path / "r.csv"))])


def test_a_picture_needs_matplotlib(tmp_path: Path):
    (tmp_path / "r.csv").write_text(XTC)
    groups = [charts_of(group) for group in read_trials(str(tmp_path / "r.csv"))]
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(OptionError, match="pip install matplotlib"):
            picture_of(groups)
    else:
        assert picture_of(groups).startswith(b"\x89PNG")
