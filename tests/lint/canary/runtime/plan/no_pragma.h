// A header that could be read twice.
