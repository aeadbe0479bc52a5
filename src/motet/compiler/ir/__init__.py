"""What passes share: programs and their conventions, upstream's bindings, attributes, sizes."""
