"""Operations on whole tensors: sorts, scans, scatters."""
