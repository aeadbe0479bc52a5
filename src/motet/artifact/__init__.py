"""The file format between compiler and runtime: schema, writer, reader and checks."""

from motet.artifact.reader import Artifact
from motet.artifact.writer import write_artifact

__all__ = ["Artifact", "write_artifact"]
