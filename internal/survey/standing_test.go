package survey_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/survey"
	"github.com/everynode/everynode/internal/survey/surveytest"
)

func standingOf(t *testing.T, edit func(*corev1.Pod)) survey.Standing {
	t.Helper()
	w := surveytest.New(t)
	ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
	w.Node("node-1")
	w.Pod(ds, "node-1", revisions[1], func(p *corev1.Pod) {
		p.Status.Conditions[1].Status = corev1.ConditionFalse
		edit(p)
	})
	v, err := survey.New(w.Objects).View(ds)
	if err != nil {
		t.Fatal(err)
	}
	return v.Standing("node-1")
}

func says(st survey.Standing, words string) bool {
	return slices.ContainsFunc(st.Reasons, func(r string) bool { return strings.Contains(r, words) })
}

// TestWhichContainerFailed: one that has done its work has not, one that ended badly has, also if it is an init
// container.
func TestWhichContainerFailed(t *testing.T) {
	ended := func(code int32, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "init", RestartCount: restarts, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Over",
				FinishedAt: surveytest.Ago(time.Minute)},
		}}
	}
	waiting := corev1.ContainerStatus{Name: "agent",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}
	for _, c := range []struct {
		name      string
		init      corev1.ContainerStatus
		container string
		restarted bool
	}{
		{"has done its work", ended(0, 0), "", false},
		{"ended badly", ended(3, 0), "init", false},
		{"ended badly, and was started before", ended(3, 2), "init", false},
	} {
		st := standingOf(t, func(p *corev1.Pod) {
			p.Status.InitContainerStatuses, p.Status.ContainerStatuses = []corev1.ContainerStatus{c.init}, []corev1.ContainerStatus{waiting}
		})
		if st.Container != c.container || st.Restarted != c.restarted ||
			says(st, "container init: ") != (c.container != "") {
			t.Errorf("%s: container %q, restarted %t, because %q", c.name, st.Container, st.Restarted, st.Reasons)
		}
	}
	st := standingOf(t, func(p *corev1.Pod) {
		s := ended(3, 2)
		s.LastTerminationState, s.State = s.State, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{s}
	})
	if st.Container != "init" || !st.Restarted {
		t.Errorf("one that runs again: container %q, restarted %t", st.Container, st.Restarted)
	}
}

// TestWhatKeepsAPodAway: a taint that only asks for another node keeps nobody away, and a pod that is over takes no
// room.
func TestWhatKeepsAPodAway(t *testing.T) {
	w := surveytest.New(t)
	ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	w.Node("node-1", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "rather", Effect: corev1.TaintEffectPreferNoSchedule}}
	})
	w.Pod(ds, "node-1", "", func(p *corev1.Pod) {
		p.OwnerReferences, p.Status.Phase = nil, corev1.PodSucceeded
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	})
	s := survey.New(w.Objects)
	v, err := s.View(ds)
	if err != nil {
		t.Fatal(err)
	}
	if st := v.Standing("node-1"); !slices.Equal(st.Reasons,
		[]string{"nodeSelector disk=ssd: the node has no label disk"}) {
		t.Errorf("it is not selected because %q", st.Reasons)
	}
	template := ds.Spec.Template.DeepCopy()
	template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	if reasons := s.Room(template, ds.Namespace).Reasons("node-1", nil); len(reasons) > 0 {
		t.Errorf("there is no room: %q", reasons)
	}
}
