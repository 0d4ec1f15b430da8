package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/userns"
	"github.com/everynode/everynode/internal/files/wholefile"
)

// usersFile, in a pod's folder, says which user IDs are the pod's. Containers of an agent's earlier run go on with
// theirs.
const usersFile = "userns.json"

// podUsers is what the file says.
type podUsers struct {
	// FirstID is the user and group of the machine that is root in the pod.
	FirstID uint32 `json:"firstID"`
}

// users keeps which pods have which user IDs of the machine.
type users struct {
	root string

	mu    sync.Mutex
	parts *userns.Parts // nil until the files were read
}

// OwnUsers says whether the pod wants users of its own: root in it is nobody outside.
func OwnUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// checkUsers says why the pod cannot have users of its own here. Without them it would have more rights than it was
// admitted with.
func (r *Runtime) checkUsers(ctx context.Context, pod *corev1.Pod, handler string) error {
	if !OwnUsers(pod) {
		return nil
	}
	able, err := r.can(ctx, handler, (*runtimeapi.RuntimeHandlerFeatures).GetUserNamespaces)
	if err != nil {
		return fmt.Errorf("ask the container runtime for user namespaces: %w", err)
	}
	if !able {
		return errors.New(
			"can't set `spec.hostUsers: false`, runtime does not support user namespaces (containerd 2.0 with runc 1.2 or " +
				"newer does)",
		)
	}
	return nil
}

// can says whether the runtime has a feature in one of its ways of running pods. Old runtimes say nothing.
func (r *Runtime) can(ctx context.Context, handler string,
	feature func(*runtimeapi.RuntimeHandlerFeatures) bool) (bool, error) {
	resp, err := r.service.Status(ctx, false)
	return slices.ContainsFunc(resp.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool {
		return h.GetName() == handler && feature(h.GetFeatures())
	}), err
}

// of is the pod's user namespace, nil for the machine's.
func (u *users) of(pod *corev1.Pod) (*runtimeapi.UserNamespace, error) {
	if !OwnUsers(pod) {
		return nil, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.read(); err != nil {
		return nil, err
	}
	first, had := u.parts.Of(pod.UID)
	if !had {
		var err error
		if first, err = u.give(pod.UID); err != nil {
			return nil, err
		}
	}
	mapping := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: first, ContainerId: 0, Length: userns.Size}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping(), Gids: mapping()}, nil
}

// give takes a part for the pod, and writes that down before anybody uses it.
func (u *users) give(uid types.UID) (uint32, error) {
	first, err := u.parts.Take(uid)
	if err != nil {
		return 0, err
	}
	content, err := json.Marshal(podUsers{first})
	if err == nil {
		err = os.MkdirAll(filepath.Join(u.root, string(uid)), 0o750)
	}
	if err == nil {
		err = wholefile.Write(u.file(uid), 0o600, wholefile.Bytes(content))
	}
	if err != nil {
		u.parts.Free(uid)
		return 0, fmt.Errorf("note the user IDs of pod %s: %w", uid, err)
	}
	return first, nil
}

func (u *users) file(uid types.UID) string { return filepath.Join(u.root, string(uid), usersFile) }

// read reads, once, what an earlier run gave. While a file cannot be read nothing is given: it could be the same again.
func (u *users) read() error {
	if u.parts != nil {
		return nil
	}
	names, err := readNames(u.root)
	if err != nil {
		return err
	}
	parts := userns.New()
	for _, name := range names {
		uid := types.UID(name)
		content, err := os.ReadFile(u.file(uid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var noted podUsers
		if err == nil {
			err = json.Unmarshal(content, &noted)
		}
		if err == nil {
			err = parts.Hold(uid, noted.FirstID)
		}
		if err != nil {
			return fmt.Errorf("read which user IDs pods have; remove %s when its pod is gone: %w", u.file(uid), err)
		}
	}
	u.parts = parts
	return nil
}

// free takes the user IDs of a pod back of which nothing is left.
func (u *users) free(uid types.UID) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := os.Remove(u.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back the user IDs of pod %s: %w", uid, err)
	}
	if u.parts != nil {
		u.parts.Free(uid)
	}
	return nil
}
