package plan

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// owners holds a DaemonSet that wants 3 pods, a ReplicaSet that wants 4, two
// ReplicaSets of a Deployment that wants 7, and a StatefulSet that wants 5.
func owners() Owners {
	set := func(name string, replicas int32, above ...metav1.OwnerReference) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), OwnerReferences: above},
			Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(replicas)},
		}
	}
	return Owners{
		DaemonSets: map[string]*appsv1.DaemonSet{"agents": {
			ObjectMeta: metav1.ObjectMeta{Name: "agents", UID: "uid-agents"},
			Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 3},
		}},
		ReplicaSets: map[string]*appsv1.ReplicaSet{
			"plain": set("plain", 4), "old": set("old", 2, ref("Deployment", "web")), "new": set("new", 6, ref("Deployment", "web")),
			"lost":      set("lost", 1, ref("Deployment", "gone")),
			"custom":    set("custom", 5, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Deployment", Name: "web", UID: "x", Controller: ptr.To(true)}),
			"unset":     {ObjectMeta: metav1.ObjectMeta{Name: "unset", UID: "uid-unset"}},
			"elsewhere": set("elsewhere", 1, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "another", Controller: ptr.To(true)}),
		},
		Deployments: map[string]*appsv1.Deployment{"web": {
			ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid-web"},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](7)},
		}},
		StatefulSets: map[string]*appsv1.StatefulSet{"db": {
			ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "uid-db"},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](5)},
		}},
	}
}

func ref(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: ptr.To(true)}
}

// makePods reads a row of pods, such as "r:agents r:plain u:web -:"; r is ready, u is not,
// t is ready and being deleted; then comes the controller, if there is one. They are
// called a, b, c and so on.
func makePods(row string) (pods []corev1.Pod) {
	for i, word := range strings.Fields(row) {
		state, owner, _ := strings.Cut(word, ":")
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i))}}
		if state != "u" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		if state == "t" {
			p.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		}
		switch owner {
		case "":
		case "agents":
			p.OwnerReferences = []metav1.OwnerReference{ref("DaemonSet", owner)}
		case "db", "nodb":
			p.OwnerReferences = []metav1.OwnerReference{ref("StatefulSet", owner)}
		case "job":
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "uid-job", Controller: ptr.To(true)}}
		case "reborn":
			r := ref("DaemonSet", "agents")
			r.UID = "uid-before"
			p.OwnerReferences = []metav1.OwnerReference{r}
		default:
			p.OwnerReferences = []metav1.OwnerReference{ref("ReplicaSet", owner)}
		}
		pods = append(pods, p)
	}
	return pods
}

// budget reads a specification such as "min 2" or "max 25%".
func budget(spec string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns", Generation: 4}}
	what, amount, _ := strings.Cut(spec, " ")
	switch what {
	case "min":
		b.Spec.MinAvailable = ptr.To(intstr.Parse(amount))
	case "max":
		b.Spec.MaxUnavailable = ptr.To(intstr.Parse(amount))
	}
	return b
}

func TestNumbers(t *testing.T) {
	type numbers struct{ allowed, healthy, desired, expected int32 }
	for _, c := range []struct {
		spec, pods string
		want       numbers
		unmanaged  int
	}{
		// A number of pods that must stay: who controls them is no matter.
		{"min 2", "r: r:plain r:job", numbers{1, 3, 2, 3}, 0},
		{"min 2", "r: u: r:", numbers{0, 2, 2, 3}, 0},
		{"min 2", "r: u: t:", numbers{0, 1, 2, 3}, 0},
		{"min 5", "r: r:", numbers{0, 2, 5, 2}, 0},
		{"min 0", "r: u:", numbers{1, 1, 0, 2}, 0},
		{"min 0", "", numbers{0, 0, 0, 0}, 0},
		{"min 1", "", numbers{0, 0, 1, 0}, 0},

		// A number that may be missing of those that controllers want.
		{"max 1", "r:agents r:agents r:agents", numbers{1, 3, 2, 3}, 0},
		{"max 1", "r:agents r:agents", numbers{0, 2, 2, 3}, 0},
		{"max 1", "r:agents r:agents t:agents", numbers{0, 2, 2, 3}, 0},
		{"max 0", "r:agents r:agents r:agents", numbers{0, 3, 3, 3}, 0},
		{"max 9", "r:agents u:agents", numbers{1, 1, 0, 3}, 0},
		{"max 1", "", numbers{0, 0, 0, 0}, 0},
		{"max 1", "r:agents r:agents r:agents r:plain r:plain r:plain r:plain", numbers{1, 7, 6, 7}, 0},
		// Pods of several ReplicaSets of one Deployment count once, whatever the sets want.
		{"max 2", "r:old r:new r:new r:new r:new r:new", numbers{1, 6, 5, 7}, 0},
		{"max 1", "r:custom r:custom r:custom r:custom r:custom", numbers{1, 5, 4, 5}, 0},
		{"max 1", "r:unset", numbers{1, 1, 0, 1}, 0},
		{"max 1", "r:db r:db r:db r:db r:db", numbers{1, 5, 4, 5}, 0},
		{"min 50%", "r:db r:db r:db", numbers{0, 3, 3, 5}, 0},

		// Shares round up on both sides.
		{"max 34%", "r:agents r:agents r:agents", numbers{2, 3, 1, 3}, 0},
		{"max 33%", "r:agents r:agents r:agents", numbers{1, 3, 2, 3}, 0},
		{"max 1%", "r:agents r:agents r:agents", numbers{1, 3, 2, 3}, 0},
		{"max 0%", "r:agents r:agents r:agents", numbers{0, 3, 3, 3}, 0},
		{"max 100%", "r:agents r:agents r:agents", numbers{3, 3, 0, 3}, 0},
		{"min 50%", "r:agents r:agents r:agents", numbers{1, 3, 2, 3}, 0},
		{"min 66%", "r:agents r:agents r:agents", numbers{1, 3, 2, 3}, 0},
		{"min 67%", "r:agents r:agents r:agents", numbers{0, 3, 3, 3}, 0},
		{"min 25%", "r:plain r:plain", numbers{1, 2, 1, 4}, 0},
		{"min 0%", "r:plain u:plain", numbers{1, 1, 0, 4}, 0},

		// Pods without a controller count one by one, and grant nothing on their own.
		{"min 50%", "r: r: r: r:", numbers{0, 4, 2, 4}, 4},
		{"max 1", "r: r:", numbers{0, 2, 1, 2}, 2},
		{"max 1", "r: r: r:agents r:agents r:agents", numbers{1, 5, 4, 5}, 2},
		{"min 50%", "r: r: r:agents r:agents r:agents", numbers{2, 5, 3, 5}, 2},

		{"", "r:agents r:", numbers{0, 2, 0, 0}, 0},
	} {
		b := budget(c.spec)
		got := Decide(Input{Budget: b, Pods: makePods(c.pods), Owners: owners(), Now: now})
		s := got.Status
		if n := (numbers{s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods}); got.Err != nil || n != c.want || got.Unmanaged != c.unmanaged {
			t.Errorf("%s of %q: %+v, %d unmanaged, %v; want %+v, %d", c.spec, c.pods, n, got.Unmanaged, got.Err, c.want, c.unmanaged)
		}
		condition := meta.FindStatusCondition(s.Conditions, "DisruptionAllowed")
		status, reason := metav1.ConditionFalse, "InsufficientPods"
		if c.want.allowed > 0 {
			status, reason = metav1.ConditionTrue, "SufficientPods"
		}
		if condition.Status != status || condition.Reason != reason || condition.ObservedGeneration != 4 || s.ObservedGeneration != 4 {
			t.Errorf("%s of %q: condition %+v, generation %d; want %s, %s, 4", c.spec, c.pods, condition, s.ObservedGeneration, status, reason)
		}
		b.Status = s
		if again := Decide(Input{Budget: b, Pods: makePods(c.pods), Owners: owners(), Now: now.Add(time.Hour)}); !got.Changed || again.Changed {
			t.Errorf("%s of %q: changed %v, then %v; want true, then false", c.spec, c.pods, got.Changed, again.Changed)
		}
	}
}

func TestUnknownNumberAllowsNothing(t *testing.T) {
	for _, c := range []struct{ spec, pods, message string }{
		{"max 1", "r:agents r:job", `the number of pods wanted by Job "job", which controls pod "b", is not known`},
		{"max 1", "r:absent", `found no controllers for pod "a"`},
		{"max 1", "r:db r:nodb", `found no controllers for pod "b"`},
		{"min 10%", "r:lost", `found no controllers for pod "a"`},
		{"min 10%", "r:elsewhere", `found no controllers for pod "a"`},
		{"max 1", "r:reborn r:agents", `found no controllers for pod "a"`},
		{"max some", "r:agents", `read the number of pods "some"`},
	} {
		b := budget(c.spec)
		b.Status = policyv1.PodDisruptionBudgetStatus{
			DisruptionsAllowed: 2, CurrentHealthy: 3, DesiredHealthy: 1, ExpectedPods: 3, ObservedGeneration: 3,
			DisruptedPods: map[string]metav1.Time{"a": metav1.NewTime(now)},
			Conditions:    []metav1.Condition{{Type: "DisruptionAllowed", Status: metav1.ConditionTrue, Reason: "SufficientPods"}, {Type: "Other"}},
		}
		before := b.DeepCopy()
		got := Decide(Input{Budget: b, Pods: makePods(c.pods), Owners: owners(), Now: now})
		condition := meta.FindStatusCondition(got.Status.Conditions, "DisruptionAllowed")
		if got.Err == nil || !got.Changed || got.Status.DisruptionsAllowed != 0 || condition.Status != metav1.ConditionFalse ||
			condition.Reason != "SyncFailed" || !strings.HasPrefix(condition.Message, c.message) || !condition.LastTransitionTime.Time.Equal(now) {
			t.Errorf("%s of %q: %+v; want nothing allowed and the message %q", c.spec, c.pods, got, c.message)
		}
		if s := got.Status; s.ObservedGeneration != 3 || s.ExpectedPods != 3 || len(s.DisruptedPods) != 1 || len(s.Conditions) != 2 {
			t.Errorf("%s of %q: the rest of the status did not stay: %+v", c.spec, c.pods, s)
		}
		if !equality.Semantic.DeepEqual(b, before) {
			t.Errorf("%s of %q: the budget was changed in place", c.spec, c.pods)
		}
	}
}

func TestEvictionsUnderWay(t *testing.T) {
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for _, c := range []struct {
		name, pods, left, overdue string
		disrupted                 map[string]metav1.Time
		allowed                   int32
		next                      time.Duration // from now; 0 for never
	}{
		{name: "none", pods: "r: r: r:", allowed: 2},
		{name: "not deleted yet", pods: "r: r: r:", disrupted: map[string]metav1.Time{"a": ago(30 * time.Second)}, left: "a", allowed: 1, next: 90 * time.Second},
		{name: "the earliest decides", pods: "r: r: r:", disrupted: map[string]metav1.Time{"a": ago(time.Second), "b": ago(time.Minute)}, left: "ab", next: time.Minute},
		{name: "about to expire", pods: "r: r: r:", disrupted: map[string]metav1.Time{"a": ago(2*time.Minute - 1)}, left: "a", allowed: 1, next: 1},
		{name: "expired", pods: "r: r: r:", disrupted: map[string]metav1.Time{"a": ago(2 * time.Minute)}, overdue: "a", allowed: 2},
		{name: "one of two expired", pods: "r: r: r:", disrupted: map[string]metav1.Time{"c": ago(time.Hour), "b": ago(0)}, left: "b", overdue: "c", allowed: 1, next: 2 * time.Minute},
		{name: "being deleted", pods: "t: r: r:", disrupted: map[string]metav1.Time{"a": ago(time.Second)}, allowed: 1},
		{name: "being deleted for long", pods: "t: r: r:", disrupted: map[string]metav1.Time{"a": ago(time.Hour)}, allowed: 1},
		{name: "gone", pods: "r: r:", disrupted: map[string]metav1.Time{"z": ago(time.Second)}, allowed: 1},
	} {
		b := budget("min 1")
		b.Status.DisruptedPods = c.disrupted
		got := Decide(Input{Budget: b, Pods: makePods(c.pods), Now: now})
		left, overdue := "", ""
		for _, p := range makePods(c.pods) {
			if since, found := got.Status.DisruptedPods[p.Name]; found && since == c.disrupted[p.Name] {
				left += p.Name
			}
		}
		for _, p := range got.Overdue {
			overdue += p.Name
		}
		if left != c.left || len(got.Status.DisruptedPods) != len(c.left) || overdue != c.overdue || got.Status.DisruptionsAllowed != c.allowed {
			t.Errorf("%s: left %v, overdue %q, allowed %d; want %q, %q, %d", c.name, got.Status.DisruptedPods, overdue, got.Status.DisruptionsAllowed, c.left, c.overdue, c.allowed)
		}
		next := time.Duration(0)
		if !got.Next.IsZero() {
			next = got.Next.Sub(now)
		}
		if next != c.next {
			t.Errorf("%s: looks again after %v, want %v", c.name, next, c.next)
		}
	}
}

// TestConditionKeepsItsTime: a time of transition is that of the last change between true and false.
func TestConditionKeepsItsTime(t *testing.T) {
	b := budget("min 1")
	at := func(pods string, when time.Time) time.Time {
		b.Status = Decide(Input{Budget: b, Pods: makePods(pods), Now: when}).Status
		return meta.FindStatusCondition(b.Status.Conditions, "DisruptionAllowed").LastTransitionTime.Time
	}
	for i, c := range []struct {
		pods string
		want time.Time
	}{{"r: r:", now}, {"r: r: r:", now}, {"r:", now.Add(2 * time.Minute)}, {"u:", now.Add(2 * time.Minute)}} {
		if got := at(c.pods, now.Add(time.Duration(i)*time.Minute)); !got.Equal(c.want) {
			t.Errorf("with pods %q the condition is of %v, want %v", c.pods, got, c.want)
		}
	}
}
