package cri

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/userns"
)

// handlers is a runtime that can run pods in these ways, and keeps what it is asked to make.
type handlers struct {
	internalapi.RuntimeService
	list      []*runtimeapi.RuntimeHandler
	err       error
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
	handler   string
}

func (h *handlers) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{RuntimeHandlers: h.list}, h.err
}

func (h *handlers) RunPodSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	h.sandbox, h.handler = c, handler
	return "sandbox", nil
}

func (h *handlers) CreateContainer(_ context.Context, _ string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	h.container = c
	return "container", nil
}

func handler(name string, users bool) *runtimeapi.RuntimeHandler {
	return &runtimeapi.RuntimeHandler{Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: users}}
}

// A pod that wants users of its own gets them, or does not run.
func TestUsersOfItsOwnOrNothing(t *testing.T) {
	for what, c := range map[string]struct {
		list []*runtimeapi.RuntimeHandler
		err  error
		able bool
	}{
		"an old runtime says nothing":       {nil, nil, false},
		"one that cannot":                   {[]*runtimeapi.RuntimeHandler{handler("", false)}, nil, false},
		"another way of running pods can":   {[]*runtimeapi.RuntimeHandler{handler("", false), handler("vm", true)}, nil, false},
		"a runtime that does not answer":    {nil, errors.New("gone"), false},
		"one without features":              {[]*runtimeapi.RuntimeHandler{{Name: ""}}, nil, false},
		"the usual way of running pods can": {[]*runtimeapi.RuntimeHandler{handler("vm", false), handler("", true)}, nil, true},
	} {
		r := testRuntime(t)
		h := &handlers{list: c.list, err: c.err}
		r.service = h
		pod := testPod()
		pod.Spec.HostUsers = ptr(false)
		_, err := r.CreateSandbox(t.Context(), pod, 0)
		_, containerErr := r.CreateContainer(t.Context(), ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0]})
		if (err == nil) != c.able || (h.sandbox != nil) != c.able || (containerErr == nil) != c.able || (h.container != nil) != c.able {
			t.Errorf("%s: %v, %v; made %v and %v", what, err, containerErr, h.sandbox, h.container)
		}
		if err != nil && c.err == nil && !strings.HasPrefix(err.Error(), "can't set `spec.hostUsers: false`, runtime does not support user namespaces") {
			t.Errorf("%s: %v", what, err)
		}
		// Whoever does not ask for it runs as ever.
		pod.UID, pod.Spec.HostUsers = "other", ptr(true)
		if _, err := r.CreateSandbox(t.Context(), pod, 0); err != nil || h.sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions != nil {
			t.Errorf("%s: a pod with the node's users: %v", what, err)
		}
	}
}

// The IDs are the same for the sandbox, its containers and their mounts, also after a restart of the agent, and nobody else's
// before the pod is gone.
func TestUsersAreKept(t *testing.T) {
	r := testRuntime(t)
	h := &handlers{list: []*runtimeapi.RuntimeHandler{handler("", true)}}
	r.service = h
	first := func(r *Runtime, uid string) uint32 {
		t.Helper()
		pod := testPod()
		pod.UID, pod.Spec.HostUsers = types.UID(uid), ptr(false)
		if _, err := r.CreateSandbox(t.Context(), pod, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := r.CreateContainer(t.Context(), ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0], Mounts: []Mount{{ContainerPath: "/a", HostPath: "/b"}}}); err != nil {
			t.Fatal(err)
		}
		want := h.sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions
		if want.Mode != runtimeapi.NamespaceMode_POD || len(want.Uids) != 1 || want.Uids[0].Length != userns.Size || want.Uids[0].ContainerId != 0 || want.Gids[0].HostId != want.Uids[0].HostId {
			t.Fatalf("the sandbox has %v", want)
		}
		if got := h.container.Linux.SecurityContext.NamespaceOptions.UsernsOptions; got.Uids[0].HostId != want.Uids[0].HostId {
			t.Errorf("the container has %v, the sandbox %v", got, want)
		}
		for _, m := range h.container.Mounts {
			if len(m.UidMappings) != 1 || m.UidMappings[0].HostId != want.Uids[0].HostId || m.GidMappings[0].HostId != want.Uids[0].HostId {
				t.Errorf("the mount %s has %v", m.ContainerPath, m.UidMappings)
			}
		}
		return want.Uids[0].HostId
	}
	a, b := first(r, "a"), first(r, "b")
	if a == b || a < userns.Size {
		t.Errorf("two pods have users from %d and from %d on", a, b)
	}
	again := New(r.cfg)
	again.service = h
	if c := first(again, "c"); c == a || c == b {
		t.Errorf("after a restart a third pod has users from %d on, as another", c)
	}
	if got := first(again, "b"); got != b {
		t.Errorf("after a restart the pod has users from %d on, before %d", got, b)
	}
	if err := again.Clean(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if d := first(again, "d"); d != a {
		t.Errorf("what is free again was not given: %d, not %d", d, a)
	}
	// What cannot be read may be anybody's.
	if err := os.WriteFile(again.users.file("b"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	last := New(r.cfg)
	last.service = h
	pod := testPod()
	pod.UID, pod.Spec.HostUsers = "e", ptr(false)
	if _, err := last.CreateSandbox(t.Context(), pod, 0); err == nil || !strings.Contains(err.Error(), again.users.file("b")) {
		t.Errorf("with a broken file: %v", err)
	}
}

// A pod is run in the way that its class names, and not at all if nobody knows the class.
func TestRuntimeClass(t *testing.T) {
	r := testRuntime(t)
	r.cfg.Handler = func(_ context.Context, class string) (string, error) {
		if class != "vm" {
			return "", errors.New("no such class")
		}
		return "kata", nil
	}
	h := &handlers{list: []*runtimeapi.RuntimeHandler{handler("", false), handler("kata", true)}}
	r.service = h
	pod := testPod()
	pod.Spec.RuntimeClassName, pod.Spec.HostUsers = ptr("vm"), ptr(false)
	if _, err := r.CreateSandbox(t.Context(), pod, 0); err != nil || h.handler != "kata" {
		t.Errorf("the handler is %q, %v", h.handler, err)
	}
	if _, err := r.CreateContainer(t.Context(), ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0]}); err != nil {
		t.Error(err)
	}
	pod.Spec.RuntimeClassName = ptr("unknown")
	h.sandbox = nil
	if _, err := r.CreateSandbox(t.Context(), pod, 0); err == nil || h.sandbox != nil {
		t.Errorf("a pod of an unknown class: %v, %v", h.sandbox, err)
	}
	pod.Spec.RuntimeClassName, pod.Spec.HostUsers = nil, nil
	if _, err := r.CreateSandbox(t.Context(), pod, 0); err != nil || h.handler != "" {
		t.Errorf("the handler of a pod without a class is %q, %v", h.handler, err)
	}
	got := handlersOf(h.list)
	if len(got) != 2 || got[0].Name != "" || got[1].Name != "kata" || *got[0].Features.UserNamespaces || !*got[1].Features.UserNamespaces {
		t.Errorf("the node says %v", got)
	}
}
