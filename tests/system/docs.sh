#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# jobs/docs, where Sphinx and Doxygen are installed: the site has every page and the headers' reference, names no other
# host for scripts, styles or fonts, and can be searched without a server; a wrong link and a wrong comment end it.
#   docs.sh SOURCE_TREE
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $*"; [ ! -f log ] || tail -30 log; exit 1; }

# shellcheck source=jobs/dependencies.sh
. "$source/jobs/dependencies.sh"
for tool in doxygen sphinx; do present $tool || { echo "skipped: needs $tool"; exit 77; }; done

# A copy, for the wrong comment.
mkdir tree
cp -r "$source"/{docs,runtime,kernels,models,io,jobs,README.md,LICENSE} tree
mkdir tree/tests && cp -r "$source/tests/external" tree/tests
tree/jobs/docs site > log 2>&1 || fail "jobs/docs"
for page in index docs/README README $(cd "$source" && ls docs/*.md docs/decisions/*.md docs/measurements/*.md | sed 's/\.md$//'); do
  [ -s "site/$page.html" ] || fail "no $page.html"
done
grep -q 'watchdog' site/searchindex.js && grep -q 'Search.setIndex' site/searchindex.js || fail "no index to search"
for name in classtessera_1_1train_1_1Trainer structtessera_1_1shard_1_1UnitPolicy; do
  [ -s "site/api/$name.html" ] || fail "no $name in the reference"
done
if grep -rnE '(<script[^>]*src|<link[^>]*rel="stylesheet"[^>]*href)="https?:' site --include=*.html > log; then fail "a page needs a network"; fi

sed -i 's|^class Error |/// @param gone of nothing\nvoid wrong(int other);\n&|' tree/runtime/base/error.hpp
if tree/jobs/docs site > log 2>&1 || ! grep -q "'gone'" log; then fail "a wrong comment is not found"; fi
echo good
