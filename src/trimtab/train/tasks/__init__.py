"""Where prompts come from and what a response is worth: sources of problems, verifiers, and the judge that survives them."""

from trimtab.train.tasks.judge import GivenUpError as GivenUpError
from trimtab.train.tasks.judge import Judge as Judge
from trimtab.train.tasks.protocol import Source as Source
from trimtab.train.tasks.table import check_replies as check_replies
from trimtab.train.tasks.table import check_task as check_task
from trimtab.train.tasks.table import is_at_hand as is_at_hand
from trimtab.train.tasks.table import source as source
