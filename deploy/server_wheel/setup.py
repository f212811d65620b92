"""Builds a wheel for this system and any Python: it holds programs, not modules."""

import os

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class OfPrograms(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithPrograms(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(version=os.environ["CONVGRAD_VERSION"], cmdclass={"bdist_wheel": OfPrograms},
      distclass=WithPrograms)
