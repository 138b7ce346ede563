"""Converts values files and manifests of other tools into values of this chart."""
