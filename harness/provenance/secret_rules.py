"""How secrets look where no name is assigned a value: rules, each with what is put in their place.

Every rule has the words without which it cannot apply: most of a log is asked for those alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.provenance.own_secrets import HIDDEN

BEFORE_KEY = (
    r"api|access|private|secret|account|signing|encryption|master|shared|sharedaccess|"
    r"webhook|deploy|"
    r"license|subscription|stripe|openai|anthropic|wandb|hf|aws|azure|gcp|s3|slack|bot|ssh|service"
)
NAMED = rf"(?:token|secret|passw(?:or)?d|passphrase|credentials?|auth|(?:{BEFORE_KEY})[-_]?key)"
_BARE = r"(?:[^\s,;&\"']|[,;&](?![\s,;&\"']|[\w.-]{1,60}\\?[\"']?\s?[=:]|$)){1,4000}"
VALUE = (
    r"(\"\"\"[\s\S]{0,4000}?\"\"\"|'''[\s\S]{0,4000}?'''|"
    r"(?P<slashes>\\{1,8})(?P<mark>[\"']).{0,4000}?(?<!\\)(?P=slashes)(?P=mark)|"  # \"...\"
    r"\"(?:[^\"\\\n]|\\[\s\S])*\"|'(?:[^'\\\n]|\\[\s\S])*'|"
    r"[|>][+-]?\n(?:[ \t]+\S[^\n]*\n?){1,200}|"  # YAML's texts of several lines
    rf"(?:{_BARE}\\\n\s*){{1,50}}{_BARE}|{_BARE})"
)


def _without_user(match: re.Match[str]) -> str:
    """`-u name:password` without the password; 1000:1000 is a user and a group."""
    return match[0] if match[3].isdigit() else f"{match[1]}{match[2]}:{HIDDEN}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A look of secrets, and what is put in its place."""

    words: tuple[str, ...]  # one of these stands in every text, in small letters, that has it
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str] = HIDDEN
    sure: bool = False  # it is no secret's name alone, so that it counts in a program too


KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
RULES = (
    Rule(
        words=("private key", "private-lines"),
        pattern=re.compile(
            rf"{KEY_BEGINS.pattern}[\s\S]*?(?:{KEY_ENDS.pattern}|\Z)|"
            r"Private-Lines: \d+\s*\n(?:[A-Za-z0-9+/=]+\n?)+"
        ),
        replacement="[redacted key]",
    ),
    Rule(
        words=("://",),
        pattern=re.compile(
            r"\b([a-z][a-z0-9+.-]{0,20}://)"
            r"(?:[^\s/@:\"'<>]{0,200}:(?!\d{1,5}/)[^\s\"'<>]{1,500}|[^\s/@]{1,500})@(?=[\w\[])"
        ),
        replacement=rf"\1{HIDDEN}@",
    ),
    Rule(
        words=("hook",),
        sure=True,
        pattern=re.compile(
            r"(?i)(https?://(?:hooks?\.[\w.-]{1,100}|[\w.-]{1,100}\.webhook\.office\.com|"
            r"[\w.-]{0,60}discord(?:app)?\.com/api/webhooks|"
            r"[\w.-]{1,100}/(?:[\w.-]{1,40}/){0,3}(?:web)?hooks?)/)[^\s\"'<>]+"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("sig", "key=", "code="),
        pattern=re.compile(
            r"(?i)([?&;](?:amp;)?(?:sig|signature|x-amz-signature|x-goog-signature|key|code)=)"
            r"[^\s&\"'<>;,]{6,}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("password", "passwd"),
        pattern=re.compile(
            r"(?i)((?:\b(?:machine|default|login)\s[^\n]{0,200}?\s|^\s*)"
            r"passw(?:or)?d\s+)(?![=:])\S+"
            r"(?=[ \t]*(?:$|account|machine|#))",
            re.MULTILINE,
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("env", "setdefault"),
        pattern=re.compile(
            rf"(?i)((?:environ|env|setdefault|getenv|putenv|setenv)\b[.\w]{{0,20}}\(\s*\\?[\"']"
            rf"(?:[\w.-]{{0,100}}[_.-])?(?:{NAMED}|KEY)\\?[\"']\s*,\s*)(?!\[redacted){VALUE}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("token", "secret", "passw", "passphrase", "credential", "auth", "key"),
        pattern=re.compile(
            rf"(?i)((?<![\w-])--?(?:[\w.-]{{0,100}}[_.-])?(?:{NAMED})\s+)(?!-|\[redacted){VALUE}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("-u", "--user"),
        pattern=re.compile(r"((?<![\w-])(?:-u|--user)[ =]+)([^\s:\"'/]{1,100}):([^\s\"']{4,})"),
        replacement=_without_user,
    ),
    Rule(
        words=("wandb login",),
        pattern=re.compile(r"(\bwandb login\s+(?:--\S+\s+){0,3})[^\s-]\S{15,}"),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("authorization",),
        pattern=re.compile(r"(?i)\b(authorization\\*[\"']?\s*[:=]\s*\\*[\"']?\w+\s+)[^\s\"'\\]+"),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("bearer", "basic"),
        pattern=re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*[\d=])[A-Za-z0-9._~+/=-]{8,}"),
        replacement=rf"\1 {HIDDEN}",
    ),
    Rule(
        words=(
            *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "sk_", "rk_"),
            *("xox", "xapp-", "akia", "asia", "eyj", "aiza", "wandb_v", "glpat-", "npm_", "pypi-"),
            *("sg.", "ya29.", "nvapi-", "r8_", "gsk_", "hvs.", "dop_v1_", "shpat_", "dapi", "key-"),
            *("age-secret", "whsec_", "bot", ":aa"),
        ),
        sure=True,
        pattern=re.compile(
            r"(?<![A-Za-z0-9_])(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|"
            r"github_pat_\w{20,}|"
            r"sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_\w{10,}|whsec_[\w+/=-]{16,}|"
            r"xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|"
            r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|AIza[\w-]{30,}|wandb_v\d_\w{20,}|glpat-[\w-]{16,}|"
            r"npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|SG\.[\w-]{16,}\.[\w-]{16,}|ya29\.[\w-]{20,}|"
            r"nvapi-[\w-]{20,}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{20,}|hvs\.[\w-]{20,}|"
            r"dop_v1_[0-9a-f]{40,}|shpat_[0-9a-f]{20,}|dapi[0-9a-f]{32}|key-[0-9a-f]{32}|"
            r"AGE-SECRET-KEY-1[A-Z0-9]{20,}|(?:bot)?\d{8,10}:AA[\w-]{30,})"
        ),
    ),
    Rule(
        words=("lin_api_", "dp."),
        sure=True,
        pattern=re.compile(
            r"(?<![A-Za-z0-9_])(?:lin_api_[A-Za-z0-9]{20,}|dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9]{20,})"
        ),
    ),
    Rule(  # given to a name without a sign between them
        words=("set", "config", "</"),
        pattern=re.compile(
            r"(?i)((?:\b(?:setenv|setx|set|set -\w{1,3}|config)[ \t]+"
            rf"(?:[\w.-]{{0,100}}[_.-])?{NAMED}[ \t]+\"?|"
            rf"<(?:[\w:-]{{0,100}}[_.:-])?{NAMED}>\s*))(?!\[redacted)(?=[^\s<]*\d)[^\s<\"]{{8,}}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(  # a name and its value, each called so
        words=("value",),
        pattern=re.compile(
            rf"(?i)(\bname\\*[\"']?\s*[:=]\s*\\*[\"']?(?:[\w.-]{{0,100}}[_.-])?{NAMED}\\*[\"']?"
            rf"[\s,]+\\*[\"']?value\\*[\"']?\s*[:=]\s*)(?!\[redacted){VALUE}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("cookie",),
        pattern=re.compile(
            r"(?i)\b(cookie\\*[\"']?\s*[:=]\s*\\*[\"']?)[\w.-]{1,60}=[^\n\"'\\]{6,}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("sshpass", "mysql", "pass:", "key-data"),
        pattern=re.compile(
            r"(?i)(\bsshpass\s+-p\s*|\bmysql\w{0,20}\s(?:[^\n]{0,100}?\s)?-p|"
            r"-pass(?:in|out)?\s+pass:|\bclient-key-data\s*:\s*)[^\s\"']{4,}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(
        words=("_pass",),
        pattern=re.compile(
            r"(?i)\b((?:[a-z0-9]{1,40}_){0,5}(?:db|sql|mysql|postgres|pg|redis|mongo|smtp|e?mail|"
            rf"ftp|ssh|api|user|admin|root|proxy)_pass[\"']?\]?\s*[=:]\s*)(?!\[redacted){VALUE}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(  # in words
        words=("passw", "passphrase", "key", "token", "secret"),
        pattern=re.compile(
            r"(?i)\b((?:(?:password|passwd|passphrase|api[ _-]key|auth[ _-]token|access[ _-]token|"
            r"secret)\s+(?:is|was|->)|wandb\b[^\n]{0,60}?\bkey\\*[\"']?\s*[=:])\s*:?\s*"
            r"\\*[\"'`]?)(?=\S*\d)(?=\S*[A-Za-z])[^\s\"'`\\]{8,}"
        ),
        replacement=rf"\1{HIDDEN}",
    ),
    Rule(  # a private key in JSON
        words=('"kty',),
        pattern=re.compile(r"(\"(?:d|p|q|dp|dq|qi|k)\"\s*:\s*\")[\w-]{16,}"),
        replacement=rf"\1{HIDDEN}",
    ),
)
