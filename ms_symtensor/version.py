"""The version of this package, which plans record."""

VERSION = "0.1.0"
