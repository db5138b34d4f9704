"""Import of Python files outside a package: recipes and user code."""

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


class UncachedLoader(SourceFileLoader):
    """Compile a file at each import, since the bytecode cache cannot distinguish versions with the
    same size and second.
    """

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def module_spec_of_file(name: str, path: Path) -> tuple[ModuleSpec, UncachedLoader] | None:
    """Return the spec and loader that import a Python file as the module `name`; None if the file
    name does not end in `.py`.
    """
    loader = UncachedLoader(name, str(path.absolute()))
    module_spec = spec_from_file_location(name, path, loader=loader)
    return (module_spec, loader) if module_spec is not None and path.suffix == ".py" else None
