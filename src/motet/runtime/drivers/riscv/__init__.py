"""The RISC-V accelerator: its protocol, the emulator, its memory and work."""
