"""Measures the project's structure against limits.

    python -m checks.structure [--show CHECK]

Every check counts findings in `src/`: imports that the architecture forbids, circles, modules and functions that are
too long, passes without a name in the registry or without a test, names that several classes share. `ALLOWED` says how
many findings a check may have: 0 is the goal, another number is a debt that only shrinks. Exits with 1 where a check
has more.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src"
TESTS = ROOT.parent / "tests" / "filecheck"
REGISTRY = "motet.compiler.passes.registry"
PASS_CLASSES = {"Pass", "FunctionPass", "OperationPass", "ModulePass"}
LINES_OF_MODULE = 450
LINES_OF_FUNCTION = 60
PARAMETERS = 7

# Findings that a check may have; 0 where it is not named.
ALLOWED: dict[str, int] = {}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module of the package with its syntax."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> frozenset[str]:
        """The names that its imports mention, including those for types and within functions: modules, and for `from a
        import b` both a and a.b."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
        return frozenset(found)

    @cached_property
    def own_modules(self) -> frozenset[str]:
        """The modules below a package that it only gives to others: `from motet import jax as jax`."""
        return frozenset(f"{self.name}.{alias.name}" for node in ast.walk(self.tree)
                         if isinstance(node, ast.ImportFrom) and node.module == self.name
                         for alias in node.names if alias.name == alias.asname)

    @cached_property
    def words(self) -> Counter[str]:
        """How often the module mentions a name."""
        return Counter(mentioned(self.tree))

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def line(self, number: int) -> str:
        return self.text.splitlines()[number - 1]


Modules = Sequence[Module]
Check = Callable[[Modules], Iterator[str]]


def read_modules(root: Path = ROOT) -> list[Module]:
    """All modules below `root`."""
    found: list[Module] = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, path.read_text()))
    return found


def backend_imports(modules: Modules) -> Iterator[str]:
    """Imports of one back end, a package of `codegen` that has a `backend.py`, by another, or by the other packages,
    which are libraries for several back ends."""
    package = "motet.compiler.codegen."
    packages = {path.parent.name for path in ROOT.glob(package.replace(".", "/") + "*/__init__.py")}
    backends = {path.parent.name for path in ROOT.glob(package.replace(".", "/") + "*/backend.py")}
    for module in modules:
        own = first_below(module.name, package)
        if own not in packages:
            continue
        for name in sorted(module.imports):
            if (other := first_below(name, package)) != own and other in backends:
                yield f"{module.name} imports {name}"


def first_below(name: str, package: str) -> str:
    """The part of a module's name that follows `package`; "" if it is not in there."""
    return name[len(package) :].split(".")[0] if name.startswith(package) else ""


def kernel_imports(modules: Modules) -> Iterator[str]:
    """Imports of llvmlite, Triton or a back end by the description of kernels."""
    for module in modules:
        if module.name.startswith("motet.compiler.kernels"):
            for name in sorted(module.imports):
                if name.split(".")[0] in ("llvmlite", "triton") or name.startswith("motet.compiler.codegen"):
                    yield f"{module.name} imports {name}"


def frontend_imports(modules: Modules) -> Iterator[str]:
    """Imports of placement by frontends, which return before the pipeline places a program."""
    for module in modules:
        if module.name.startswith("motet.compiler.frontends"):
            for name in sorted(module.imports):
                if name.startswith("motet.compiler.placement"):
                    yield f"{module.name} imports {name}"


def lab_imports(modules: Modules) -> Iterator[str]:
    """Imports of the lab by what it is built on: the compiler reads the records that the lab writes."""
    for module in modules:
        if not module.name.startswith(("motet.lab", "motet.tools")):
            for name in sorted(module.imports):
                if name == "motet.lab" or name.startswith("motet.lab."):
                    yield f"{module.name} imports {name}"


def package_pairs(modules: Modules) -> Iterator[str]:
    """Packages of the project and of the compiler that import each other. What both need belongs below them."""
    imports: dict[str, set[str]] = defaultdict(set)
    names = {module.name for module in modules}
    for module in modules:
        imports[package_of(module.name)] |= {package_of(name) for name in module.imports & names}
    for package, others in sorted(imports.items()):
        for other in sorted(others):
            if package and other and package < other and package in imports[other]:
                yield f"{package} and {other}"


def package_of(name: str) -> str:
    """The package of `motet`, or of `motet.compiler`, that a module is in; "" for one directly in these two."""
    parts = name.split(".")
    level = 2 if parts[1:2] == ["compiler"] else 1
    return ".".join(parts[: level + 1]) if len(parts) > level + 1 else ""


def circles(modules: Modules) -> Iterator[str]:
    """Groups of modules that import each other, including imports for types and late imports."""
    names = {module.name for module in modules}
    edges = {m.name: sorted((m.imports & names) - {m.name} - m.own_modules) for m in modules}
    for group in strongly_connected(edges):
        if len(group) > 1:
            yield " · ".join(sorted(group))


def strongly_connected(edges: dict[str, list[str]]) -> Iterator[list[str]]:
    """The strongly connected components of a graph (Tarjan 1972), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        waiting.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    waiting.add(other)
                    work.append((other, iter(edges[other])))
                    break
                if other in waiting:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group: list[str] = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        waiting.discard(group[-1])
                    yield group


def long_modules(modules: Modules) -> Iterator[str]:
    """Modules of more than 450 lines."""
    for module in modules:
        if (lines := module.text.count("\n")) > LINES_OF_MODULE:
            yield f"{module.name}: {lines} lines"


def long_functions(modules: Modules) -> Iterator[str]:
    """Functions of more than 60 lines."""
    for module in modules:
        for function in module.functions():
            if (lines := (function.end_lineno or function.lineno) - function.lineno + 1) > LINES_OF_FUNCTION:
                yield f"{module.name}.{function.name}: {lines} lines"


def many_parameters(modules: Modules) -> Iterator[str]:
    """Functions of more than 7 parameters without a comment that gives the reason: a line above them that names the
    parameters."""
    for module in modules:
        for function in module.functions():
            arguments = function.args
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            count = len([name for name in names if name not in ("self", "cls")])
            first = min((d.lineno for d in function.decorator_list), default=function.lineno)
            reason = first > 1 and re.match(r"\s*# .*\bparameters\b", module.line(first - 1), re.I)
            if count > PARAMETERS and not reason:
                yield f"{module.name}.{function.name}: {count} parameters"


def passes_outside_registry(modules: Modules) -> Iterator[str]:
    """Passes unknown to the registry: classes derived from a pass, and classes in the packages of passes with a name
    and `run`; also names of passes without a class."""
    known = registered_passes(modules)
    found: set[str] = set()
    for module in modules:
        in_package = module.name.rpartition(".")[0] in {place.rpartition(".")[0] for place in known.values()}
        for node in module.tree.body:
            if not isinstance(node, ast.ClassDef) or not (name := pass_name(node)):
                continue
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if not bases & PASS_CLASSES and not in_package:
                continue
            if known.get(name) == module.name:
                found.add(name)
            else:
                yield f"{module.name}.{node.name}: {name}"
    for name in sorted(known.keys() - found):
        yield f"{known[name]}: no class has the name {name}"


def pass_name(node: ast.ClassDef) -> str:
    """The value of `name` of a class with a method of passes; "" for other classes."""
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    names = [
        each.value.value for each in node.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id == "name"
        and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
    ]
    return names[0] if names and methods & {"run", "run_on", "rewrite"} else ""


def registered_passes(modules: Modules) -> dict[str, str]:
    """The names of passes, with their modules in the registry."""
    registry = next(module for module in modules if module.name == REGISTRY)
    for node in registry.tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "PACKAGES":
            assert isinstance(node.value, ast.Call)
            packages: dict[str, tuple[str, ...]] = ast.literal_eval(node.value.args[0])
            return {
                name: f"{package}.{name.replace('-', '_')}" for package, names in packages.items() for name in names
            }
    raise LookupError(f"{REGISTRY} has no PACKAGES")


def passes_without_test(modules: Modules) -> Iterator[str]:
    """Passes that no RUN line of a FileCheck test names."""
    lines = [
        line for path in sorted(TESTS.rglob("*.mlir")) for line in path.read_text().splitlines() if "RUN:" in line
    ]
    tested = {name for line in lines for name in re.findall(r"[\w-]+", line)}
    yield from sorted(registered_passes(modules).keys() - tested)


def shared_class_names(modules: Modules) -> Iterator[str]:
    """Names of classes that several modules define."""
    where: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                where[node.name].append(module.name)
    for name, places in sorted(where.items()):
        if len(places) > 1:
            yield f"{name}: {', '.join(places)}"


def unused(modules: Modules) -> Iterator[str]:
    """Functions, classes and constants of modules that nothing in the package names: no import, no other place of their
    own module, no attribute, no word of a string. Passes are found by their names, decorated functions by what
    decorates them; tests alone are no users."""
    named: dict[str, set[str]] = defaultdict(set)  # the modules that name something so, as a word or by an import
    for module in modules:
        for word in module.words:
            named[word].add(module.name)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and pass_name(node):
                continue
            if isinstance(node, Function) and node.decorator_list:
                continue
            inside = Counter(mentioned(node))
            for name in defined(node):
                elsewhere = named[name] - {module.name} or module.words[name] > inside[name]
                if not elsewhere and not name.startswith("__"):
                    yield f"{module.name}.{name}"


def defined(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def mentioned(tree: ast.AST) -> Iterator[str]:
    """The names that are read somewhere in a tree, and the words of its strings, those of docstrings excepted."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield from re.findall(r"\w+", node.value)


def hidden_misspellings(modules: Modules) -> Iterator[str]:
    """Modules whose `__getattr__` makes type checkers take any name for an attribute, also a misspelt one. It belongs
    under `if not TYPE_CHECKING:`, and imports of the names that it loads under `if TYPE_CHECKING:`."""
    for module in modules:
        if any(isinstance(node, Function) and node.name == "__getattr__" for node in module.tree.body):
            yield module.name


CHECKS: dict[str, tuple[str, Check]] = {
    "backend-imports": ("imports between back ends", backend_imports),
    "kernel-imports": ("imports of llvmlite, triton or a back end under kernels/", kernel_imports),
    "frontend-imports": ("imports of placement under frontends/", frontend_imports),
    "lab-imports": ("imports of the lab outside lab/ and tools/", lab_imports),
    "package-pairs": ("packages that import each other", package_pairs),
    "circles": ("circles of imports", circles),
    "long-modules": (f"modules above {LINES_OF_MODULE} lines", long_modules),
    "long-functions": (f"functions above {LINES_OF_FUNCTION} lines", long_functions),
    "many-parameters": (f"functions of more than {PARAMETERS} parameters", many_parameters),
    "passes-outside-registry": ("passes outside the registry", passes_outside_registry),
    "passes-without-test": ("passes without a FileCheck test", passes_without_test),
    "unused": ("functions, classes and constants that nothing uses", unused),
    "hidden-misspellings": ("modules in which type checkers find any name", hidden_misspellings),
    "shared-class-names": ("class names in several modules", shared_class_names),
}


def main() -> int:
    parser = argparse.ArgumentParser("python -m checks.structure", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", choices=[*CHECKS, "all"], help="print the findings of this check as well")
    given = parser.parse_args()
    modules = read_modules()
    lines = sum(module.text.count("\n") for module in modules)
    failed = False
    for name, (title, check) in CHECKS.items():
        found = list(check(modules))
        allowed = ALLOWED.get(name, 0)
        failed |= len(found) > allowed
        limit = "" if len(found) == allowed == 0 else f"   (allowed: {allowed})"
        print(f"{len(found):5}  {title}{limit}")
        if given.show in (name, "all"):
            print(*(f"       {finding}" for finding in found), sep="\n")
    packages = Counter(module.name.split(".")[1] if "." in module.name else module.name for module in modules)
    print(f"{len(modules)} modules in {len(packages)} packages, {lines:,} lines")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
