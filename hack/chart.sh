#!/usr/bin/env bash
# Packs the Helm chart of the controller with the version of a release.
# Usage: hack/chart.sh VERSION FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

hack/helm.sh v4
# A chart's version has three numbers; what is not a tag comes before every release.
case "$1" in
  v[0-9]*) version=${1#v} ;;
  *) version=0.0.0-git-${1//[^0-9A-Za-z-]/-} ;; # not a part of its own: one of digits may not begin with 0
esac
bin/helm-v4 package packaging/chart --version "$version" --app-version "$1" --destination "$2"
