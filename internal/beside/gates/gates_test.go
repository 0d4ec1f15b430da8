package gates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

var digest = "sha256:" + strings.Repeat("a1", 32)

// template is one whose image has a tag.
func template() *corev1.PodSpec {
	return &corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "demo:v1", ImagePullPolicy: corev1.PullIfNotPresent}}}
}

// kind is how a pod stands.
type kind func(*corev1.Pod)

func gated(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: pinning.Gate}}
	p.Spec.NodeName = ""
}

func through(ago time.Duration) kind {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{pinning.Annotation: pinning.Mark(noon.Add(-ago), p.Name)}
	}
}

func whole(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", ImageID: "docker.io/library/demo@" + digest}}
}

func stuck(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Image: "demo:v1",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
}

func unplaceable(p *corev1.Pod) {
	p.Spec.NodeName = ""
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable, Message: "no room"}}
}

func going(p *corev1.Pod)  { p.DeletionTimestamp = &metav1.Time{Time: noon} }
func failed(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }

func by(p *corev1.Pod) { p.Spec.Containers[0].Image = "demo@" + digest }

func of(hash string) kind {
	return func(p *corev1.Pod) { p.Labels[appsv1.ControllerRevisionHashLabelKey] = hash }
}

func aged(d time.Duration) kind {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-d)) }
}

// waits is one that waits behind the gate, asking one that was let through a minute ago.
func waits(i int, kinds ...kind) *corev1.Pod { return podOf(i, append([]kind{gated}, kinds...)...) }
func asking(i int, kinds ...kind) *corev1.Pod {
	return podOf(i, append([]kind{through(time.Minute)}, kinds...)...)
}

// podOf is a pod of the template t2 on a node of its own.
func podOf(i int, kinds ...kind) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)), ResourceVersion: "7",
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(10-i) * time.Second)),
		Labels:            map[string]string{appsv1.ControllerRevisionHashLabelKey: "t2"}}, Spec: *template()}
	p.Spec.NodeName = fmt.Sprint("n", i)
	for _, k := range kinds {
		k(p)
	}
	return p
}

// says is a rollout from t1 to t2 that knows the digests of some templates.
func says(known ...string) *v1alpha1.DaemonSetRolloutStatus {
	s := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "t1", TargetRevision: "t2", Images: &v1alpha1.ImagesStatus{}}
	for _, hash := range known {
		s.Images.Templates = append(s.Images.Templates, v1alpha1.PinnedTemplate{Template: hash,
			Images: []v1alpha1.PinnedImage{{Image: "demo:v1", Digest: digest}}})
	}
	return s
}

func fails(s *v1alpha1.DaemonSetRolloutStatus) *v1alpha1.DaemonSetRolloutStatus {
	s.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "t2"}}
	return s
}

func stands(status *v1alpha1.DaemonSetRolloutStatus, pods ...*corev1.Pod) Stand {
	return Stand{Now: noon, Pins: true, Status: status, Pods: pods, Faulty: func(string) bool { return false },
		Template: func(string) *corev1.PodSpec { return template() }}
}

func words(due []Move) string {
	var out []string
	for _, m := range due {
		out = append(out, m.Deed.String()+" "+m.Pod.Name)
	}
	return strings.Join(out, ", ")
}

func TestWhoMayAskARegistry(t *testing.T) {
	isNew := says()
	isNew.StableRevision = ""
	newFails := fails(says())
	newFails.StableRevision = ""
	same := fails(says())
	same.StableRevision = "t2"
	silent, unknown := says(), &v1alpha1.DaemonSetRolloutStatus{}
	silent.Images = nil
	for name, c := range map[string]struct {
		stand Stand
		want  string
	}{
		"nobody waits":                              {stands(says(), podOf(1), podOf(2, whole)), ""},
		"the oldest one is the first":               {stands(says(), waits(2), waits(1), waits(3)), "open p1"},
		"so for a new DaemonSet":                    {stands(isNew, waits(1), waits(2)), "open p1"},
		"one is on its way":                         {stands(says(), asking(1), waits(2)), ""},
		"one has told, and that is not written yet": {stands(says(), asking(1, whole), waits(2)), ""},
		"one was made while nobody was asked":       {stands(says(), podOf(1), waits(2)), ""},
		"it cannot pull":                            {stands(says(), asking(1, stuck), waits(2), waits(3)), "open p2"},
		"it finds no room":                          {stands(says(), asking(1, unplaceable), waits(2)), "open p2"},
		"it is on its way out":                      {stands(says(), asking(1, going), waits(2)), "open p2"},
		"it has failed":                             {stands(says(), asking(1, failed), waits(2)), "open p2"},
		"it says nothing for ten minutes":           {stands(says(), podOf(1, through(pins.Patience)), waits(2)), "open p2"},
		"not quite":                                 {stands(says(), podOf(1, through(pins.Patience-time.Second)), waits(2)), ""},
		"it waited for an hour before":              {stands(says(), asking(1, aged(time.Hour)), waits(2)), ""},
		"one waits that is on its way out":          {stands(says(), waits(1, going), waits(2)), "open p2"},
		"the one on its way is of another template": {stands(says(), podOf(1, of("t1")), waits(2)), "open p2"},
		"the digests are known":                     {stands(says("t1", "t2"), asking(1, whole), waits(2), waits(3)), "remake p2, remake p3"},
		"... and one could not pull": {stands(says("t2"), asking(1, stuck), asking(2, whole), podOf(3, by)),
			"remake p1"},
		"... and an older one by its tag runs":   {stands(says("t2"), podOf(1, stuck), podOf(2, whole)), ""},
		"those of the stable template are known": {stands(says("t1"), waits(1)), "open p1"},
		"nodes before their turn ask too":        {stands(says(), waits(1, of("t1")), waits(2, of("t1")), waits(3)), "open p1, open p3"},
		"... also when the target has failed":    {stands(fails(says()), waits(1, of("t1")), waits(2, of("t1")), waits(3)), "open p1, remake p3"},
		"... or has the same template":           {stands(same, waits(1), waits(2)), "open p1"},
		"the template is not the newest":         {stands(says(), waits(1, of("t0")), waits(2)), "remake p1, open p2"},
		"the template has failed":                {stands(fails(says()), asking(1, stuck), waits(2)), "remake p2"},
		"that of a new DaemonSet has":            {stands(newFails, asking(1, stuck), waits(2)), ""},
		"nothing is known yet":                   {stands(nil, waits(1), waits(2)), "open p1"},
		"nothing is known, and one is first":     {stands(nil, podOf(1, through(time.Second)), waits(2)), ""},
		"nothing is known for a minute":          {stands(unknown, podOf(1, through(time.Second)), waits(2, aged(time.Minute)), waits(3)), "open p2"},
		"of images nothing is said yet":          {stands(silent, waits(1), waits(2)), "open p1"},
	} {
		got := words(Decide(c.stand))
		if got != c.want {
			t.Errorf("%s: %q is due, want %q", name, got, c.want)
		}
		c.stand.Pins = false
		for _, m := range Decide(c.stand) {
			if m.Deed != Remake || !pinning.IsGated(&m.Pod.Spec) {
				t.Errorf("%s, and nothing is pinned: %s %s", name, m.Deed, m.Pod.Name)
			}
		}
		for _, p := range c.stand.Pods {
			is := slices.ContainsFunc(Decide(c.stand), func(m Move) bool { return m.Pod == p })
			if want := pinning.IsGated(&p.Spec) && p.DeletionTimestamp == nil; is != want {
				t.Errorf("%s, and nothing is pinned: pod %s is made again: %t", name, p.Name, is)
			}
		}
	}
}

// TestGateOfATemplate: who waits since the template says so is left alone, and who is of an unknown one is not deleted.
func TestGateOfATemplate(t *testing.T) {
	for name, status := range map[string]*v1alpha1.DaemonSetRolloutStatus{
		"nothing": nil, "no digests": says(), "all digests": says("t1", "t2"), "a failure": fails(says()),
	} {
		for _, pinned := range []bool{true, false} {
			s := stands(status, podOf(1, gated), podOf(2, gated, aged(time.Hour)), podOf(3, gated, of("t0")))
			s.Pins = pinned
			s.Template = func(string) *corev1.PodSpec {
				out := template()
				out.SchedulingGates = []corev1.PodSchedulingGate{{Name: pinning.Gate}}
				return out
			}
			if got := words(Decide(s)); got != "" {
				t.Errorf("%s is known, pinned %t: %q is due for pods that the template has wait", name, pinned, got)
			}
			s.Template = func(string) *corev1.PodSpec { return nil }
			for _, m := range Decide(s) {
				if m.Deed != Open {
					t.Errorf("%s is known, pinned %t: %s %s, whose template is not known", name, pinned, m.Deed, m.Pod.Name)
				}
			}
		}
	}
}

// TestHalfPulledIsLeftOver, as it would pull its other tag some day, but not once its daemon has run.
func TestHalfPulledIsLeftOver(t *testing.T) {
	init := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "demo:v1"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", ImageID: "docker.io/library/demo@" + digest}}
	}
	sidecar := func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Image: "demo:v1"})
	}
	runs := func(p *corev1.Pod) {
		whole(p)
		p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
	}
	for name, c := range map[string]struct {
		kinds []kind
		want  string
	}{
		"the init image alone":             {[]kind{init, stuck}, "remake p1"},
		"both":                             {[]kind{init, whole}, ""},
		"one of two":                       {[]kind{sidecar, whole}, "remake p1"},
		"one of two, whose container runs": {[]kind{sidecar, runs}, ""},
	} {
		if got := words(Decide(stands(says("t1", "t2"), podOf(1, append(c.kinds, through(time.Minute))...)))); got != c.want {
			t.Errorf("%s: %q is due, want %q", name, got, c.want)
		}
	}
}

// A leader that has just begun has seen no rollout's status yet, however long the pods have been there.
func TestANewLeaderGivesAMinute(t *testing.T) {
	s := stands(nil, podOf(1, gated, aged(time.Hour)), podOf(2, gated, aged(time.Hour)), podOf(3, through(time.Second)))
	for led, want := range map[time.Duration]string{0: "", earlyFor - time.Second: "", earlyFor: "open p1, open p2"} {
		s.Led = noon.Add(-led)
		if got := words(Decide(s)); got != want {
			t.Errorf("after %s %q is due, want %q", led, got, want)
		}
	}
}

// A mark of a clock that is ahead has nobody wait for long.
func TestAMarkInTheFuture(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		time.Minute: "", pins.Patience: "", pins.Patience + time.Second: "open p2", 9000 * time.Hour: "open p2",
	} {
		if got := words(Decide(stands(says(), podOf(1, through(-ahead), aged(time.Hour)), podOf(2, gated)))); got != want {
			t.Errorf("%s ahead: %q is due, want %q", ahead, got, want)
		}
	}
}

// A node that is out of order would tell nothing.
func TestFirstIsANodeInOrder(t *testing.T) {
	s := stands(says(), podOf(1, gated), podOf(2, gated), podOf(3, gated))
	for _, p := range s.Pods {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n" + p.Name[1:]}}}}}}}}
	}
	s.Faulty = func(node string) bool { return node == "n1" }
	if got := words(Decide(s)); got != "open p2" {
		t.Errorf("%q is due", got)
	}
	s.Faulty = func(string) bool { return true }
	if got := words(Decide(s)); got != "open p1" {
		t.Errorf("where all are out of order %q is due", got)
	}
}

// TestNobodyWaitsForEver plays kube-controller-manager, admission, nodes and whoever leads in any order: never may two
// pods ask at a time, and in the end all have the digest that one got.
func TestNobodyWaitsForEver(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		status := says()
		status.StableRevision = ""
		pods, made := map[int]*corev1.Pod{}, 0
		now := noon
		broken := map[int]bool{}
		const nodes = 4
		for i := range nodes - 1 {
			broken[i] = rapid.Bool().Draw(r, "broken")
		}
		list := func() []*corev1.Pod {
			out := make([]*corev1.Pod, 0, nodes)
			for _, node := range slices.Sorted(maps.Keys(pods)) {
				out = append(out, pods[node])
			}
			return out
		}
		step := func(what int) {
			now = now.Add(time.Second)
			switch what {
			case 0: // kube-controller-manager makes what is missing, as admission has it
				for i := range nodes {
					if pods[i] != nil {
						continue
					}
					made++
					p := podOf(made, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) })
					p.Spec.NodeName = ""
					images, first := admit.Pins(status, "t2")
					pinning.Fill(&p.Spec, images, first)
					if first {
						gated(p)
					}
					pods[i] = p
				}
			case 1: // nodes pull
				for i, p := range pods {
					switch {
					case pinning.IsGated(&p.Spec):
					case broken[i] && !strings.Contains(p.Spec.Containers[0].Image, "@"):
						stuck(p)
					default:
						p.Status.ContainerStatuses = nil
						whole(p)
					}
				}
			case 2: // the book learns
				for i := range nodes {
					if p := pods[i]; p != nil && len(status.Images.Templates) == 0 {
						images, known, _ := pinning.Read(template(), p)
						if known {
							status.Images.Templates = []v1alpha1.PinnedTemplate{{Template: "t2", Images: images}}
						}
					}
				}
			case 3:
				s := stands(status, list()...)
				s.Now = now
				for _, m := range Decide(s) {
					if m.Deed == Open {
						m.Pod.Spec.SchedulingGates = nil
						m.Pod.Annotations = map[string]string{pinning.Annotation: pinning.Mark(now, m.Pod.Name)}
						continue
					}
					maps.DeleteFunc(pods, func(_ int, p *corev1.Pod) bool { return p == m.Pod })
				}
			}
			asks := 0
			for _, p := range pods {
				mayAsk := !pinning.IsGated(&p.Spec) && !pinning.HasPulled(p)
				if mayAsk && p.Status.ContainerStatuses == nil && pinning.Asks(template(), p) {
					asks++
				}
			}
			if asks > 1 {
				r.Fatalf("%d pods ask at one time", asks)
			}
		}
		for range rapid.IntRange(0, 40).Draw(r, "steps") {
			step(rapid.IntRange(0, 3).Draw(r, "what"))
		}
		for range 20 * nodes {
			for what := range 4 {
				step(what)
			}
		}
		asked := 0
		for i, p := range pods {
			if pinning.IsGated(&p.Spec) || !pinning.HasPulled(p) {
				r.Errorf("the pod of node %d is %+v", i, p)
			}
			if pinning.Asks(template(), p) {
				asked++
			}
		}
		if asked != 1 || len(pods) != nodes || made > 4*nodes {
			r.Errorf("%d of %d pods asked, and %d were made", asked, len(pods), made)
		}
	})
}

func TestOpening(t *testing.T) {
	p := podOf(1, gated)
	p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "others.example.com/gate"})
	raw, err := Opening(p, noon)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"annotations":{"everynode.io/first-node":"2026-03-02T12:00:00Z p1"},"resourceVersion":"7","uid":"u1"},` +
		`"spec":{"schedulingGates":[{"name":"others.example.com/gate"}]}}`
	if string(raw) != want {
		t.Errorf("the patch is %s", raw)
	}
	err = json.Unmarshal(raw, p)
	if since, was := pinning.LetThrough(p); err != nil || !was || !since.Equal(noon) || pinning.IsGated(&p.Spec) {
		t.Errorf("the pod is %+v (%v)", p, err)
	}
	raw, err = Opening(podOf(1, gated), noon)
	if err != nil || !strings.HasSuffix(string(raw), `"spec":{"schedulingGates":null}}`) {
		t.Errorf("the patch is %s (%v)", raw, err)
	}
	p.Name = "copy"
	if _, was := pinning.LetThrough(p); was {
		t.Error("a copy of the pod counts as let through")
	}
}
