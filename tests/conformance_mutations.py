"""For rows of docs/conformance.md: what an implementer would get wrong there, as edits; and for
rules of our own formats, which are not listed there (conformance_own.py).

The row's tests must fail with each of them. `tests/mutate_conformance.py` makes them;
`tests/test_mutate_conformance.py` checks that each can be made.
"""

from conformance_bsp import BSP
from conformance_mutation import Mutation
from conformance_mvds import MVDS
from conformance_own import OWN
from conformance_sds import SDS

__all__ = ["MUTATIONS", "Mutation"]

MUTATIONS = [*BSP, *MVDS, *SDS, *OWN]
