"""In the place of vLLM's transfer of weights over NCCL: a file, which the stand-in of its server reads."""

import itertools
import os

from tests.plugins.commands.figures import keep_weights

STEPS = itertools.count()


class NCCLWeightTransferEngine:
    """As SkyRL's sender calls it. The first weights that are sent are those before the first step."""

    @staticmethod
    def trainer_init(settings):
        return None

    @staticmethod
    def trainer_send_weights(iterator, trainer_args):
        keep_weights(os.environ["KEPT_WEIGHTS"], next(STEPS), dict(iterator))
