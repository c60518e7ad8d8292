"""Secrets of every kind that must not get out."""

PLANTED = {  # as they are met: in a variable, a log line, an exception, a command
    "hf": "hf_" + "Qz7T" * 8,
    "github": "ghp_" + "Kd82" * 9,
    "aws": "AKIA" + "QWER5678TYUI1234",
    "wandb": "WANDB_API_KEY=" + "0f1e2d3c4b" * 4,
    "url": "https://someone:" + "s3cretpassw0rd" + "@host.example/x.git",
    "header": "Authorization: Bearer " + "ZmFrZS10b2tlbi0xMjM0NTY3ODkw",
}
HIDDEN = [
    text.split("=")[-1].split(" ")[-1].removeprefix("https://someone:").split("@")[0]
    for text in PLANTED.values()
]


def leaks(text: str) -> list[str]:
    return [secret for secret in HIDDEN if secret in text]
