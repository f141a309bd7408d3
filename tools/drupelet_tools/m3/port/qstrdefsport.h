// This port has no names beyond those that the build collects from its sources.
