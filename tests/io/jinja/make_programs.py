# SPDX-License-Identifier: Apache-2.0
"""Makes programs.golden.json: templates drawn at random from the subset, and what Jinja, set up by transformers, answers.

python make_programs.py [COUNT]
"""
import copy
import json
import os
import random
import re
import sys
import warnings

from transformers.utils import chat_template_utils as u

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 600
SKIPPED = set()  # by seed: what Jinja computes before it runs follows other rules


class Programs:

    def __init__(s, r):
        s.r = r
        s.plain = True
    NAMES = ['a', 'b', 'c', 's', 'n', 'f', 'l', 'd', 't', 'u', 'messages', 'ns', 'x', 'y', 'text', 'flag', 'tools', 'e']
    STR = ['', 'a', 'abc', 'Hello World', '  pad ', 'x,y,z', 'héllo wörld', '日本', "it's", '"q"', 'new\nline', 'a b  c', 'UPPER', 'Title-case (foo)', '123', '-4', '3.5', '<b>', 'user', 'assistant', 'straße', 'ΣΑΣ', '\t tab', '%s', '{}']
    INTS = [0, 1, 2, 3, -1, -2, 5, 10, 7, 100]
    ATTR = ['role', 'content', 'name', 'k', 'v', 'items', 'keys', 'x', 'upper', 'missing', 'index', 'first']

    def lit(s):
        r = s.r
        k = r.random()
        if k < 0.4:
            return s.strlit()
        if k < 0.7:
            return str(r.choice(s.INTS)) if r.random() < 0.9 else '1_000'
        if k < 0.8:
            return r.choice(['1.5', '0.1', '2.0', '1e3', '1e16', '0.00001', '123456789.125'])
        return r.choice(['true', 'false', 'none', 'True', 'None'])

    def strlit(s):
        x = s.r.choice(s.STR)
        q = s.r.choice('\'"')
        return q + x.replace('\\', '\\\\').replace(q, '\\' + q).replace('\n', '\\n').replace('\t', '\\t') + q

    def e(s, d=3):
        r = s.r
        if d <= 0:
            return s.lit() if r.random() < 0.45 else r.choice(s.NAMES)
        k = r.randrange(26)
        E = lambda: s.e(d - 1)
        if k == 0:
            return s.lit()
        if k < 4:
            return r.choice(s.NAMES)
        if k == 4:
            return f"{E()} {r.choice(['+', '-', '*', '/', '//', '%', '~', '~', '+'])} {E()}"
        if k == 5:
            return f"({E()} {r.choice(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} {E()})"
        if k == 6:
            return f"({E()} {r.choice(['and', 'or'])} {E()})"
        if k == 7:
            return f'not {E()}'
        if k == 8:
            return f'({E()} if {E()} else {E()})' if r.random() < 0.7 else f'({E()} if {E()})'
        if k == 9:
            return '[' + ', '.join((E() for _ in range(r.randrange(4)))) + ']'
        if k == 10:
            return '{' + ', '.join((f'{(s.strlit() if r.random() < 0.8 else s.lit())}: {E()}' for _ in range(r.randrange(3)))) + '}'
        if k == 11:
            return '(' + ', '.join((E() for _ in range(r.randrange(2, 4)))) + ')' if r.random() < 0.7 else f'({E()},)'
        if k == 12:
            return f'{s.prim(d)}.{r.choice(s.ATTR)}'
        if k == 13:
            return f'{s.prim(d)}[{E()}]'
        if k == 14:
            p = lambda: r.choice(['', '1', '-1', '2', '0', '-2', '5', r.choice(s.NAMES)] if r.random() < 0.95 else [E()])
            return f'{s.prim(d)}[{p()}:{p()}]' if r.random() < 0.7 else f"{s.prim(d)}[{p()}:{p()}:{r.choice(['', '1', '2', '-1', '-2'])}]"
        if k < 19:
            return s.filt(d)
        if k == 19:
            return s.test(d)
        if k < 22:
            return s.method(d)
        if k == 22:
            return f"range({', '.join((str(r.choice([0, 1, 2, 3, 5, -1, 10])) for _ in range(r.randrange(1, 4))))})|list"
        if k == 23:
            return f"dict({', '.join((r.choice('abc') + str(i) + '=' + E() for i in range(r.randrange(3))))})"
        if k == 24:
            return f'-{s.prim(d)}'
        return f"{s.prim(d)} ** {r.choice(['2', '3', '0', '-1', '0.5'])}" if r.random() < 0.4 else f'({E()}, {E()})'

    def prim(s, d):
        r = s.r
        return r.choice(s.NAMES) if r.random() < 0.7 else '(' + s.e(d - 1) + ')'

    def filt(s, d):
        r = s.r
        p = s.prim(d)
        E = lambda: s.e(min(d - 1, 1))
        f = r.choice(['trim', 'upper', 'lower', 'title', 'capitalize', 'length', 'count', 'list', 'first', 'last', 'string', 'int', 'float', 'abs', 'items|list', 'sort', 'unique|list', 'reverse|list', 'join', 'tojson', 'sum', 'min', 'max', 'round', 'wordcount', 'dictsort', 'trim("a ")', 'join(", ")', 'join("|", attribute="role")', f'replace({s.strlit()}, {s.strlit()})', f'replace({s.strlit()}, {s.strlit()}, 1)', f'default({E()})', f'd({E()}, true)', 'tojson(indent=2)', 'tojson(indent=4, sort_keys=true)', 'tojson(separators=(",", ":"))', 'tojson(ensure_ascii=true)', 'map("upper")|list', 'map(attribute="role")|list', 'map(attribute="role", default="?")|join(",")', 'map("int")|list', 'map("length")|list', 'map("string")|join', 'select|list', 'select("string")|list', 'select("defined")|list', 'reject("none")|list', 'select("gt", 1)|list', 'selectattr("role")|list', 'selectattr("role", "equalto", "user")|list|length', 'rejectattr("role", "eq", "user")|map(attribute="content")|join(" ")', 'selectattr("content", "defined")|list|tojson', 'indent', 'indent(2)', 'indent(2, true)', 'indent(">>", first=true, blank=true)', 'sort(reverse=true)', 'sort(attribute="role")|map(attribute="content")|list', 'sort(case_sensitive=true)', 'batch(2)|list', 'batch(2, "-")|list', 'slice(2)|list', 'slice(3, 0)|list', 'round(1)', 'round(2, "ceil")', 'round(1, "floor")', 'round(-1)', 'int(5)', 'int(0, 16)', 'float(1.5)', 'center(12)', 'format(1, 2)', 'format("x")', 'dictsort(by="value")', 'dictsort(reverse=true)', 'sum(start=2)', 'sum(attribute="v")', 'min(attribute="v")', 'map("trim")|select|list', 'map("default", "z")|list', 'items|map("first")|list', 'map("replace", "a", "b")|list', 'reverse', 'unique(attribute="role")|map(attribute="role")|list', 'map("tojson")|join(";")', 'map("abs")|list', 'string|length', 'list|length', 'first|default("none")', 'last|string'])
        return f'{p}|{f}' if r.random() < 0.85 else f"{p}|{f}|{r.choice(['string', 'upper', 'length', 'tojson', 'list', 'trim', 'default(0)'])}"

    def test(s, d):
        r = s.r
        t = r.choice(['defined', 'undefined', 'none', 'string', 'mapping', 'iterable', 'sequence', 'number', 'integer', 'float', 'boolean', 'true', 'false', 'odd', 'even', 'callable', 'lower', 'upper', 'divisibleby 3', 'divisibleby(2)', 'eq(1)', 'equalto "a"', 'ne 2', 'lt 3', 'gt(1)', 'le 5', 'ge 0', 'in [1,2,"a"]', 'in("abc")', 'sameas none', 'sameas(true)', '== 1', 'filter', 'test'])
        if t == '== 1':
            t = 'eq 1'
        return f"({s.prim(d)} is {r.choice(['', 'not '])}{t})"

    def method(s, d):
        r = s.r
        p = s.prim(d) if r.random() < 0.5 else r.choice(['s', 'text', 'd', 'l', s.strlit()])
        L = s.strlit
        m = r.choice([f'strip()', f'strip({L()})', 'lstrip()', 'rstrip()', f'rstrip({L()})', 'split()', f'split({L()})', f'split({L()}, 1)', 'split(none, 1)', 'rsplit(none, 1)', f'rsplit({L()}, 1)', 'splitlines()', 'splitlines(true)', f'startswith({L()})', f'endswith({L()})', 'startswith(("a","b"))', f'startswith({L()}, 1)', 'upper()', 'lower()', 'title()', 'capitalize()', 'swapcase()', f'replace({L()}, {L()})', f'replace({L()}, {L()}, 1)', f'find({L()})', f'find({L()}, 1, 4)', f'rfind({L()})', f'index({L()})', f'count({L()})', f'join(l)', f'join(["a","b"])', 'isdigit()', 'isalpha()', 'isalnum()', 'isspace()', 'isupper()', 'islower()', 'isnumeric()', 'isdecimal()', 'isascii()', f'partition({L()})', f'rpartition({L()})', 'ljust(8)', 'rjust(8, "*")', 'center(9, ".")', 'zfill(6)', f'removeprefix({L()})', f'removesuffix({L()})', 'format(1, "b")', 'items()|list', 'items()', 'keys()|list', 'values()|list', 'get("k")', 'get("zz", 3)', f'get({L()})', 'keys()', 'index(1)', 'count(1)', 'copy()', 'append(1)', 'update({})', 'pop()'])
        return f'{p}.{m}'

    def fmt(s):
        r = s.r
        k = r.randrange(4)
        if k == 0:
            return "{{ '" + ''.join((r.choice(['{}', '{:>8}', '{:<6}', '{:^7}', '{!r}', '{:*^9}']) + ' ' for _ in range(2))) + "'.format(" + s.e(1) + ', ' + s.e(1) + ') }}'
        if k == 1:
            return "{{ '{:" + r.choice(['d', '05d', '+d', ',', 'x', '.2f', '8.3f', 'e', 'g', '%', '08.2f', '<8d', '^+9.1f', 'b', 'o', '#x', 's']) + "}'.format(" + r.choice(['n', 'f', '12', '-7', '3.14159', '1234567', '0', 's']) + ') }}'
        if k == 2:
            return "{{ '" + r.choice(['%s', '%d', '%5s|', '%-5s|', '%05d', '%.2f', '%x', '%r', '%+d', '%e', '%g', '%5.1f', '%%', '%s %s', '%(k)s', '%i']) + "' % " + r.choice(['n', 'f', 's', '(n,)', '(n, s)', 'd', 'l', '12', '"x"', '("a","b")']) + ' }}'
        return "{{ '{0} {1} {0}'.format(" + s.e(1) + ', ' + s.e(1) + ") ~ '{k} {d[k]}'.format(k=" + s.e(1) + ', d=d) }}'

    def ws(s):
        r = s.r
        return r.choice(['', '', '', ' ', '\n', '\n\n', '  ', '\n  ', ' text ', '\ttext\n', 'é', '  \n  '])

    def tag(s, x):
        r = s.r
        return '{%' + r.choice(['', '', '', '-', '+']) + ' ' + x + ' ' + r.choice(['', '', '', '-', '+']) + '%}'

    def out(s, x):
        return '{{' + s.r.choice(['', '', '', '-']) + ' ' + x + ' ' + s.r.choice(['', '', '', '-']) + '}}'

    def st(s, d, loop=False):
        r = s.r
        k = r.randrange(22)

        def B(captured=False):
            before = s.plain
            s.plain = before and (not captured)
            x = s.body(d - 1, loop)
            s.plain = before
            return x
        if d <= 0 or k < 7:
            return s.out(s.e(r.randrange(4)))
        if k == 7:
            return s.fmt()
        if k == 8:
            return s.tag('set ' + r.choice(['x', 'y', 'a', 'u', 'b, c', 'x,']) + ' = ' + s.e(2))
        if k == 9:
            return s.tag('if ' + s.e(2)) + B() + (s.tag('elif ' + s.e(2)) + B() if r.random() < 0.3 else '') + (s.tag('else') + B() if r.random() < 0.5 else '') + s.tag('endif')
        if k in (10, 11, 12):
            tgt, it = r.choice([('m', 'messages'), ('x', 'l'), ('k, v', 'd.items()'), ('x', 'range(4)'), ('c', 's'), ('x', 'u'), ('k', 'd'), ('x', s.e(2)), ('y', 'messages[1:]'), ('k, v', 'd|dictsort'), ('m', 'messages|reverse'), ('i, j', '[(1,2),(3,4)]')])
            cond = ' if ' + s.e(1).replace('x', tgt.split(',')[0]) if r.random() < 0.25 else ''
            s.NAMES = s.NAMES + [n.strip() for n in tgt.split(',')]
            b = s.body(d - 1, True)
            return s.tag(f'for {tgt} in {it}{cond}') + b + (s.tag('else') + s.body(d - 1, loop) if r.random() < 0.25 else '') + s.tag('endfor')
        if k == 13 and loop:
            return s.out('loop.' + r.choice(['index', 'index0', 'first', 'last', 'length', 'revindex', 'revindex0', 'previtem', 'nextitem', 'depth', 'cycle("a","b")', 'previtem is defined', 'nextitem.role', 'changed(x)', 'changed(m)']))
        if k == 14 and loop:
            return s.tag('if ' + s.e(1)) + s.tag(r.choice(['break', 'continue'])) + s.tag('endif')
        if k == 15:
            return s.tag('set ' + r.choice(['x', 'y', 'text']) + r.choice(['', ' | upper', ' | trim | length'])) + B(True) + s.tag('endset')
        if k == 16:
            return s.tag('set ns = namespace(' + r.choice(['v=1', 'v=[]', 'v="", w=2']) + ')') + B() + s.tag('set ns.v = ' + r.choice(['ns.v + 1', 'ns.v ~ "x"', s.e(1)])) + s.out('ns.v')
        if k == 17:
            n = r.choice(['mac', 'mac2'])
            before = s.plain
            s.plain = False
            b = s.body(d - 1, False) + (s.out('caller()') if r.random() < 0.3 else '') + (s.out('varargs') + s.out('kwargs') if r.random() < 0.2 else '')
            s.plain = before
            return s.tag(f'macro {n}(' + r.choice(['', 'p', 'p, q=1', 'p=x, q="z"', 'p, q=p']) + ')') + b + s.out('p') + s.tag('endmacro') + (s.out(f'{n}(' + r.choice(['', '1', '1, 2', s.e(1) + ', q=3', 'p=4', '1,2,3', 'zz=1']) + ')') if r.random() < 0.8 else '')
        if k == 18:
            return s.tag('filter ' + r.choice(['upper', 'trim', 'indent(2)', 'replace("a","b")|upper', 'title'])) + B(True) + s.tag('endfilter')
        if k == 19:
            return s.tag('with ' + r.choice(['x = 1', 'x = ' + s.e(1) + ', y = x', ''])) + B() + s.tag('endwith')
        if k == 20 and (not loop) and s.plain:
            s.plain = False
            x = s.tag('generation') + s.body(d - 1, False) + s.tag('endgeneration')
            s.plain = True
            return x
        if k == 21:
            return r.choice(['{# c #}', '{#- c -#}\n', '{% raw %}{{ x }}\n{% endraw %}', '{%- raw -%} {% x %} {%- endraw -%} ', '{# a\n b +#}\n', '\n  {# x #}\n'])
        return s.out(s.e(2))

    def body(s, d, loop=False):
        saved = s.NAMES
        x = ''
        for _ in range(s.r.randrange(1, 4)):
            x += s.ws() + s.st(d, loop) + s.ws()
        s.NAMES = saved
        return x


def context(r):

    def msg():
        m = {'role': r.choice(['user', 'assistant', 'system', 'tool']), 'content': r.choice(Programs.STR)}
        if r.random() < 0.3:
            m['v'] = r.choice(Programs.INTS)
        if r.random() < 0.2:
            m['items'] = [1, 2]
        if r.random() < 0.2:
            m['name'] = r.choice([None, 'bob', True])
        return m
    c = {'messages': [msg() for _ in range(r.randrange(5))], 'tools': None if r.random() < 0.5 else [{'type': 'function', 'function': {'name': 'f', 'parameters': {'x': 1.5}}}], 's': r.choice(Programs.STR), 'text': r.choice(Programs.STR), 'n': r.choice(Programs.INTS), 'f': r.choice([0.5, -1.25, 1e+20, 3.0, 2.675]), 'l': r.choice([[], [1, 2, 3], ['b', 'A', 'c'], [3, 1, 2], ['x', 1, None], [[1, 2], [3, 4]], [1.5, 2]]), 'd': r.choice([{}, {'k': 'v', 'x': 1}, {'b': 1, 'A': 2, 'c': [1]}, {'k': {'k': None}}, {'items': 3, 'k': [{'a': 1}]}]), 'flag': r.random() < 0.5, 'e': r.choice([None, '', 0, [], False])}
    return c


def program(seed):
    """A template, and the number of its context."""
    r = random.Random(seed)
    programs = Programs(r)
    values = r.randrange(24)
    kind = r.random()
    if kind < 0.5:
        text = '{{ ' + programs.e(r.randrange(1, 4)) + ' }}|'
    elif kind < 0.6:
        text = programs.fmt()
    elif kind < 0.95:
        text = programs.ws() + programs.st(2) + programs.ws() + programs.st(1) + programs.ws()
    else:
        text = programs.body(3)
    return (text, values)


def answer(text, values):
    """The output with its generation spans, or "?" where Jinja or Python raises."""
    try:
        out, spans = u._render_with_assistant_indices(u._compile_jinja_template(text), values['messages'], values['tools'], None, False, **{k: v for k, v in values.items() if k not in ('messages', 'tools')})
    except Exception:
        return '?'
    return out + ''.join((f';{begin},{end}' for begin, end in spans))


def main():
    contexts = [context(random.Random(i)) for i in range(24)]
    texts, programs, seed, refused = (set(), [], 0, 0)
    while len(programs) < COUNT:
        text, values = program(seed)
        seed += 1
        out = answer(text, copy.deepcopy(contexts[values]))
        if ' at 0x' in out or '<Macro' in out or '<LoopContext' in out or (text in texts) or (seed in SKIPPED) or re.search(r'\d{17}', out):
            continue
        refused += out == '?'
        if out == '?' and refused * 10 > len(programs):
            continue
        texts.add(text)
        programs.append([text, values, out])
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'programs.golden.json'), 'w') as file:
        lines = [json.dumps(p, ensure_ascii=False) for p in programs]
        file.write('{"contexts": [\n' + ',\n'.join(json.dumps(c, ensure_ascii=False) for c in contexts) + '\n], "programs": [\n' + ',\n'.join(lines) + '\n]}\n')


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    main()
