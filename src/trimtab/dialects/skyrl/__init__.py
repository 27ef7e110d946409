"""SkyRL: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="skyrl",
    title="SkyRL",
    roots=("trainer", "generator", "data", "environment"),
    packages=("skyrl", "skyrl_train"),
    programs=r"skyrl\w*\.\w.*|(examples|integrations)\.(train\.)?\w[\w.]*\.main_?\w*|skyrl_train.*",
    own_keys=r"trainer\.algorithm\..*|generator\.inference_engine.*",
)
