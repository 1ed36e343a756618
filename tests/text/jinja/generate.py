# SPDX-License-Identifier: Apache-2.0
"""Random conversations, and random templates over the variables of cases.py."""
import json

WORDS = ["hello", "Wie geht's?", "Łódź", "天气", "👩‍🚀", "  ", "\n", "\n\n", "\t", "'", '"', "\\", "<b>&amp;</b>", "{{ x }}",
         "{% if %}", "{#", "<|user|>", "<|im_end|>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "[gMASK]<sop>",
         "<think>", "</think>", "<think>\nhm\n</think>\nso", "/quiet", "\u00a0", "\u3000", "\u200b", "\x7f", "\x1f", "é", "0", "-1.5e3"]
NAMES = ["get_weather", "search-web", "f", "über", "run_python_code"]


def text(r, most=6):
    return "".join(r.choice(WORDS) + r.choice(["", " "]) for _ in range(r.randint(0, most)))


def value(r, depth=2):
    kind = r.randint(0, 8 if depth else 6)
    if kind == 7:
        return [value(r, depth - 1) for _ in range(r.randint(0, 3))]
    if kind == 8:
        return {text(r, 2): value(r, depth - 1) for _ in range(r.randint(0, 3))}
    return [None, True, False, r.randint(-10**12, 10**12), r.uniform(-1e3, 1e3), text(r), r.choice([1e20, 1e-7, 0.1, 2.0])][kind]


def arguments(r):
    given = {r.choice(["city", "days", "q", "<|call|>"]): value(r) for _ in range(r.randint(0, 3))}
    return given if r.random() < 0.6 else json.dumps(given, ensure_ascii=False)


def field(r, depth):
    kind = r.choice(["string", "integer", "number", "boolean", "array", "object", "null", ["string", "null"], None])
    spec = {} if kind is None else {"type": kind}
    if kind == "array":
        spec["items"] = {"type": "string"}
    if kind == "object" and depth:
        spec["properties"] = {"in" + str(i): field(r, depth - 1) for i in range(r.randint(0, 2))}
        spec["required"] = []
    if r.random() < 0.2:
        spec["enum"] = [text(r, 1) for _ in range(2)]
    if r.random() < 0.5:
        spec["description"] = text(r, 3)
    if r.random() < 0.3:
        spec["default"] = value(r, 0)
    return spec


def tool(r):
    properties = {name: field(r, 1) for name in r.sample(["city", "days", "unit", "fields"], r.randint(0, 3))}
    return {"type": "function", "function": {
        "name": r.choice(NAMES), "description": text(r), "parameters": {
            "type": "object", "properties": properties,
            "required": [name for name in properties if r.random() < 0.5]}}}


def content(r):
    if r.random() < 0.12:
        parts = [{"type": "text", "text": text(r)}, {"type": "image_url", "image_url": {"url": "x"}}]
        return r.sample(parts, r.randint(0, 2))
    return text(r)


def assistant(r):
    message = {"role": "assistant", "content": None if r.random() < 0.2 else text(r)}
    if r.random() < 0.4:
        message["tool_calls"] = [{"id": f"call_{r.randint(0, 99)}", "type": "function",
                                  "function": {"name": r.choice(NAMES), "arguments": arguments(r)}}
                                 for _ in range(r.randint(1, 3))]
    if r.random() < 0.3:
        message["reasoning_content"] = text(r)
    if r.random() < 0.03:
        del message["content"]
    return message


def message(r):
    role = r.choice(["user", "user", "assistant", "assistant", "tool", "system"])
    if role == "assistant":
        return assistant(r)
    out = {"role": role, "content": content(r)}
    if role == "tool":
        out |= {"tool_call_id": f"call_{r.randint(0, 99)}", "name": r.choice(NAMES)}
    elif r.random() < 0.1:
        out["name"] = text(r, 1)
    return out


def conversation(r):
    """The variables of a render."""
    messages = [message(r) for _ in range(r.randint(0, 7))]
    if r.random() < 0.4:
        messages.insert(0, {"role": "system", "content": text(r)})
    variables = {"messages": messages, "tools": [tool(r) for _ in range(r.randint(1, 3))] if r.random() < 0.5 else None,
                 "documents": None, "add_generation_prompt": r.random() < 0.8,
                 "bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}
    for flag in ("enable_thinking", "thinking", "keep_thoughts", "shout"):
        if r.random() < 0.3:
            variables[flag] = r.random() < 0.5
    return variables


def is_plain(variables):
    """No tool, and only texts: where JavaScript cannot differ from Python in printing."""
    return variables["tools"] is None and all(
        isinstance(m.get("content"), str) and "tool_calls" not in m and "\\x1f" not in repr(m)
        for m in variables["messages"])


ATOMS = ["0", "1", "(number - 44)", "7", "2.5", "1e3", "true", "false", "none", "''", "'abc'", "' a b '", "'é天'", "'a,b,,c'", "[]",
         "[1, 2, 3]", "['b', 'a']", "(1, 'x')", "{}", "{'k': 1, 'l': [2]}", "text", "number", "real", "flag", "nothing",
         "items", "record", "missing", "people", "record.name", "record['missing']", "people[0].name", "items[1:]",
         "text[::-1]", "text[2:5]", "items[-1]", "people[:-1]", "record.tags[::2]", "(range(3)|list)", "loop_free"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]
FILTERS = ["trim", "length", "upper", "lower", "title", "capitalize", "string", "int", "float", "list", "first", "last",
           "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "join", "join(', ')",
           "default('d')", "default('d', true)", "replace('a', 'xy')", "replace('', '-')", "items|list", "abs", "reverse", "sort",
           "unique|list", "dictsort", "map('string')|list", "map(attribute='name')|list", "select|list", "reject('none')|list",
           "selectattr('age')|list", "rejectattr('age', 'defined')|list", "indent", "indent(2, true)", "safe", "count",
           "selectattr('age', '>', 30)|map(attribute='name')|join('+')", "tojson(sort_keys=true)"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float",
         "boolean", "true", "false", "odd", "even", "eq 1", "ne 'abc'", "gt 2", "in [1, 'abc']", "divisibleby 2",
         "sameas none", "callable", "lower", "upper"]
METHODS = [".strip()", ".lstrip('a')", ".rstrip()", ".split()", ".split(',')", ".split('b', 1)", ".rsplit(',', 1)",
           ".startswith('a')", ".endswith(('c', ' '))", ".replace('a', 'b', 1)", ".upper()", ".title()", ".capitalize()",
           ".items()", ".keys()", ".values()", ".get('k')", ".get('zz', 5)", ".find('b')", ".count('a')", ".join(['x', 'y'])",
           ".splitlines()", ".removeprefix('a')", ".name", ".k", "[0]", "[-1]", "['k']", "[5]", ".0"]


def expression(r, depth):
    if depth == 0:
        return r.choice(ATOMS)
    kind = r.randint(0, 9)
    inner = expression(r, depth - 1)
    if kind <= 3:
        return f"({inner}) {r.choice(BINARY)} ({expression(r, depth - 1)})" if kind else \
            f"{inner} {r.choice(BINARY)} {expression(r, depth - 1)}"
    if kind <= 5:
        return f"({inner})|{r.choice(FILTERS)}"
    if kind == 6:
        return f"({inner}) is {r.choice(['', 'not '])}{r.choice(TESTS)}"
    if kind == 7:
        return f"({inner}){r.choice(METHODS)}"
    if kind == 8:
        return f"({inner}) if ({expression(r, depth - 1)})" + r.choice(["", f" else ({expression(r, depth - 1)})"])
    return r.choice([f"[{inner}, {expression(r, depth - 1)}]", f"not {inner}", f"-({inner})",
                     f"{{'a': {inner}, 2: none}}", f"({inner},)"])


def block(r, depth):
    """Text and tags in one another, with every kind of white-space control."""
    minus = [r.choice(["", "", "-", "+"]) for _ in range(6)]
    ends = ["-" if sign == "-" else "" for sign in minus]
    space = r.choice(["", " ", "\n", "\n  ", "  \n\n ", "x"])
    if depth == 0:
        return space + "{{" + ends[0] + " " + expression(r, r.randint(0, 2)) + " " + ends[1] + "}}" + space
    inner, other = block(r, depth - 1), block(r, depth - 1)
    kind = r.randint(0, 6)
    if kind == 0:
        return f"{space}{{%{minus[0]} if {expression(r, 1)} {ends[1]}%}}{inner}{{%{minus[2]} else %}}{other}{{% endif {ends[3]}%}}{space}"
    if kind == 1:
        return f"{space}{{%{minus[0]} for i in {r.choice(ATOMS)} {ends[1]}%}}{space}{{{{ i }}}}{{{{ loop.index }}}}{inner}" \
               f"{{%{minus[2]} else {ends[4]}%}}{other}{{%{minus[3]} endfor {minus[4]}%}}"
    if kind == 2:
        return f"{{%{minus[0]} set v = {expression(r, 2)} {ends[1]}%}}{space}{inner}{{{{ v }}}}"
    if kind == 3:
        return f"{{%{minus[0]} set block {ends[1]}%}}{inner}{{% endset {ends[2]}%}}{space}{{{{ block }}}}"
    if kind == 4:
        return f"{{%{minus[0]} macro m(a, b={r.choice(ATOMS)}) {ends[1]}%}}{space}{{{{ a }}}}{{{{ b }}}}{inner}" \
               f"{{%{minus[2]} endmacro {ends[3]}%}}{space}{{{{ m({r.choice(ATOMS)}) }}}}{{{{ m(b=1) }}}}"
    if kind == 5:
        return f"{inner}{{#{minus[0]} note {ends[1]}#}}{space}{other}"
    return inner + space + other


def template(r):
    return block(r, r.randint(1, 3)) if r.random() < 0.4 else "{{ " + expression(r, r.randint(1, 3)) + " }}"
