#!/usr/bin/env bash
# Generates the OpenAPI definitions of every served type from the Go types of
# k8s.io/api and of our own kinds. Run by `make generate`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Ours get their own names; those of others have them already.
own=(github.com/everynode/everynode/api/v1alpha1)
packages=(
  k8s.io/api/admissionregistration/v1
  k8s.io/api/apps/v1
  k8s.io/api/authentication/v1
  k8s.io/api/authorization/v1
  k8s.io/api/autoscaling/v1
  k8s.io/api/autoscaling/v2
  k8s.io/api/batch/v1
  k8s.io/api/certificates/v1
  k8s.io/api/coordination/v1
  k8s.io/api/core/v1
  k8s.io/api/discovery/v1
  k8s.io/api/events/v1
  k8s.io/api/flowcontrol/v1
  k8s.io/api/networking/v1
  k8s.io/api/node/v1
  k8s.io/api/policy/v1
  k8s.io/api/rbac/v1
  k8s.io/api/resource/v1
  k8s.io/api/scheduling/v1
  k8s.io/api/scheduling/v1alpha3
  k8s.io/api/storage/v1
  k8s.io/apimachinery/pkg/api/resource
  k8s.io/apimachinery/pkg/apis/meta/v1
  k8s.io/apimachinery/pkg/runtime
  k8s.io/apimachinery/pkg/util/intstr
  k8s.io/apimachinery/pkg/version
)
readonly_packages=()
for p in "${packages[@]}"; do readonly_packages+=(--readonly-pkg "$p"); done

go tool openapi-gen \
  --output-dir internal/apiserver/openapi \
  --output-pkg github.com/everynode/everynode/internal/apiserver/openapi \
  --output-file zz_generated.openapi.go \
  --output-model-name-file zz_generated.model_name.go \
  --report-filename /dev/null \
  --go-header-file /dev/null \
  "${readonly_packages[@]}" "${packages[@]}" "${own[@]}"
