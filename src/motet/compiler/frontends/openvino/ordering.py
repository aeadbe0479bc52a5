"""x"""
from __future__ import annotations

from motet.compiler.frontends.openvino.writer import Rules

RULES: Rules = {}
