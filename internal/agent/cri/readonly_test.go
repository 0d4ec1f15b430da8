package cri

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What is to be read-only with all below it is that, or the container does not run; unless it said "if possible".
func TestReadOnlyWithAllBelow(t *testing.T) {
	able := []*runtimeapi.RuntimeHandler{{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}}
	for what, c := range map[string]struct {
		list    []*runtimeapi.RuntimeHandler
		err     error
		mode    corev1.RecursiveReadOnlyMode
		want    bool
		refused string
	}{
		"able, enabled":            {able, nil, corev1.RecursiveReadOnlyEnabled, true, ""},
		"able, if possible":        {able, nil, corev1.RecursiveReadOnlyIfPossible, true, ""},
		"able, disabled":           {able, nil, corev1.RecursiveReadOnlyDisabled, false, ""},
		"able, nothing said":       {able, nil, "", false, ""},
		"unable, enabled":          {nil, nil, corev1.RecursiveReadOnlyEnabled, false, "the mount at /data asks for recursiveReadOnly, and the container runtime does not support that"},
		"another way, enabled":     {[]*runtimeapi.RuntimeHandler{{Name: "vm", Features: able[0].Features}}, nil, corev1.RecursiveReadOnlyEnabled, false, "does not support that"},
		"unable, if possible":      {nil, nil, corev1.RecursiveReadOnlyIfPossible, false, ""},
		"without answer, enabled":  {nil, errors.New("gone"), corev1.RecursiveReadOnlyEnabled, false, "gone"},
		"without answer, possible": {nil, errors.New("gone"), corev1.RecursiveReadOnlyIfPossible, false, "gone"},
		"without answer, disabled": {nil, errors.New("gone"), corev1.RecursiveReadOnlyDisabled, false, ""},
	} {
		r := testRuntime(t)
		h := &handlers{list: c.list, err: c.err}
		r.service = h
		pod := testPod()
		mounts := []Mount{{ContainerPath: "/data", HostPath: "/b", ReadOnly: true, RecursiveReadOnly: c.mode}}
		_, err := r.CreateContainer(t.Context(), ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0], Mounts: mounts})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) || h.container != nil {
				t.Errorf("%s: %v; made %v", what, err, h.container)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if m := h.container.Mounts[0]; !m.Readonly || m.RecursiveReadOnly != c.want {
			t.Errorf("%s: the mount is %v", what, m)
		}
		if mounts[0].RecursiveReadOnly != c.mode {
			t.Errorf("%s: what was asked for is now %q", what, mounts[0].RecursiveReadOnly)
		}
	}
}
