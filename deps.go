// Package everynode pins the modules that the project is being built on.
package everynode

import (
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/containerd/containerd/v2/client"
	_ "github.com/go-jose/go-jose/v4"
	_ "github.com/google/btree"
	_ "github.com/google/go-containerregistry/pkg/registry"
	_ "github.com/google/go-containerregistry/pkg/v1/tarball"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apiserver/pkg/server"
	_ "k8s.io/apiserver/pkg/server/options"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/component-helpers/auth/rbac/validation"
	_ "k8s.io/component-helpers/scheduling/corev1"
	_ "k8s.io/cri-client/pkg"
	_ "k8s.io/cri-streaming/pkg/streaming"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/pod-security-admission/policy"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/controller-runtime"
)
