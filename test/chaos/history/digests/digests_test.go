package digests

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/pod/podtest"
	"github.com/everynode/everynode/test/chaos/history"
)

const (
	one = "demo@sha256:" + "1111"
	two = "demo@sha256:" + "2222"

	pinned = v1alpha1.ImagesPinned
)

// another is the rollout of a DaemonSet that was made again.
func another() *v1alpha1.DaemonSetRollout {
	r := says(two)
	r.Labels[history.OwnerLabel], r.Status.Images.Templates = "other", nil
	return r
}

// again is the DaemonSet made again, with another UID.
func again() *appsv1.DaemonSet {
	d := agent()
	d.UID = "next"
	return d
}

// story makes up a history of DaemonSet "agent", whose policy pins.
type story struct{ record history.Record }

func begin() *story {
	s := &story{}
	s.record.Told = true
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	policy.Spec.Images = pinned
	return s.put(policy).put(agent())
}

func agent() *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "agent"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	return d
}

// orphan is a pod that nobody owns, and that has a digest.
func orphan() *corev1.Pod {
	p := pod("a", "demo:v1", one)
	p.OwnerReferences = nil
	return p
}

// takenOut is a pod that somebody took out of its DaemonSet by its label.
func takenOut() *corev1.Pod {
	p := pod("a", "demo:v1", "")
	delete(p.Labels, "app")
	return p
}

func edited() *appsv1.DaemonSet {
	d := agent()
	d.Spec.Template.Annotations = map[string]string{history.TemplateMark: "t2"}
	return d
}

func (s *story) put(o metav1.Object) *story {
	s.record.Events = append(s.record.Events, history.Event{Revision: s.next(), Object: o})
	s.record.Sights = append(s.record.Sights, history.Sight{UID: o.GetUID(), At: s.next() - 1, Version: s.next() - 1})
	return s
}

// unseen puts what the controller does not see before the next version comes.
func (s *story) unseen(o metav1.Object) *story {
	s.put(o)
	s.record.Sights = s.record.Sights[:len(s.record.Sights)-1]
	return s
}

func (s *story) next() int64 { return int64(len(s.record.Events) + 1) }

// gone has an object be gone.
func (s *story) gone(o metav1.Object) *story {
	s.put(o)
	s.record.Events[len(s.record.Events)-1].Deleted = true
	return s
}

// make has the controller ask for a pod now, and get it.
func (s *story) make(name, image string) *story {
	s.record.Calls = append(s.record.Calls, history.Call{Pod: name, Since: s.next() - 1, Early: s.next() - 1})
	return s.put(pod(name, image, ""))
}

func pod(name, image, id string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{
			appsv1.ControllerRevisionHashLabelKey: "h1", "app": "agent",
		},
	}}
	kind := appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(agent(), kind)}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	p.Status.Phase = corev1.PodPending
	if id != "" {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ImageID: id}}
	}
	return p
}

// says is a rollout that says which digest the template has; "" for none.
func says(digest string) *v1alpha1.DaemonSetRollout {
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{
		Name: "agent", UID: "r", Labels: map[string]string{history.OwnerLabel: "agent"},
	}}
	r.Status.StableRevision, r.Status.Images = "h1.c1", &v1alpha1.ImagesStatus{}
	if digest != "" {
		_, digest, _ = strings.Cut(digest, "@")
		images := []v1alpha1.PinnedImage{{Image: "demo:v1", Digest: digest}}
		r.Status.Images.Templates = []v1alpha1.PinnedTemplate{{Template: "h1", Node: "n1", Images: images}}
	}
	return r
}

// left is a rollout that has outlived its policy.
func left(r *v1alpha1.DaemonSetRollout) *v1alpha1.DaemonSetRollout {
	r.Status.Conditions = []metav1.Condition{{Type: "PolicyGone", Status: metav1.ConditionTrue}}
	return r
}

func unscheduled() *corev1.Pod {
	p := pod("a", "demo:v1", "")
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	return p
}

func as(images v1alpha1.ImageResolution) *v1alpha1.RolloutPolicy {
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	policy.Spec.Images = images
	return policy
}

// elsewhere is a policy with a time zone that nobody knows.
func elsewhere() *v1alpha1.RolloutPolicy {
	policy := as(pinned)
	policy.Spec.Windows = []v1alpha1.Window{{TimeZone: "Atlantis/Capital"}}
	return policy
}

// mounts has a pod with a volume of an image; its node says that it mounts the one with id, "" for nothing.
func mounts(name, image, id string) *corev1.Pod {
	p := pod(name, one, one)
	p.Spec.Volumes = []corev1.Volume{podtest.ImageVolume("v", image)}
	if id != "" {
		p.Status.ContainerStatuses[0].VolumeMounts = []corev1.VolumeMountStatus{podtest.Mounted("v", id)}
	}
	return p
}

// volume has the controller ask for such a pod, after another one of whose images everything is said.
func volume(image string) *story {
	r := says(one)
	said := r.Status.Images.Templates[0].Images
	r.Status.Images.Templates[0].Images = append(said, v1alpha1.PinnedImage{Image: "rules:v1", Digest: "sha256:3333"})
	s := begin().make("a", "demo:v1").put(pod("a", "demo:v1", one)).put(mounts("a", "rules:v1", "rules@sha256:3333")).put(r)
	s.record.Calls = append(s.record.Calls, history.Call{Pod: "b", Since: s.next() - 1, Early: s.next() - 1})
	return s.put(mounts("b", image, ""))
}

func TestDigests(t *testing.T) {
	told := func() *story { return begin().make("a", "demo:v1").put(pod("a", "demo:v1", one)) }
	twice := func(s *story) *story { return s.make("a", "demo:v1").make("b", "demo:v1") }
	for name, c := range map[string]struct {
		story  *story
		want   string // the rule that is broken
		judged int
	}{
		"all get what the first had":             {told().put(says(one)).make("b", one).make("c", one), "", 2},
		"one by tag though it is said":           {told().put(says(one)).make("b", "demo:v1"), Unlike, 0},
		"one with what its tag names now":        {told().put(pod("a", "demo:v1", two)).put(says(one)).make("b", two), Unlike, 0},
		"one that is adopted had it":             {begin().put(orphan()).put(says(one)).make("b", one), "", 1},
		"one with a digest that nobody had":      {told().put(says(one)).make("b", two), Untold, 0},
		"a digest is said that nobody had":       {told().put(says(two)), Untold, 0},
		"what is said changes":                   {told().put(says(one)).put(pod("a", "demo:v1", two)).put(says(two)), Changed, 0},
		"what is said changes without a policy":  {told().put(says(one)).put(left(says(one))).put(pod("a", "demo:v1", two)).put(says(two)), "", 0},
		"the stable one's is forgotten":          {told().put(says(one)).put(says("")), Changed, 0},
		"it is forgotten as pinning is off":      {told().put(says(one)).put(as("")).put(says("")), "", 0},
		"one by tag as pinning is off":           {told().put(says(one)).put(as("")).make("b", "demo:v1"), "", 0},
		"one by tag as pinning is back":          {told().put(says(one)).put(as("")).put(as(pinned)).make("b", "demo:v1"), "", 0},
		"one by tag after pinning was back":      {told().put(as("")).put(as(pinned)).put(says(one)).make("b", "demo:v1"), Unlike, 0},
		"a volume as the first one's":            {volume("rules@sha256:3333"), "", 2},
		"a volume by tag":                        {volume("rules:v1"), Unlike, 1},
		"a volume with what nobody had":          {volume("rules@sha256:4444"), Untold, 1},
		"the DaemonSet is made again":            {told().put(says(one)).put(another()), "", 0},
		"the template is edited meanwhile":       {begin().make("a", "demo:v1").put(edited()).make("b", "demo:v1"), Second, 0},
		"the DaemonSet is gone":                  {told().put(says(one)).gone(agent()).put(says("")), "", 0},
		"two first ones":                         {begin().make("a", "demo:v1").make("b", "demo:v1"), Second, 0},
		"a second one before the digest is said": {told().make("b", "demo:v1"), Second, 0},
		"the first one has no room":              {begin().make("a", "demo:v1").put(unscheduled()).make("b", "demo:v1"), "", 0},
		"the first one is taken out":             {begin().make("a", "demo:v1").put(takenOut()).make("b", "demo:v1"), "", 0},
		"the next DaemonSet's digests before its name": {
			told().gone(agent()).put(says(two)).put(again()), "", 0,
		},
		"its rollout is deleted": {told().put(says(one)).gone(says(one)).make("b", "demo:v1"), Second, 0},
		"its rollout is deleted and the policy cannot be followed": {
			told().put(says(one)).gone(says(one)).put(elsewhere()).make("b", "demo:v1"), "", 0,
		},
		"its rollout is deleted after the policy could not be followed": {
			told().put(says(one)).put(elsewhere()).put(as(pinned)).gone(says(one)).make("b", "demo:v1"), Second, 0,
		},
		"a second one when the policy cannot be followed": {told().put(elsewhere()).make("b", "demo:v1"), Second, 0},
		"pinning that it did not see before the policy could not be followed": {
			twice(begin().put(as("")).unseen(as(pinned)).put(elsewhere())), "", 0,
		},
		"pinning that it saw before the policy could not be followed": {
			twice(begin().put(as("")).put(as(pinned)).put(elsewhere())), Second, 0,
		},
		"pinning that it sees when the policy can be followed again": {
			twice(begin().put(as("")).unseen(as(pinned)).put(elsewhere()).put(as(pinned))), Second, 0,
		},
		"pinning that it does not see yet when the policy can be followed again": {
			twice(begin().put(as("")).unseen(as(pinned)).put(elsewhere()).unseen(as(pinned))), "", 0,
		},
		"the first one is gone": {begin().make("a", "demo:v1").gone(pod("a", "demo:v1", "")).make("b", "demo:v1"), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			found, judged := Check(c.story.record)
			var rules []string
			for _, v := range found {
				rules = append(rules, v.Rule)
			}
			if got := strings.Join(rules, ", "); got != c.want || judged != c.judged {
				t.Errorf("found %q in %d pods, want %q in %d: %v", got, judged, c.want, c.judged, found)
			}
		})
	}
}
