# SPDX-FileCopyrightText: Baton developers
# SPDX-License-Identifier: Apache-2.0
"""Writes template_cases.jsonl: what Jinja makes of small templates, one language feature each.

usage: gen_template_cases.py > template_cases.jsonl     (needs jinja2; made with 3.1.6)

The environment is the one that chat templates are rendered in: sandboxed, blocks trimmed,
loop controls, tojson without HTML escapes.  A row has "text" or, for a failure, "error",
the name of Python's exception.
"""
import json

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "n": 7, "f": 2.5, "s": "Hello World", "u": "h\u00e9llo \u4e2d\U0001f600", "empty": "", "t": True,
    "none_value": None, "list": [3, 1, 2], "names": ["b", "A", "c"],
    "d": {"b": 1, "a": {"x": [1, 2]}, "items_": "no"},
    "messages": [{"role": "user", "content": "  hi  "}, {"role": "assistant", "content": "yo\n"},
                 {"role": "tool", "content": "a\"b'c\\d", "n": 1.0, "ok": False, "nil": None}],
    "people": [{"name": "x", "age": 3}, {"name": "y", "age": 1}, {"name": "z"}],
}

CASES = r"""
{{ n }} {{ f }} {{ t }} {{ none_value }} {{ nope }}|
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 1e3 }}
{{ 1.0 }} {{ 0.1 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 1.5e300 }} {{ 100000000000000.0 }} {{ 0.0001 }}
{{ 'a' ~ 1 ~ none ~ 2.0 ~ true }}
{{ 'a' 'b' "c\n\t\\\"\'\x41\u00e9" }}
{{ "a\qb" }}
{{ 'ab' * 3 }}|{{ 'ab' * 0 }}|{{ 2 * 'x' }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == none }}
{{ not n }} {{ n and s }} {{ empty or 'x' }} {{ nope or 'y' }} {{ not (n and nope) }}
{{ 'lo' in s }} {{ 'z' not in s }} {{ 1 in list }} {{ 'a' in d }} {{ 'x' in nope }}
{{ 1 if t else 2 }} {{ 1 if nope else 2 }} {{ 1 if nope }}|
{{ (1, 2) }} {{ (1,) }} {{ () }} {{ [1, 'a', none, true, 1.5] }} {{ {'a': 1, 'b': [2]} }}
{{ ["it's", 'say "x"', "both ' and \"", 'n\nl'] }}
{{ list[0] }} {{ list[-1] }} {{ list[9] }}| {{ s[1] }} {{ u[-1] }} {{ u[1] }}
{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[::2] }} {{ s[2:5] }} {{ u[6:] }} {{ s[::-1] }} {{ list[5:] }} {{ list[-2:] }}
{{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d.nope }}| {{ d['nope'] }}| {{ d.a['x'] }}
{{ d.items_ }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }}
{{ nope.x }}
{{ nope['x'] }}
{{ none_value.x }}|{{ none_value['x'] }}|{{ n.x }}|
{{ 'a' + 1 }}
{{ 'a' + none_value }}
{{ 'a' + nope }}
{{ nope + 'a' }}
{{ 1 + none_value }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ none_value < 1 }}
{{ nope < 1 }}
{{ 'a' < 1 }}
{{ -s }}
{{ -nope }}
{{ s() }}
{{ nope() }}
{{ 5 in 'abc' }}
{{ 1 in n }}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}
{% if nope is defined %}1{% endif %}{% if n is defined and n is not none %}2{% endif %}{% if not nope is defined %}3{% endif %}
{% for x in list %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}
{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}
{% for x in list %}{{ loop.previtem }}-{{ loop.nextitem }}|{% endfor %}
{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for x in [] %}x{% else %}none{% endfor %}
{% for x in nope %}x{% else %}none{% endfor %}
{% for x in none_value %}x{% endfor %}
{% for x in n %}x{% endfor %}
{% for k in d %}{{ k }},{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d | items %}{{ k }};{% endfor %}
{% for k, v in d | dictsort %}{{ k }};{% endfor %}
{% for (a, b) in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for c in u %}[{{ c }}]{% endfor %}
{% for x in list if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{% endfor %}
{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in list %}{% for y in list %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}
{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}
{% for i in list %}{% set y = i %}{% endfor %}{{ y }}|
{% for i in list %}{% if loop.first %}{% set y = 5 %}{% endif %}{{ y }}{% endfor %}|
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}
{% set ns = namespace(x=1, y='a') %}{% for i in list %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}|
{% set ns = namespace() %}{% set ns.q = [1] %}{{ ns.q + [2] }}
{% set ns = namespace({'a': 1}) %}{{ ns.a }}
{% set d.x = 1 %}
{% set x %}a{{ n }}b{% endset %}[{{ x }}]{{ x | length }}
{% set x | upper %}abc{% endset %}{{ x }}
{% macro m(a, b=2, c='z') %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m() }}
{% macro m() %}{{ n }}{{ q }}{% endmacro %}{% for q in list %}{{ m() }}{% endfor %}
{% macro fact(k) %}{% if k < 2 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(6) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(q=2) }}
{% filter upper %}abc{{ n }}{% endfilter %}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}|
{% raw %}{{ x }}{% y %}{% endraw %}z
{# comment #}a{#- b -#}  c
a {#- b #} c
{{ '{{' }}{{ '%}' }}
{{ {'a': {'b': 1}}['a']['b'] }}
{{ s | upper }} {{ s | lower }} {{ 'hello big-world (x)' | title }} {{ 'hELLO wORLD' | capitalize }} {{ "it's ok".title() }}
{{ '  a b ' | trim }}|{{ '  a ' | trim | length }}|{{ 'xxaxx' | trim('x') }}
{{ s | length }} {{ u | length }} {{ list | count }} {{ d | length }} {{ nope | length }}
{{ n | length }}
{{ list | join(',') }} {{ list | join }} {{ people | join('-', attribute='name') }} {{ nope | join(',') }}|
{{ list | first }} {{ list | last }} {{ [] | first }}| {{ s | first }} {{ s | last }}
{{ list | sort }} {{ list | sort(reverse=true) }} {{ names | sort }} {{ names | sort(case_sensitive=true) }} {{ people[:2] | sort(attribute='age') | map(attribute='name') | list }}
{{ [1, 'a'] | sort }}
{{ list | min }} {{ list | max }} {{ list | sum }} {{ people[:2] | sum(attribute='age') }} {{ [] | max }}|
{{ list | reverse | list }} {{ s | reverse }}
{{ [1, 2, 1, 'a', 'A'] | unique | list }}
{{ nope | default('x') }} {{ empty | default('x') }} {{ empty | default('x', true) }} {{ none_value | default('x') }} {{ nope | d }}|
{{ '3' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ '3.7' | int }} {{ '2.5' | float }} {{ true | int }}
{{ 2.567 | round }} {{ 2.567 | round(2) }} {{ 2.2 | round(method='ceil') }} {{ 2.8 | round(0, 'floor') }} {{ -3 | abs }} {{ -2.5 | abs }}
{{ n | string + 'x' }} {{ list | string }} {{ none_value | string }}
{{ 'abcabc' | replace('b', 'X') }} {{ 'abcabc' | replace('b', 'X', 1) }} {{ 'abc' | replace('', '-') }}
{{ '<a & "b">' | e }} {{ '<a>' | safe }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('>>') }}
{{ d | tojson }}
{{ messages | tojson }}
{{ messages | tojson(indent=2) }}
{{ [] | tojson(indent=2) }} {{ {} | tojson }} {{ [[], {}] | tojson(indent=1) }} {{ u | tojson }} {{ (1, 2) | tojson }} {{ none | tojson }} {{ 1.0 | tojson }} {{ "\x01\x7f/" | tojson }}
{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}
{{ nope | tojson }}
{{ people | map(attribute='age') | list }} {{ people | map(attribute='age', default=0) | list }} {{ names | map('upper') | list }} {{ names | map('replace', 'b', 'q') | list }}
{{ people | selectattr('age') | list | length }} {{ people | selectattr('age', 'defined') | list | length }} {{ people | selectattr('age', 'gt', 2) | map(attribute='name') | list }}
{{ people[:2] | rejectattr('name', 'equalto', 'x') | map(attribute='name') | join }}
{{ list | select('odd') | list }} {{ list | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ list | select('in', [1, 2]) | list }}
{{ 'a b  c' | wordcount }}
{{ s.split() }} {{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ''.split(',') }} {{ ''.split() }}
{{ 'a'.split('') }}
{{ s.upper() }} {{ s.startswith('He') }} {{ s.endswith('x') }} {{ s.startswith(('x', 'H')) }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('q') }} {{ u.find('\u4e2d') }} {{ s.count('l') }} {{ s.replace('l', 'L') }}
{{ 'xxaxx'.strip('x') }} {{ 'xxaxx'.lstrip('x') }} {{ 'xxaxx'.rstrip('x') }} {{ '\n a \n'.strip() }}| {{ ','.join(names) }} {{ 'a\nb\r\nc'.splitlines() }} {{ '\u00a0a\u2003'.strip() }}|
{{ '12'.isdigit() }} {{ '1a'.isdigit() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ ''.isspace() }} {{ 'prefix'.removeprefix('pre') }} {{ 'prefix'.removesuffix('fix') }}
{{ s.index('q') }}
{{ list.index(1) }} {{ list.count(1) }} {{ d.keys() | list }} {{ d.values() | list | length }}
{{ list.append(4) }}
{{ n is number }} {{ f is number }} {{ t is number }} {{ s is string }} {{ n is integer }} {{ f is float }} {{ t is boolean }} {{ t is true }} {{ d is mapping }} {{ list is sequence }} {{ list is iterable }} {{ s is iterable }} {{ n is iterable }} {{ none_value is none }} {{ s is sequence }} {{ d is sequence }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto(8) }} {{ n is gt 3 }} {{ n is lt(3) }} {{ n is in [7] }} {{ 'a' is in 'abc' }} {{ n is not odd }} {{ s is upper }} {{ 'AB' is upper }} {{ 'ab' is lower }} {{ range is callable }} {{ n is sameas 7 }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ dict(a=1, b=2) }}
{{ raise_exception('no: ' + s) }}
{{ s | nofilter }}
{{ s is notest }}
{{ s.upper(1) if false else 'lazy' }} {{ 1 or nope.x }} {{ 0 and nope.x }}
{{ messages[0].content | trim }}|{{ messages[0]['content'].strip() }}|{{ messages[-1].content }}
{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m['content'] | trim + '<end>' }}{% endfor %}
{% for m in messages if m.role != 'tool' %}{{ m.role }}{% if loop.last %}!{% endif %}{% endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages[0] == messages[0] }}{{ messages[0] == messages[1] }}
{{ [1, 2] + [3] }} {{ (1,) + (2,) }} {{ [1, [2]] == [1, [2.0]] }} {{ {'a': 1} == {'a': 1.0} }}
{{ [1] + (2,) }}
{{ 3 | string | length }} {{ (3 | string) ~ 'x' }} {{ -1 | abs }} {{ 2 + 3 | string | length }}
{{ 'abc'[1:][0] }} {{ 'a' if 'b' if true else none else 'c' }} {{ not not n }} {{ - - n }} {{ +n }}
{{ 1_000 }} {{ d.update({}) }}
{%- if true -%}  a  {%- endif -%}  b
{{- ' a ' -}}   b
{{ 1 }}   {{- 2 }}
"""

# Layout, where line breaks matter.
LAYOUT = [
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n",
    "a\n  {%- if true %}\nb\n  {%- endif %}\nc",
    "a\n  {%+ if true %}\nb\n  {%+ endif %}\nc",
    "a\n  {% if true -%}\n  b\n  {% endif -%}\n  c",
    "a\n  {# comment #}\nb",
    "a\n  {#- comment -#}\nb",
    "  {{ n }}\n  {{ n }}\n",
    "x {% if true %} y {% endif %} z\n\n",
    "a\r\n{% if true %}\r\nb\r\n{% endif %}\r\nc",
    "{% for x in list %}\n  {{ x }}\n{% endfor %}\nend",
    "\n\n{% set x = 1 %}\n\n{{ x }}\n\n",
    "  {% set x = 1 %}  {% set y = 2 %}\n{{ x + y }}",
    "{% raw %}\n  {{ a }}\n{% endraw %}\nb",
    "a\n  {% raw -%}\n  b\n  {%- endraw %}\nc",
    "a\n\t{% if true %}b{% endif %}\n",
    "{% if true +%}\na{% endif %}",
    "{{\n  n\n}}\n{{ 'a\nb' }}",
    "a{% if true %}\n\nb{% endif %}",
    "  {%- set x = 1 -%}  \n  {{- x -}}  \n  z",
    "{% if %}", "{% endif %}", "{{", "{{ n", "{% if n %}", "{# x", "{{ n }", "{{ (n }}", "{{ 'a }}", "{{ n n }}",
    "{% unknown %}", "{% for in list %}{% endfor %}", "{{ a. }}", "{{ | x }}", "{{ n | }}", "{% set %}",
    "{% break %}", "{{ n is }}", "{{ [1, }}", "{% macro %}{% endmacro %}", "{{ 1 2 }}", "{{ ? }}", "{% if a %}{% for %}",
    "{{ {'a' 1} }}", "{{ f(a=1, 2) }}", "{% else %}", "{% raw %}a",
]


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    print(json.dumps({"context": CONTEXT}))
    for source in CASES.strip("\n").split("\n") + LAYOUT:
        row = {"template": source}
        try:
            row["text"] = environment().from_string(source).render(**CONTEXT)
        except Exception as e:
            row["error"] = type(e).__name__
        print(json.dumps(row))


main()
