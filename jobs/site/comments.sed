# SPDX-License-Identifier: Apache-2.0
# What Doxygen reads of a header: its first comment is of the file, a comment behind a member is of the member, and none
# of them has HTML.
1,/^$/ {
  s|^// SPDX.*|//|
  s|^// |/// |
}
\|^ */// | s|[<>#]|\\&|g
s|\([;,{]\)  // |\1  ///< |
s|^\( \{12,\}\)// |\1///< |
\|///< | {
  h
  s|.*///< ||
  s|[<>#]|\\&|g
  x
  s|///< .*|///< |
  G
  s|\n||
}
s|^#pragma once|/// @file|
