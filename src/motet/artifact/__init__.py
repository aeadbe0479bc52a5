"""The file that passes between compiler and runtime: its schema, writer and reader."""

from motet.artifact.reader import Artifact
from motet.artifact.writer import write_artifact

__all__ = ["Artifact", "write_artifact"]
