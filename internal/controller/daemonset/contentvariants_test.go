package daemonset

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
)

// contentAPI holds ConfigMaps.
type contentAPI struct {
	mu      sync.Mutex
	version int64
	objects map[string]*corev1.ConfigMap
	readers []toolscache.ResourceEventHandler
	// refuse, if there is one, says why a copy cannot be made; slow is how long each job takes.
	refuse func() string
	slow   time.Duration
}

func (a *contentAPI) put(m *corev1.ConfigMap) *corev1.ConfigMap {
	a.version++
	m = m.DeepCopy()
	m.ResourceVersion = strconv.FormatInt(a.version, 10)
	if m.UID == "" {
		m.UID = types.UID(fmt.Sprint("cm-", a.version))
	}
	old := a.objects[m.Name]
	a.objects[m.Name] = m
	for _, h := range a.readers {
		if old == nil {
			h.OnAdd(m, false)
		} else {
			h.OnUpdate(old, m)
		}
	}
	return m
}

func (a *contentAPI) write(name, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"agent.conf": value},
	}
	if old := a.objects[name]; old != nil {
		m.UID = old.UID
	}
	a.put(m)
}

func (a *contentAPI) Follow(
	_ context.Context, namespace string, kind content.Kind, h toolscache.ResourceEventHandler, tell func(contents.Sight),
) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kind == content.ConfigMap {
		for _, m := range a.objects {
			h.OnAdd(m, true)
		}
		a.readers = append(a.readers, h)
	}
	tell(contents.Sight{Namespace: namespace, Kind: kind, Read: true})
}

func (a *contentAPI) CarryOut(_ context.Context, j *contents.Job) contents.Result {
	time.Sleep(a.slow)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := contents.Result{Job: j}
	for _, o := range j.Make {
		if a.refuse != nil {
			r.Why = a.refuse()
			if r.Why != "" {
				return r
			}
		}
		r.Made = append(r.Made, a.put(o.(*corev1.ConfigMap)))
	}
	for _, o := range j.Delete {
		delete(a.objects, o.GetName())
		r.Deleted = append(r.Deleted, o)
	}
	return r
}

// reads is what a pod finds in its volume.
func (a *contentAPI) reads(p *corev1.Pod) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := p.Spec.Volumes[0].ConfigMap.Name
	m := a.objects[name]
	switch {
	case m == nil:
		return "nothing"
	case name == "conf":
		return "the author's " + m.Data["agent.conf"]
	}
	return m.Data["agent.conf"]
}

func startWithAll(t *testing.T, a policyAPI, c *contentAPI) (stop func()) {
	t.Helper()
	events := record.NewFakeRecorder(100000)
	k, err := New(Config{Informers: a, Writer: a, Recorder: events, Rollouts: a, Variants: a, Content: c})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		c.mu.Lock()
		c.readers = nil
		c.mu.Unlock()
	}
}

func found(t *testing.T, a policyAPI, c *contentAPI) map[string]string {
	t.Helper()
	shapes, _ := daemons(t, a.fakeAPI)
	for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
		node := p.Spec.NodeName
		shapes[node] += ", " + c.reads(p)
	}
	return shapes
}

// readsConf has a DaemonSet mount the ConfigMap conf.
func readsConf(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
	of := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}
	ds.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: of}}}
	return ds
}

func newContentAPI() *contentAPI { return &contentAPI{objects: map[string]*corev1.ConfigMap{}} }

// withContent is a policy with content whose canary are n0 and n1.
func withContent(approval v1alpha1.Approval) *v1alpha1.RolloutPolicy {
	p := smallCanary(approval)
	p.Spec.Content = &v1alpha1.Content{ConfigMaps: v1alpha1.ContentReferenced, Settle: "50ms"}
	return p
}

// fleetWithContent has six nodes of two sizes, a variant for the larger ones, and a policy with content that waits for
// approval.
func fleetWithContent(t *testing.T) (policyAPI, *contentAPI) {
	t.Helper()
	a, c := policyAPI{newFakeAPI(t), func() bool { return false }}, newContentAPI()
	for i := range 6 {
		a.add(sizedNode(fmt.Sprint("n", i), []string{"s", "xl"}[i%2], 4))
	}
	c.write("conf", "good")
	a.add(testVariant("large", "xl", threads(8), ""))
	a.add(withContent(v1alpha1.ApprovalManual))
	return a, c
}

// The digest of a target with content and variants is the same after a start.
func TestADigestOutlivesAStart(t *testing.T) {
	a, c := fleetWithContent(t)
	want := map[string]string{}
	for i := range 6 {
		want[fmt.Sprint("n", i)] = []string{"plain", "threads 8"}[i%2] + ", good"
	}
	stop := startWithAll(t, a, c)
	defer func() { stop() }()
	ds := readsConf(testDaemonSet("logs"))
	a.add(ds)
	all := func(want map[string]string) {
		t.Helper()
		eventually(t, func() string {
			if got := found(t, a, c); !maps.Equal(got, want) {
				return fmt.Sprintf("pods are %v, want %v", got, want)
			}
			return ""
		})
	}
	all(want)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	c.write("conf", "new")
	before := wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "")
	if !strings.Contains(before.Status.TargetRevision, "_") || !strings.Contains(before.Status.TargetRevision, ".") {
		t.Fatalf("the target is %s", before.Status.TargetRevision)
	}
	for _, edit := range []string{"new", "newer", "new"} {
		stop()
		c.write("conf", edit)
		stop = startWithAll(t, a, c)
		for range 10 {
			time.Sleep(10 * time.Millisecond)
			r, err := a.GetRollout(t.Context(), "default", "logs")
			if err != nil {
				t.Fatal(err)
			}
			is, was := &r.Status, &before.Status
			if is.TargetRevision == was.TargetRevision && is.TargetDigest != was.TargetDigest {
				t.Fatalf("the digest of %s is %s, and was %s", is.TargetRevision, is.TargetDigest, was.TargetDigest)
			}
		}
		wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "")
	}
	want["n0"], want["n1"] = "plain, new", "threads 8, new"
	all(want)
	approve(t, a, "canary", asItIs)
	for i := range 6 {
		want[fmt.Sprint("n", i)] = []string{"plain", "threads 8"}[i%2] + ", new"
	}
	all(want)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
}

// A new DaemonSet gets no pod before its copies are there, whatever else is heard of it meanwhile.
func TestANewDaemonSetGetsNoPodBeforeItsContent(t *testing.T) {
	a, c := policyAPI{newFakeAPI(t), func() bool { return false }}, newContentAPI()
	for i := range 4 {
		a.add(sizedNode(fmt.Sprint("n", i), "s", 4))
	}
	c.write("conf", "good")
	c.slow = 300 * time.Millisecond
	a.add(withContent(v1alpha1.ApprovalAutomatic))
	defer startWithAll(t, a, c)()
	ds := readsConf(testDaemonSet("logs"))
	var plain []string
	a.mu.Lock()
	a.started = func(p *corev1.Pod) {
		if p.Labels[content.RevisionLabel] == "" {
			plain = append(plain, p.Spec.NodeName)
		}
	}
	a.mu.Unlock()
	a.add(ds)
	time.Sleep(100 * time.Millisecond)
	edit(t, a.fakeAPI, "default", "logs", func(ds *appsv1.DaemonSet) { ds.Annotations["somebody"] = "writes" })
	eventually(t, func() string {
		if got := found(t, a, c); len(got) != 4 {
			return fmt.Sprintf("pods are %v", got)
		}
		return ""
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(plain) > 0 {
		t.Errorf("the pods on %v read the author's object", plain)
	}
}

// Nobody approves the canary: whatever is edited, whoever dies, and though the policy comes and goes, nobody else is given
// anything but what is stable.
func TestRandomChangesOfAllParts(t *testing.T) {
	for seed := range int64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			randomChangesOfAllParts(t, rand.New(rand.NewSource(seed)))
		})
	}
}

func randomChangesOfAllParts(t *testing.T, r *rand.Rand) {
	var trouble atomic.Bool
	writes, chance := sync.Mutex{}, rand.New(rand.NewSource(r.Int63())) // asked by the controller's workers
	a, c := policyAPI{newFakeAPI(t), func() bool {
		writes.Lock()
		defer writes.Unlock()
		return trouble.Load() && chance.Intn(4) == 0
	}}, newContentAPI()
	const nodes = 8
	fixed := map[string]string{}
	for i := range nodes {
		fixed[fmt.Sprint("n", i)] = []string{"s", "xl"}[i/2%2]
		a.add(sizedNode(fmt.Sprint("n", i), []string{"s", "xl"}[i/2%2], 4))
	}
	c.write("conf", "good")
	a.add(testVariant("large", "xl", threads(8), ""))
	a.add(withContent(v1alpha1.ApprovalManual))
	stop := startWithAll(t, a, c)
	defer func() { stop() }()
	ds := readsConf(testDaemonSet("logs"))
	if r.Intn(3) == 0 {
		one, none := intstr.FromInt32(1), intstr.FromInt32(0)
		ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &one}
	}
	a.add(ds)
	eventually(t, func() string {
		r, err := a.GetRollout(t.Context(), "default", "logs")
		if err != nil || r.Status.Phase != v1alpha1.PhaseComplete {
			return fmt.Sprint(err)
		}
		return ""
	})
	var wrong, log []string
	bad := false
	a.mu.Lock()
	a.started = func(p *corev1.Pod) {
		shape := p.Spec.Containers[0].Image + " plain"
		if env := p.Spec.Containers[0].Env; len(env) > 0 {
			shape = p.Spec.Containers[0].Image + " " + env[0].Value
		}
		shape += " " + c.reads(p)
		node := p.Spec.NodeName
		if bad && !strings.HasPrefix(shape, "demo:v1") {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 5}}
		}
		exact := map[string]string{"s": "demo:v1 plain good", "xl": "demo:v1 8 good"}[fixed[node]]
		stable := shape == exact || exact == "" && (shape == "demo:v1 plain good" || shape == "demo:v1 8 good")
		if node != "n0" && node != "n1" && !stable {
			wrong = append(wrong, node+" is given "+shape+" by "+p.Labels[content.RevisionLabel])
		}
	}
	a.mu.Unlock()
	note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	generation := int64(1)
	write := func(n int) {
		edit(t, a.fakeAPI, "default", "logs", func(ds *appsv1.DaemonSet) {
			ds.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("demo:v", n)
			ds.Generation++
		})
	}
	vary := func(n int) {
		generation++
		a.mu.Lock()
		_, err := get[*v1alpha1.DaemonSetVariant](a.fakeAPI, kindVariant, "default", "large")
		a.mu.Unlock()
		if err != nil {
			v := testVariant("large", "xl", threads(n), "")
			v.Generation = generation
			a.add(v)
			return
		}
		edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
			v.Spec.Patch.Raw, v.Generation = []byte(threads(n)), generation
		})
	}
	for range 40 {
		switch x := r.Intn(17); x {
		case 0, 1:
			n := 1 + r.Intn(3)
			note("image v%d", n)
			write(n)
		case 2, 3:
			n := []int{8, 20, 21}[r.Intn(3)]
			note("threads %d", n)
			vary(n)
		case 4, 5:
			v := []string{"good", "x", "y"}[r.Intn(3)]
			note("content %s", v)
			c.write("conf", v)
		case 6:
			name, size := fmt.Sprint("n", r.Intn(nodes)), []string{"s", "xl"}[r.Intn(2)]
			note("%s is %s", name, size)
			a.mu.Lock()
			delete(fixed, name)
			a.mu.Unlock()
			edit(t, a.fakeAPI, "", name, func(n *corev1.Node) { n.Labels["size"] = size })
		case 7, 8:
			pods := list[*corev1.Pod](a.fakeAPI, kindPod)
			if len(pods) > 0 {
				p := pods[r.Intn(len(pods))]
				note("pod of %s goes", p.Spec.NodeName)
				_ = a.DeletePod(t.Context(), p.Namespace, p.Name, p.UID)
			}
		case 9, 10:
			note("restart")
			stop()
			stop = startWithAll(t, a, c)
		case 11:
			a.mu.Lock()
			trouble.Store(!trouble.Load())
			note("trouble %t", trouble.Load())
			a.mu.Unlock()
		case 12:
			a.mu.Lock()
			bad = !bad
			note("bad %t", bad)
			a.mu.Unlock()
		case 14, 15, 16:
			ro, err := a.GetRollout(t.Context(), "default", "logs")
			if err != nil || ro.Status.TargetRevision == ro.Status.StableRevision {
				continue
			}
			note("policy goes")
			a.erase(kindPolicy, "default", "careful")
			if r.Intn(2) == 0 {
				note("restart")
				stop()
				stop = startWithAll(t, a, c)
			}
			time.Sleep(time.Duration(r.Intn(100)) * time.Millisecond)
			p := withContent(v1alpha1.ApprovalManual)
			if r.Intn(3) == 0 {
				p.Spec.Waves[0].Name = "other"
			}
			note("policy comes")
			a.add(p)
		case 13:
			a.mu.Lock()
			_, err := get[*v1alpha1.DaemonSetVariant](a.fakeAPI, kindVariant, "default", "large")
			a.mu.Unlock()
			if err == nil {
				note("no variant")
				a.erase(kindVariant, "default", "large")
			}
		}
		time.Sleep(time.Duration(r.Intn(120)) * time.Millisecond)
		a.mu.Lock()
		if len(wrong) > 0 {
			t.Errorf("%s; after %q", strings.Join(wrong, "; "), log)
			wrong = nil
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	bad = false
	trouble.Store(false)
	a.mu.Unlock()
	write(1)
	vary(8)
	c.write("conf", "good")
	want := map[string]string{}
	for _, n := range list[*corev1.Node](a.fakeAPI, kindNode) {
		want[n.Name] = map[string]string{"s": "plain, good", "xl": "threads 8, good"}[n.Labels["size"]]
	}
	eventually(t, func() string {
		got := found(t, a, c)
		r, err := a.GetRollout(t.Context(), "default", "logs")
		if err != nil || !maps.Equal(got, want) || r.Status.Phase != v1alpha1.PhaseComplete {
			return fmt.Sprintf("%s, %s: pods are %v, want %v; after %q", r.Status.Phase, r.Status.Message, got, want, log)
		}
		return ""
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(wrong) > 0 {
		t.Errorf("%s; after %q", strings.Join(wrong, "; "), log)
	}
}

// A node that joins gets one pod, of the stable revision, also where that has content which is no part of revisions any
// more, and the newest revision differs from it in its variants alone.
func TestANodeThatJoinsGetsOnePodOfAStableRevisionWithContent(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) { joinAfterContent(t, restart) })
	}
}

func joinAfterContent(t *testing.T, restart bool) {
	a, c := fleetWithContent(t)
	stop := startWithAll(t, a, c)
	defer func() { stop() }()
	ds := readsConf(testDaemonSet("logs"))
	ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{
		MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1)),
	}
	a.add(ds)
	settled(t, a.fakeAPI, "logs", 6)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	if restart {
		stop()
	}
	edit(t, a.fakeAPI, "default", "careful", func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Content, p.Generation = nil, 2
		another := time.Now().UTC().AddDate(0, 0, 3).Weekday().String()[:3]
		p.Spec.Windows = []v1alpha1.Window{{Days: []string{another}, From: "00:00", To: "24:00"}}
	})
	a.mu.Lock()
	a.drop(kindVariant, keyOf("default", "large"))
	a.mu.Unlock()
	if restart {
		stop = startWithAll(t, a, c)
	}
	wantPhase(t, a, v1alpha1.PhaseOutsideWindow, "")
	made := map[string]int{}
	a.mu.Lock()
	a.started = func(p *corev1.Pod) {
		made[p.Spec.NodeName]++
		p.Status.Phase, p.Status.Conditions = corev1.PodPending, nil
	}
	a.mu.Unlock()
	want := map[string]int{}
	for i := 6; i < 10; i++ {
		name := fmt.Sprint("n", i)
		want[name] = 1
		a.add(sizedNode(name, []string{"s", "xl"}[i%2], 4))
	}
	eventually(t, func() string {
		if got := found(t, a, c); len(got) != 10 {
			return fmt.Sprintf("pods are %v", got)
		}
		return ""
	})
	time.Sleep(100 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !maps.Equal(made, want) {
		t.Errorf("pods were made on %v, want %v", made, want)
	}
}
