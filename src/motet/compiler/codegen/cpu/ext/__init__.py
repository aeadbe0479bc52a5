"""Operations over whole tensors: sorts, scans, scatters."""
