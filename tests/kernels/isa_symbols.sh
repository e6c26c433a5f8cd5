#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# isa_symbols.sh NM ISA OBJECT…: objects compiled for an instruction set must define symbols of its namespace only.
# A weak symbol outside it (an inline function of a standard header, say) might be the copy that the linker keeps for the whole
# program, which would then crash on an older CPU.
nm=$1 isa=$2
shift 2
[ $# -gt 0 ] || { echo "no objects"; exit 1; }
defined=$("$nm" -C --defined-only "$@") || exit 1
echo "$defined" | grep -q "tessera::kernels::host::$isa::" || { echo "no symbol of $isa: wrong objects"; exit 1; }
bad=$(echo "$defined" | grep -E '^[0-9a-f]+ [A-Zuvw] ' | grep -v "tessera::kernels::host::$isa::")
[ -z "$bad" ] || { echo "symbols outside tessera::kernels::host::$isa:"; echo "$bad"; exit 1; }
