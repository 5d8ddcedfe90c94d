// Owns the precompiled header, so that it can be built before any other source exists.
