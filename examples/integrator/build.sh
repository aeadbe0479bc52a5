#!/bin/sh
# Exports examples/fragment.mlir as C, and links it into main.c; the folder to build in is the argument.
set -eu
here=$(dirname "$0")
motet export "$here/../fragment.mlir" --target 'host{cpu=native}' --format c -o "$1/fragment"
cc -std=c11 -O2 -Wall -I "$1/fragment" -o "$1/integrator" "$here/main.c" "$1"/fragment/*.c "$1"/fragment/*.o -lm
"$1/integrator"
