package pods_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
)

func TestStaticPodsNeedNoAPI(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a, podstest.WithStaticPods)
	p.RuntimeListed(nil)
	p.SetStatics([]*corev1.Pod{podstest.StaticPod("s", "1")})
	r.Await(t, "sandbox s", "start s/main")
	p.SetStatics(nil)
	r.Await(t, "kill "+strings.Repeat("1", 32)+"-main-0", "stop "+strings.Repeat("1", 32)+"-0",
		"remove "+strings.Repeat("1", 32)+"-main-0", "remove "+strings.Repeat("1", 32)+"-0", "clean "+strings.Repeat("1", 32))
}

func TestEditedStaticPodWaitsForTheOldOne(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a, podstest.WithStaticPods)
	p.SetStatics([]*corev1.Pod{podstest.StaticPod("s", "1")})
	p.RuntimeListed(nil)
	r.Await(t, "sandbox s", "start s/main")
	p.SetStatics([]*corev1.Pod{podstest.StaticPod("s", "2")})
	old := strings.Repeat("1", 32)
	for _, step := range []string{"kill " + old + "-main-0", "stop " + old + "-0"} {
		r.Await(t, step)
	}
	r.Await(t, "remove "+old+"-main-0", "remove "+old+"-0")
	r.Await(t, "clean "+old)
	r.Await(t, "sandbox s", "start s/main")
	// And back, while the second is on its way out: each life begins after the one before it.
	p.SetStatics([]*corev1.Pod{podstest.StaticPod("s", "1")})
	p.SetStatics([]*corev1.Pod{podstest.StaticPod("s", "2")})
	again := strings.Repeat("2", 32)
	r.Await(t, "kill "+again+"-main-0")
	r.Await(t, "stop "+again+"-0")
	r.Await(t, "remove "+again+"-main-0", "remove "+again+"-0")
	r.Await(t, "clean "+again)
	r.Await(t, "sandbox s", "start s/main")
	if !p.Has(types.UID(again)) || p.Has(types.UID(old)) {
		t.Error("the pod that runs is not the one that is wanted")
	}
}

func TestRestartedAgentKnowsItsStaticPods(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	kept, stale := strings.Repeat("1", 32), strings.Repeat("2", 32)
	for _, uid := range []string{kept, stale} {
		r.Pods[types.UID(uid)] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: "s" + uid[:1], Ready: true,
			HostNetwork: true}},
			Containers: []podworker.Container{{ID: "c" + uid[:1], Name: "main", SandboxID: "s" + uid[:1],
				State: podworker.Running}}}
	}
	p := podstest.Start(t, r, a, podstest.WithStaticPods)
	p.SetStatics([]*corev1.Pod{podstest.StaticPod("kept", "1")})
	// A pod of the API is left alone until the API is read.
	p.RuntimeListed([]pleg.PodRef{{UID: types.UID(kept), Namespace: "default", Name: "kept"},
		{UID: types.UID(stale), Namespace: "default", Name: "stale"},
		{UID: "6f9c1c0e-7a53-4f0c-9a0c-1b1f7e1a2b3c", Namespace: "default", Name: "other"}})
	r.Await(t, "kill c2")
	r.Await(t, "stop s2")
	r.Await(t, "remove c2", "remove s2")
	r.Await(t, "clean "+stale)
	if !p.Has(types.UID(kept)) {
		t.Error("the static pod that ran has no worker")
	}
}
