"""What the command line finds around it: settings, folders, keys, interpreter. Read once; everything below gets
parameters."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from cuda_tui.config import PROJECT_FILE, USER_FILE, Settings, load_settings
from cuda_tui.secrets import KEYS_FILE, Found, Masker, find_key, secret_values

if TYPE_CHECKING:
    from cuda_tui.cli.devices import Choice, Host

APP = "cuda-tui"


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Ours under the XDG base folders."""

    config: Path
    state: Path
    data: Path
    cache: Path

    @classmethod
    def of_user(cls) -> "Folders":
        """Those of the person who runs the program."""
        return cls(
            config=platformdirs.user_config_path(APP),
            state=platformdirs.user_state_path(APP),
            data=platformdirs.user_data_path(APP),
            cache=platformdirs.user_cache_path(APP),
        )

    @property
    def sessions(self) -> Path:
        """Where session logs lie."""
        return self.state / "sessions"

    @property
    def workspaces(self) -> Path:
        """Where new workspaces are made."""
        return self.data / "workspaces"

    @property
    def log(self) -> Path:
        """The program's own log, with tracebacks."""
        return self.state / "cuda-tui.log"


@dataclass(frozen=True)
class Surroundings:
    """Settings and environment of one run of the program.

    `mask` hides the values of variables that look like secrets, and of every key that was looked up.
    """

    settings: Settings
    folders: Folders
    environ: Mapping[str, str]
    mask: Masker

    @classmethod
    def read(cls, flags: Mapping[str, Any]) -> "Surroundings":
        """Read everything. Raises UsageError naming the setting that cannot be used."""
        folders = Folders.of_user()
        settings = load_settings(
            flags, environ=os.environ, project=Path.cwd() / PROJECT_FILE, user=folders.config / USER_FILE
        )
        return cls(settings, folders, dict(os.environ), Masker(secret_values(os.environ)))

    def with_settings(self, settings: Settings) -> "Surroundings":
        """The same surroundings under other settings."""
        return Surroundings(settings, self.folders, self.environ, self.mask)

    @cached_property
    def python(self) -> str:
        """The interpreter that runs the user's model."""
        from cuda_tui.evaluation.build.interpreter import choose_python

        return choose_python(self.settings.python, self.environ, own=sys.executable)

    @cached_property
    def worker_environment(self) -> dict[str, str]:
        """The allow-listed environment of builds, shell and workers."""
        from cuda_tui.sandbox.access import environment

        return environment(self.environ, python=self.python)

    @cached_property
    def host(self) -> "Host":
        """Where to look for devices."""
        from cuda_tui.cli.devices import Host

        return Host(python=self.python, env=self.worker_environment)

    @cached_property
    def choice(self) -> "Choice":
        """The device asked for, else a GPU that can be worked on, else the CPU. Takes up to half a second."""
        from cuda_tui.cli.devices import Choice, default_device

        return Choice(device=self.settings.device) if self.settings.device else default_device(self.host)

    def key(self, variable: str) -> Found | None:
        """A provider's key, if there is one."""
        if not variable:
            return None
        found = find_key(variable, environ=self.environ, keys_file=self.folders.config / KEYS_FILE)
        if found is not None:
            self.mask.add(found.value)
        return found
