"""A kind of import contract that import-linter lacks: all that some modules may import, everything else forbidden."""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class NothingButContract(Contract):
    """`source` and what is below it import only each other, the standard library and `allowed_modules`."""

    source = fields.StringField()
    allowed_modules = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Broken by each import of anything else."""
        source = str(self.source)
        inside = {source, *graph.find_descendants(source)}
        tops = {*sys.stdlib_module_names, *self.allowed_modules}  # type: ignore[misc]  # a field holds its value here
        strangers = {
            (importer, imported)
            for importer in inside
            for imported in graph.find_modules_directly_imported_by(importer)
            if imported not in inside and imported.partition(".")[0] not in tops
        }
        return ContractCheck(kept=not strangers, metadata={"strangers": sorted(strangers)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line for each import that is too much."""
        for importer, imported in check.metadata["strangers"]:
            output.print_error(f"{importer} imports {imported}, which is neither its own nor allowed.")
