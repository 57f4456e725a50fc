#!/usr/bin/env bash
# What the page's tests need and pip does not give: Chromium, and fonts for it. A run that must show the page is
# pytest --chromium-required.
set -uo pipefail
cd "$(dirname "$0")/../.."
room=page
. tests/needs.sh

need chromium 'command -v chromium' chromium
need fonts 'fc-list : family | grep -i -e inter -e dejavu -e liberation -e noto' fontconfig fonts-inter fonts-dejavu-core
exit 0
