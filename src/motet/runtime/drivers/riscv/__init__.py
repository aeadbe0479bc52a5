"""The driver for the RISC-V accelerator: protocol, emulator, memory and work."""
