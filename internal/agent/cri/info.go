package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Condition is one of the conditions that a runtime reports of itself.
type Condition struct {
	OK              bool
	Reason, Message string
}

// Info is what a runtime says of itself.
type Info struct {
	Name, Version       string
	Ready, NetworkReady Condition
	// StrictGroups says that it can keep the image's groups from a container.
	StrictGroups bool
	// Handlers are the ways in which it can run pods; an old runtime does not tell.
	Handlers []corev1.NodeRuntimeHandler
}

// Info asks the runtime how it is.
func (r *Runtime) Info(ctx context.Context) (Info, error) {
	version, err := r.service.Version(ctx, "v1")
	if err != nil {
		return Info{}, fmt.Errorf("ask the container runtime for its version: %w", err)
	}
	resp, err := r.service.Status(ctx, false)
	if err != nil {
		return Info{}, fmt.Errorf("ask the container runtime how it is: %w", err)
	}
	info := Info{Name: version.RuntimeName, Version: version.RuntimeVersion,
		StrictGroups: resp.GetFeatures().GetSupplementalGroupsPolicy(),
		Handlers:     handlersOf(resp.GetRuntimeHandlers())}
	for _, c := range resp.GetStatus().GetConditions() {
		cond := Condition{OK: c.Status, Reason: c.Reason, Message: c.Message}
		switch c.Type {
		case runtimeapi.RuntimeReady:
			info.Ready = cond
		case runtimeapi.NetworkReady:
			info.NetworkReady = cond
		}
	}
	wrong, err := r.checkDriver(ctx)
	if err != nil {
		return Info{}, err
	}
	if wrong != "" {
		info.Ready = Condition{Reason: "CgroupDriver", Message: wrong}
	}
	return info, nil
}

func handlersOf(list []*runtimeapi.RuntimeHandler) []corev1.NodeRuntimeHandler {
	var out []corev1.NodeRuntimeHandler
	for _, h := range list {
		readOnly, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		out = append(out, corev1.NodeRuntimeHandler{Name: h.GetName(),
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly, UserNamespaces: &users}})
	}
	slices.SortFunc(out, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// ImageInfo is one image on the node.
type ImageInfo struct {
	// Names are its tags and digests.
	Names []string
	// Size is in bytes.
	Size int64
}

// ListImages lists the images on the node.
func ListImages(ctx context.Context, service internalapi.ImageManagerService) ([]ImageInfo, error) {
	list, err := service.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	out := make([]ImageInfo, 0, len(list))
	for _, i := range list {
		names := append(append([]string{}, i.RepoDigests...), i.RepoTags...)
		out = append(out, ImageInfo{Names: names, Size: int64(i.Size)})
	}
	return out, nil
}

// Sweep removes the files and cgroups of pods that are not live, left by an agent that was killed while it cleared up.
// It goes on after errors and returns them joined.
func (r *Runtime) Sweep(ctx context.Context, live func(uid types.UID) bool) error {
	found := map[types.UID]bool{}
	logged, err := r.logs.Pods()
	if err != nil {
		return err
	}
	for _, uid := range logged {
		found[uid] = true
	}
	own, err := readNames(r.cfg.PodsRoot)
	if err != nil {
		return err
	}
	for _, name := range own {
		found[types.UID(name)] = true
	}
	var errs []error
	for uid := range found {
		// What is called otherwise is none of ours: ".." would be everything, and so would "*".
		if isUID(uid) && !live(uid) {
			errs = append(errs, r.Clean(ctx, uid))
		}
	}
	return errors.Join(append(errs, r.logs.SweepLinks(), r.cfg.Cgroups.Sweep(live))...)
}

// isUID says whether a text can be a pod's UID: letters, figures and hyphens. Others can make folders among the logs.
func isUID(uid types.UID) bool {
	return uid != "" && strings.Trim(string(uid), "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

// KnowsCDI says whether the runtime finds devices by their names in the Container Device Interface. Runtimes that do
// not know it leave such devices out without a word.
func (r *Runtime) KnowsCDI(ctx context.Context) (bool, error) {
	version, err := r.service.Version(ctx, "v1")
	if err != nil {
		return false, fmt.Errorf("ask the container runtime for its version: %w", err)
	}
	if version.RuntimeName != "containerd" {
		return true, nil
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version.RuntimeVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	if major != "1" {
		return true, nil
	}
	if n, err := strconv.Atoi(minor); err == nil && n < 7 {
		return false, nil
	}
	status, err := r.service.Status(ctx, true)
	if err != nil {
		return false, fmt.Errorf("ask the container runtime for its configuration: %w", err)
	}
	return strings.Contains(status.Info["config"], `"enableCDI":true`), nil
}
