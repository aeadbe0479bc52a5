"""ELF files, read and written without a linker or a toolchain.

`structures.py` has the structures and reads headers, sections, segments and symbols of any file; `objects.py` reads
relocatable objects, `linking.py` lays them out and links them for an address by the tables of `relocations.py`;
`executables.py` writes static executables.
"""
