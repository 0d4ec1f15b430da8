package survey_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
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

// A pod that is resized takes the room of what it has then, and one that leaves none.
func TestRoomBesideAResizedPod(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1.4")
	w.Node("node-1")
	asks := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	w.Pod(ds, "node-1", hashes[0], func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = asks("1500m") })
	there := w.Objects.Pods[0]
	resized := func(cpu string) *corev1.Pod {
		p := there.DeepCopy()
		p.Spec.Containers[0].Resources.Requests = asks(cpu)
		return p
	}
	template := ds.Spec.Template.DeepCopy()
	template.Spec.Containers[0].Resources.Requests = asks("1")
	room := survey.New(w.Objects).Room(template, ds.Namespace)
	for name, c := range map[string]struct {
		got  []string
		fits bool
	}{
		"as it is":   {room.Reasons("node-1", nil), false},
		"gone":       {room.Reasons("node-1", []*corev1.Pod{there}), true},
		"smaller":    {room.Reasons("node-1", nil, resized("1")), true},
		"not enough": {room.Reasons("node-1", nil, resized("1001m")), false},
		"of another": {room.Reasons("node-1", nil, &corev1.Pod{}), false},
	} {
		if (len(c.got) == 0) != c.fits {
			t.Errorf("%s: what keeps the pod away is %q", name, c.got)
		}
	}
}

// Each run of a command judges by what the status and the nodes say: how long a node has not been able to fetch images
// is not counted from when it is run.
func TestHowLongANodeCannotFetch(t *testing.T) {
	for name, c := range map[string]struct {
		reason fetch.Reason
		since  time.Duration
		want   standing.Verdict
		at     metav1.Time
	}{
		"for 20 s":                   {fetch.Unreachable, 20 * time.Second, standing.Waiting, metav1.Time{}},
		"for 40 s":                   {fetch.Unreachable, 40 * time.Second, standing.NoRoom, surveytest.Ago(40 * time.Second)},
		"the image is missing, 40 s": {fetch.NotFound, 40 * time.Second, standing.FailedRevision, surveytest.Ago(40 * time.Second)},
		"its clock is ahead":         {fetch.Unreachable, -time.Minute, standing.Waiting, metav1.Time{}},
	} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
		w.Policy("agents", "waves: [{name: all, nodes: {}, fetch: true}]\nfailure: {min: 9, max: 9}")
		started := surveytest.Ago(2 * time.Minute)
		w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, StableRevision: revisions[0],
			TargetRevision: revisions[1], Step: "all", StepStarted: &started})
		asked := fetch.Request{Revision: revisions[1], At: surveytest.Ago(time.Minute).Time}
		text, err := asked.Text()
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range []string{"node-1", "node-2"} {
			w.Node(node)
			w.Pod(ds, node, revisions[0], func(p *corev1.Pod) {
				p.Annotations = map[string]string{fetch.Name: text}
				answer := asked.Answer(c.reason, "so it is")
				answer.LastTransitionTime = surveytest.Ago(c.since)
				if node == "node-1" {
					p.Status.Conditions = append(p.Status.Conditions, answer)
				}
			})
		}
		v, err := survey.New(w.Objects).View(ds)
		if err != nil {
			t.Fatal(err)
		}
		st := v.Standing("node-1")
		if st.Verdict != c.want || !st.Since.Equal(c.at.Time) || !says(st, "so it is") {
			t.Errorf("%s: it is %s since %s, because %q; want %s since %s", name, st.Verdict, st.Since, st.Reasons, c.want, c.at)
		}
		if st := v.Standing("node-2"); st.Verdict != standing.Waiting {
			t.Errorf("%s: one that has not answered is %s, because %q", name, st.Verdict, st.Reasons)
		}
	}
}

// A node that waits for its turn says who uses up the limit: one whose old pod does not go, or whom the controller names.
func TestWhoUsesUpTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		two     bool
		want    string
	}{
		"nobody":        {"step all: 0 of 2 nodes done", false, "its turn"},
		"an old pod":    {"", true, "its turn: the limit is used up by node-1"},
		"by its status": {"step all; " + words.UsedUp + "1 node: n (cpu short)", false, "its turn: " + words.UsedUp + "1 node: n (cpu short)"},
	} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
		ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))}
		w.Policy("agents", "waves: [{name: all, nodes: {}}]")
		started := surveytest.Ago(2 * time.Minute)
		w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, StableRevision: revisions[0],
			TargetRevision: revisions[1], Step: "all", StepStarted: &started, Message: c.message})
		for _, node := range []string{"node-1", "node-2"} {
			w.Node(node)
			w.Pod(ds, node, revisions[0])
		}
		if c.two {
			w.Pod(ds, "node-1", revisions[1], func(p *corev1.Pod) {
				p.Name, p.UID, p.CreationTimestamp = "second", "second", surveytest.Ago(51*time.Minute)
			})
		}
		v, err := survey.New(w.Objects).View(ds)
		if err != nil {
			t.Fatal(err)
		}
		if st := v.Standing("node-2"); st.Verdict != standing.Waiting || !slices.Equal(st.Reasons, []string{c.want}) {
			t.Errorf("%s: it is %s because %q, want %q", name, st.Verdict, st.Reasons, c.want)
		}
		if st := v.Standing("node-1"); c.two && !says(st, "its old pod is still there") {
			t.Errorf("the one with two pods is %s because %q", st.Verdict, st.Reasons)
		}
	}
}

// A node that cannot be asked for images is waited for since its step began, not since somebody looks, and so are those
// that pods cannot ask: the controller has gone on without them.
func TestHowLongImagesAreAwaited(t *testing.T) {
	const others = "it waits for others of its step; images are awaited on"
	pods := func(why string) *v1alpha1.FetchStatus { return &v1alpha1.FetchStatus{ByPods: true, Message: why} }
	for title, c := range map[string]struct {
		minutes  int // since the step began
		by       *v1alpha1.FetchStatus
		first    string // of node-unasked, whose agent does not say that it can fetch
		says     string // of node-done, whose images are there
		silences string
	}{
		"it has just begun":            {minutes: 1, first: "its agent does not say that it can fetch images; it is waited for until 12:09:00 UTC", says: others},
		"its time is over":             {minutes: 11, first: "its turn", says: "its turn", silences: others},
		"pods ask, and it comes later": {minutes: 21, by: pods(""), first: "it is asked for the images of revision", says: others},
		"pods are refused":             {minutes: 1, by: pods("exceeded quota"), first: "it tries to fetch the images of revision", says: others},
		"pods were refused for long":   {minutes: 21, by: pods("exceeded quota"), first: "its turn", says: "its turn", silences: others},
	} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
		w.Node("node-busy")
		w.Pod(ds, "node-busy", revisions[1], func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse })
		w.Node("node-done", surveytest.Label(fetch.Name, "true"))
		w.Pod(ds, "node-done", revisions[0], func(p *corev1.Pod) {
			p.Annotations = map[string]string{"everynode.io/fetched-images": `{"Revision":"` + revisions[1] + `","At":"2026-03-01T11:59:00Z","Reason":"Fetched"}`}
		})
		w.Node("node-unasked")
		w.Pod(ds, "node-unasked", revisions[0])
		w.Policy("careful", "waves: [{name: all, nodes: {}, fetch: true, fetchDeadline: 10m}]\nfailure: {startDeadline: 2h}")
		began := surveytest.Ago(time.Duration(c.minutes) * time.Minute)
		w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, StableRevision: revisions[0], TargetRevision: revisions[1],
			Step: "all", StepStarted: &began, Fetch: c.by, DaemonSetGeneration: ds.Generation})
		v, err := survey.New(w.Objects).View(ds)
		if err != nil {
			t.Fatal(err)
		}
		if st := v.Standing("node-unasked"); !says(st, c.first) {
			t.Errorf("%s: of the node that is not asked it says %q, want %q", title, st.Reasons, c.first)
		}
		if st := v.Standing("node-done"); !says(st, c.says) || c.silences != "" && says(st, c.silences) {
			t.Errorf("%s: of the others it says %q, want %q", title, st.Reasons, c.says)
		}
	}
}
