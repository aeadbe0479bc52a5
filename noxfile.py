"""Checks of the package with several versions of Python: `nox` runs those that are installed.

Each session installs the wheel alone, as a user does: it must run an artifact and report what is missing. The session
`tests` has the compiler, too, and runs the unit tests of artifacts and the runtime.
"""

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["runtime"]


@nox.session(python=PYTHONS)
def runtime(session: nox.Session) -> None:
    """The wheel with the runtime's packages and no others."""
    session.install(".")
    session.run("motet", "doctor")
    session.run("python", "-m", "motet.runtime.conformance", "null", "--only", "memory", "--only", "timelines")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The unit tests, with the compiler."""
    session.install(".[test]")
    session.run("python", "-m", "pytest", "-q", "-n", "2", "-m", "not slow",
                "tests/unit/artifact", "tests/unit/runtime")
