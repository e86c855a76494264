"""Templates that use the whole language, and templates that mean harm."""

# ruff: noqa: E501  (a template reads better in one line)
from __future__ import annotations

LANGUAGE = [
    "{% for m in messages %}\n    {% if m.role == 'user' %}\n<|user|>{{ m.content }}<|end|>\n"
    "    {% endif %}\n{% endfor %}\n{% if add_generation_prompt %}\n<|assistant|>\n{% endif %}",
    "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.length }}{{ loop.last }}{{ loop.revindex }}"
    "{{ loop.cycle('a', 'b') }}{{ loop.previtem.content }}{% else %}none{% endfor %}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}!",
    "{% set ns = namespace(n=0, last='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% set ns.last = ns.last ~ m.role ~ ns.n %}{% endfor %}{{ ns.n }}{{ ns.last }}",
    "{% macro turn(m, sep='|') %}{{ m.role + sep }}{{ caller() }}{% endmacro %}"
    "{% for m in messages %}{% call turn(m) %}{{ m.content | trim }}{% endcall %}{% endfor %}",
    "{{ messages | map(attribute='role') | join(', ') }} {{ messages | length }} {{ messages[::-1][0].role }}",
    "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }} {{ {'b': 1, 'a': 'é'} | tojson(sort_keys=true) }}",
    "{{ [1, 2] | tojson(separators=(',', ':')) }}{{ 'é' | tojson(ensure_ascii=true) }}",
    "{{ 'a-b-c'.split('-')[-1] }}{{ '%s=%d' % ('x', 3) }}{{ '{:>4}|{}'.format('x', 2) }}{{ 'x' * 3 }}{{ 7 // 2 }}",
    "{{ messages[0].content is string }}{{ nothing is defined }}{{ nothing }}{{ messages is iterable }}"
    "{{ 3 is divisibleby 3 }}{{ 'a' in 'cab' }}{{ 'x' not in ['y'] }}{{ 1 < 2 < 3 }}{{ none }}{{ [1, 'a', none] }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ 'é' | upper }}{{ 'a b' | title }}"
    "{{ 'x' | default('y') }}{{ '' | default('y', true) }}{{ [3, 1, 2] | sort | join }}{{ dict(a=1) | items | list }}",
    "{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}{% filter upper %}b{% endfilter %}{{ x.strip('a') }}",
    "{{ bos_token }}{{ eos_token }}{{ messages[0]['content'][0:1] }}{{ messages[0].missing.deeper }}",
    "{%- for group in messages | groupby('role') %}{{ group.grouper }}{{ group.list | length }}{%- endfor %}",
    "{{ raise_exception('never mind') }}",
    "{{ dict.fromkeys(['a'], 1) }}{{ namespace(_x=1) }}",
    "{{ messages | batch(2) | list | length }}{{ range(5) | list }}{{ range(3) | sum }}{{ (1, 2) + (3,) }}",
    "{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}{{ [[1, 2], [3]] }}{{ 2 ** 10 }}{{ -3 % 5 }}",
]

BIG = "{% set s = 'a' * 1000000 %}"
DOUBLED = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}"


def doubling(start: str, step: str, use: str = "{{ ns.x }}") -> str:
    return DOUBLED.replace("START", start).replace("STEP", step) + use


HOSTILE: dict[str, str] = {
    "globals": """{{ lipsum.__globals__["os"].popen("touch MARKER") }}""",
    "globals of another": """{{ cycler.__init__.__globals__.os.popen("touch MARKER") }}""",
    "globals of a helper": """{{ raise_exception.__globals__["json"] }}""",
    "classes": "{{ ''.__class__.__mro__ }}",
    "by filter": "{{ (''|attr('__class__')).__mro__ }}",
    "by format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "a file": "{% include '/etc/passwd' %}",
    "append": "{{ messages.append(1) }}",
    "private name": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "huge range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "nested lazily": "{% for i in range(99999) %}{{ range(99999)|map('string')|list|length }}{% endfor %}",
    "nested text": "{% for i in range(99999) %}{% set x %}{% for j in range(99999) %}" + "y" * 999 + "{% endfor %}"
    "{% endset %}{% endfor %}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% for i in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
    "repeat": "{{ 'a' * 10**10 }}",
    "repeat a list": "{{ ([1] * 10**10)|length }}",
    "power": "{% set x = 9**9 %}{{ x**x }}",
    "squares": doubling("10", "ns.x * ns.x"),
    "doubled text": doubling("'ab'", "ns.x ~ ns.x"),
    "doubled sum": doubling("'ab'", "ns.x + ns.x"),
    "shared lists": doubling("[1]", "[ns.x, ns.x]"),
    "shared lists as json": doubling("[1]", "[ns.x, ns.x]", "{{ ns.x|tojson }}"),
    "shared lists compared": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "shared tuples as keys": doubling("(1,)", "(ns.x, ns.x)", "{{ {ns.x: 1}|length }}"),
    "shared namespaces": doubling("1", "namespace(a=ns.x, b=ns.x)"),
    "a list in itself": "{% set ns = namespace(x=1) %}{% set ns.x = [ns] %}{{ ns.x }}",
    "center": "{{ 'a'|center(10**10) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "format width": "{{ '{:10000000000}'.format(1) }}",
    "format nested width": "{{ '{:{}}'.format(1, 10**10) }}",
    "percent width": "{{ '%10000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10**10, 1) }}",
    "replace": BIG + "{{ s.replace('a', s) }}",
    "replace filter": BIG + "{{ s|replace('a', s) }}",
    "join": BIG + "{{ s.join(s) }}",
    "join filter": BIG + "{{ (range(99999)|list)|join(s) }}",
    "date width": "{{ strftime_now('%1000000000Y') }}",
    "batch": "{{ [1]|batch(10**10, 'x')|list|length }}",
    "slice": "{{ [1]|slice(10**9)|list|length }}",
    "sum of lists": "{{ ([[1]]*99999)|sum(start=[])|length }}",
    "indent": "{{ 'a\nb'|indent(10**10) }}",
    "json indent": "{{ [1]|tojson(indent=10**10) }}",
    "slow search": "{% set s='a'*10000000 %}{{ s.rfind('b'+'a'*5000000) }}",
    "slow strip": BIG + "{{ s.strip('b'*1000000+'a') }}",
    "bytes of a number": "{{ (1).to_bytes(10**10,'big')|length }}",
    "split": "{% set s='a'*90000000 %}{{ s.split('a')|length }}",
    "letters": "{% set s='é€'*20000000 %}{{ s|list|length }}",
    "many slices": BIG + "{% set ns=namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x + [s[1:]] %}{% endfor %}",
    "slow sort": BIG + "{{ ([s+'b', s+'c']*40)|sort|length }}",
    "long source": "x" * 10_000_000,
    "deep source": "{{" + "(" * 40_000 + "1" + ")" * 40_000 + "}}",
    "long chain": "{{a" + ".b" * 45_000 + "}}",
    "long number": "{{ " + "9" * 90_000 + " }}",
    "deep blocks": "{% if a %}" * 5_000 + "{% endif %}" * 5_000,
    "undefined call": "{{ nothing() }}",
    "wrong types": "{{ 1 + 'a' }}",
    "division": "{{ 1 // 0 }}",
}  # fmt: skip
