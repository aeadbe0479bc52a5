"""Pages and pictures of records."""
